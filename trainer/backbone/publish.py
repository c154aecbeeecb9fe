"""Publishes a backbone run: draws its curves, and writes a folder with fp16 weights and a model card.

    python -m trainer.backbone.publish runs/coconut latent/zoo/coconut-tiny --control runs/control

Samplers and calibrations belong to exact weights, so they are made for the folder this writes.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from latent.adapter import read_adapter
from latent.errors import GtsError, InputError, MismatchError, NotFoundError
from latent.files import read_json, write_text
from latent.folders import read_format
from latent.merging import load_factors
from latent.store import load_decoder, load_projection, load_tokenizer, save_reasoner
from latent.votes import VoteKind, parse_vote
from trainer.runs.checkpoint import read_log
from trainer.runs.curves import CurvePanel, curve, draw_curves

__all__ = ["draw_training", "reasoner_card", "ship"]

_KINDS = {
    "coconut": "COCONUT: its thoughts are its own last hidden states, fed back as they are",
    "codi": "CODI: its thoughts are its last hidden states, fed back through a projection",
    "cot": "Plain chain of thought in text, the baseline",
}
_MEASURES = {
    "validation": "validation",
    "test": "test",
    "test_zeroed": "test, every thought set to zero",
    "test_swapped": "test, every thought taken from another question",
}

# Parts of the loss, as the log names them.
_LOSSES = {
    "loss": "all parts",
    "answer": "answer after thoughts",
    "teacher": "CODI's teacher, in text",
    "student": "CODI's student, in thoughts",
    "distance": "between their states",
    "steps": "equations of the thoughts",
}

# What counts as right: of text, the whole of it.
_EXACT = {"cot": "Exact equations and answers"}


_LIMITS = """\
It knows the embedded task and nothing else: whole numbers below 10,000, two to six operations, the
situations and phrasings it was trained on. Its vocabulary can encode any text, but it answers other
questions at random. It is meant for trying the service, for tests, and for research on sampling."""


def ship(
    run: Path,
    folder: Path,
    control: Path | None = None,
    sampler: str | None = None,
    vote: VoteKind | None = None,
    average: Path | None = None,
) -> None:
    """Write the reasoner of a finished run to a folder, with its records; without a base, its card.

    `sampler` and `vote` are its defaults. `average` is the folder of a reasoner on the same base: the
    mean of both adapters, and of both projections, is written.
    """
    result_path = run / "result.json"
    if not result_path.is_file():
        raise NotFoundError(f"{result_path} is missing: the run has not finished")
    result = read_json(result_path)
    source = run / "reasoner"
    runs = _chain(source)
    results = {name: value for name, value in result.items() if isinstance(value, dict)}
    controlled = None if control is None else read_json(control / "result.json")
    if controlled is not None:
        results["control"] = controlled.get("test", controlled.get("validation"))
    records = {"runs": runs, "results": results}
    format = replace(read_format(source), provenance=records, sampler=sampler, vote=vote)
    sources = [source]
    if average is not None:
        _check_alike(source, average)
        sources.append(average)
    model = load_decoder(source, torch.float16, format.base)
    projection = None
    if format.projection is not None:
        width = model.config.hidden_size
        projections = [load_projection(each, format.projection, width) for each in sources]
        projection = projections[0]
        projection.load_state_dict(_mean([each.state_dict() for each in projections]))
        projection = projection.half()
    adapter = None
    if format.base is not None:
        factors = _mean([load_factors(each) for each in sources])
        halved = {name: tensor.half() for name, tensor in factors.items()}
        adapter = read_adapter(source), halved
    save_reasoner(folder, format, model, load_tokenizer(source), projection, adapter)
    for path in folder.iterdir():
        if path.is_file():
            path.chmod(0o644)
    if format.base is not None:  # its card is written by hand
        return
    card = reasoner_card(folder.name, read_json(folder / "reasoner.json"), result, runs, controlled)
    write_text(folder / "README.md", card)


def _check_alike(folder: Path, other: Path) -> None:
    """Refuse to average what is no adapter, or adapters that do not belong together."""
    own = read_format(folder)
    if own.base is None:
        raise InputError(f"{folder} has no adapter, which --average needs", param="average")
    mine, theirs = own.computed(), read_format(other).computed()
    for name in mine | theirs:  # a field is left out where it has its default
        if mine.get(name) != theirs.get(name):
            raise MismatchError(f"{other} and {folder} differ in {name}", param="average")
    if read_adapter(other) != read_adapter(folder):
        raise MismatchError(
            f"the adapters of {other} and {folder} differ in shape", param="average"
        )


def _mean(weights: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Mean of each tensor over several reasoners.

    An adapter adds B·A. The product of the mean factors is about the mean of the products where the
    adapters are close, as those are of which one was trained from the other.
    """
    return {
        name: torch.stack([each[name].float() for each in weights]).mean(0) for name in weights[0]
    }


def _chain(folder: Path) -> list[dict[str, Any]]:
    """Provenance of each run that led to a reasoner (--init), the first one first."""
    path = folder / "reasoner.json"
    if not path.is_file():
        return []
    own = read_json(path)["provenance"]
    if "runs" in own:  # published before, and now trained further
        return list(own["runs"])
    if "config" not in own:
        return []
    init = own["config"].get("init")
    kept = {name: own[name] for name in ("command", "steps", "seconds", "config")}
    return [*(_chain(Path(init)) if init else []), kept]


def reasoner_card(
    name: str,
    reasoner: Mapping[str, Any],
    result: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    control: Mapping[str, Any] | None = None,
) -> str:
    """Markdown text of the model card: recipe, every run in order, accuracies and limits."""
    kind, thoughts = reasoner["kind"], reasoner["thoughts"]
    config = runs[-1]["config"]
    shape = config["architecture"]
    lines = [
        f"# {name}",
        "",
        f"{_KINDS[kind]}. {shape['family']} architecture, {shape['layers']} layers, width "
        f"{shape['width']}, {f'{thoughts} thoughts' if thoughts else 'no thoughts'}, weights in fp16.",
        "",
        "## Recipe",
        _data(config),
    ]
    if config.get("supervised_steps"):
        lines.append(
            f"- Each pair of thoughts was trained on its equation, for up to "
            f"{config['supervised_steps']} of them (`trainer/backbone/step_codes.py`): first with the "
            "equations' codes fed in place of the thoughts, then with the thoughts fed back."
        )
    for number, run in enumerate(runs, start=1):
        minutes = run["seconds"] / 60
        lines.append(
            f"- Run {number}: `{run['command']}`, {run['steps']} steps, {minutes:.0f} min."
        )
    lines += [
        "",
        "## Measured",
        f"{_EXACT.get(kind, 'Exact answers')} of the deterministic trajectory, before rounding to",
    ]
    lines += ["fp16; by the number of operations:", "", *_table(result, control), ""]
    lines += ["## Limits", _LIMITS, ""]
    return "\n".join(lines)


def _data(config: Mapping[str, Any]) -> str:
    sources = config["data"] if isinstance(config["data"], list) else [config["data"]]
    if all(source.startswith("embedded") for source in sources):
        made = f"{config['train_problems']} problems of the embedded generator"
    else:
        made = f"at most {config['train_problems']} problems of each"
    drawn = "; numbers drawn anew" if config.get("redraw_numbers") else ""
    return f"- Data: {', '.join(f'`{source}`' for source in sources)}, {made}{drawn}."


def _table(result: Mapping[str, Any], control: Mapping[str, Any] | None) -> list[str]:
    rows = {label: result[key] for key, label in _MEASURES.items() if key in result}
    if control is not None:
        rows["test, the control: as many steps, no thoughts"] = control["test"]
    steps = sorted({step for row in rows.values() for step in row["by_steps"]}, key=int)
    table = [
        f"| | questions | all | {' | '.join(steps)} |",
        f"|---|---|---|{'---|' * len(steps)}",
    ]
    for label, row in rows.items():
        shares = " | ".join(f"{row['by_steps'].get(step, 0):.3f}" for step in steps)
        table.append(f"| {label} | {row['problems']} | {row['accuracy']:.3f} | {shares} |")
    return table


def draw_training(log: Path, folder: Path) -> list[Path]:
    """Draw losses and validation accuracy of a run's log as curves.png and .svg; return the paths."""
    records = read_log(log)
    losses = [curve(records, name, f"{words}\n({name})") for name, words in _LOSSES.items()]
    right = curve(records, "accuracy", "accuracy")
    return draw_curves(
        folder,
        "curves",
        [
            CurvePanel("training loss", losses, scale="log"),
            CurvePanel(
                "validation questions that the\nstage answers right, %", [right], is_share=True
            ),
        ],
        stage_ends=list({record["stage"]: record["step"] for record in records}.values()),
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.backbone.publish",
        description=(ship.__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("run", type=Path, help="the folder of a finished backbone run")
    parser.add_argument("folder", type=Path, help="where the reasoner goes")
    parser.add_argument("--control", type=Path, help="the run of the control without thoughts")
    parser.add_argument("--sampler", help="its default sampler; otherwise gts, or token for text")
    parser.add_argument("--vote", help="its default vote; otherwise majority")
    parser.add_argument(
        "--average",
        type=Path,
        help="another reasoner's folder: publish the mean of its adapter and projection and the run's",
    )
    options = parser.parse_args()
    try:
        vote = None if options.vote is None else parse_vote(options.vote)
        ship(options.run, options.folder, options.control, options.sampler, vote, options.average)
    except GtsError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
