"""Writes the scales of gts@auto: `python -m trainer.evaluation.scales SUMMARY FOLDER`.

SUMMARY is the summary.json of an evaluation on validation data with one learned sampler at several
scales, such as gts, gts@0.5 and gts@0.25; FOLDER is that sampler's.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from latent.errors import GtsError, InputError
from latent.files import write_json
from latent.folders import DEFAULT_SAMPLER, read_sampler_card
from latent.specs import SamplerSpec
from trainer.evaluation.summary import SamplerResult, Summary, read_summary_of

__all__ = ["best_scales", "main"]


def best_scales(run: Summary, name: str) -> dict[str, float]:
    """The scale with the highest majority@N at each budget N, then with the highest pass@N."""
    found: list[tuple[float, SamplerResult]] = []
    for one in run.sampling:
        spec = SamplerSpec.parse(one.spec)
        if spec.kind == "gts" and (spec.name or DEFAULT_SAMPLER) == name:
            found.append((1.0 if spec.value is None else spec.value, one))
    if len(found) < 2:
        raise InputError(f"the evaluation has {len(found)} scales of {name}; it needs two or more")
    return {
        str(budget): max(
            found,
            key=lambda each: (each[1].majority[budget].value, each[1].pass_at[budget].value),
        )[0]
        for budget in found[0][1].majority
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Read a summary and write the scales into the card of its sampler."""
    name = "python -m trainer.evaluation.scales"
    parser = argparse.ArgumentParser(prog=name, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("summary", type=Path)
    parser.add_argument("folder", type=Path, help="the sampler's folder, as in …/samplers/default")
    options = parser.parse_args(arguments)
    try:
        card = read_sampler_card(options.folder)
        run = read_summary_of(options.summary, card.reasoner_fingerprint, options.folder)
        scales = best_scales(run, options.folder.resolve().name)
        changed = replace(card, scales=scales)
        write_json(options.folder / "sampler.json", {"format": 1, **vars(changed)})
    except GtsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    print(f"scales by budget: {json.dumps(scales)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
