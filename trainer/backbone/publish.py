"""Makes a run's reasoner ready to be shipped: fp16 weights, its records and a card, in one folder.

    python -m trainer.backbone.publish runs/coconut latent/zoo/coconut-tiny --control runs/control

Samplers and calibrations are bound to the weights, so they are trained on the folder this writes.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from latent.errors import GtsError, NotFoundError
from latent.files import read_json, write_text
from latent.folders import read_format
from latent.store import load_decoder, load_projection, load_tokenizer, save_reasoner
from trainer.backbone.card import reasoner_card

__all__ = ["ship"]


def ship(run: Path, folder: Path, control: Path | None = None) -> None:
    """Write the reasoner of a finished run to a folder."""
    result_path = run / "result.json"
    if not result_path.is_file():
        raise NotFoundError(f"{result_path} is missing: the run has not finished")
    result = read_json(result_path)
    runs = _chain(run / "reasoner")
    source = run / "reasoner"
    results = {name: value for name, value in result.items() if isinstance(value, dict)}
    format = replace(read_format(source), provenance={"runs": runs, "results": results})
    model = load_decoder(source, torch.float16)
    projection = None
    if format.projection is not None:
        projection = load_projection(source, format.projection, model.config.hidden_size)
        projection = projection.half()
    save_reasoner(folder, format, model, load_tokenizer(source), projection)
    for path in folder.iterdir():
        if path.is_file():
            path.chmod(0o644)
    controlled = None if control is None else read_json(control / "result.json")
    card = reasoner_card(folder.name, read_json(folder / "reasoner.json"), result, runs, controlled)
    write_text(folder / "README.md", card)


def _chain(folder: Path) -> list[dict[str, Any]]:
    """Give the provenance of each run that led to a reasoner, the first one first."""
    path = folder / "reasoner.json"
    if not path.is_file():
        return []
    own = read_json(path)["provenance"]
    if "config" not in own:
        return []
    init = own["config"].get("init")
    kept = {name: own[name] for name in ("command", "steps", "seconds", "config")}
    return [*(_chain(Path(init)) if init else []), kept]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.backbone.publish", description=ship.__doc__
    )
    parser.add_argument("run", type=Path, help="the folder of a finished backbone run")
    parser.add_argument("folder", type=Path, help="where the reasoner goes")
    parser.add_argument("--control", type=Path, help="the run of the control without thoughts")
    options = parser.parse_args()
    try:
        ship(options.run, options.folder, options.control)
    except GtsError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
