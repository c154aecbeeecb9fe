"""Writes a reasoner's exploration.json: `python -m trainer.evaluation.thresholds SUMMARY FOLDER`.

SUMMARY is the summary.json of an evaluation on validation data with dropout and Gaussian noise of
several scales; `latent.regimes` chooses the thresholds from it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from latent.errors import GtsError
from latent.folders import fingerprint
from latent.regimes import FILE_NAME, FixedNoise, Thresholds, measure_thresholds, write_thresholds
from latent.specs import SamplerSpec
from trainer.evaluation.summary import Summary, read_summary_of

__all__ = ["main", "thresholds_of"]


def thresholds_of(run: Summary) -> Thresholds:
    """The thresholds that the fixed noise of an evaluation gives."""
    return measure_thresholds(
        [
            FixedNoise(one.gain.value, one.gain.low, one.gain.high, one.js.value)
            for one in run.sampling
            if SamplerSpec.parse(one.spec).kind in ("dropout", "gaussian") and one.gain and one.js
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read a summary and write the thresholds into the folder of its reasoner."""
    name = "python -m trainer.evaluation.thresholds"
    parser = argparse.ArgumentParser(prog=name, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("summary", type=Path)
    parser.add_argument("folder", type=Path, help="the reasoner's folder")
    options = parser.parse_args(arguments)
    try:
        own = fingerprint(options.folder)
        run = read_summary_of(options.summary, own, options.folder)
        found = thresholds_of(run)
        data = f"{run.data.name}, {run.data.rows} questions"
        write_thresholds(options.folder / FILE_NAME, found, own, data)
    except GtsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    print(f"useful above SG {found.gain:.3f}; under-exploration up to JS {found.shift:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
