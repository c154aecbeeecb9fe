"""The text of a reasoner's model card, from its run's own records."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["reasoner_card"]

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

# What counts as right: of text, the whole of it.
_EXACT = {"cot": "Exact equations and answers"}


def reasoner_card(
    name: str,
    reasoner: Mapping[str, Any],
    result: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    control: Mapping[str, Any] | None = None,
) -> str:
    """Write the card from reasoner.json, result.json and the provenance of every run, in order."""
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
        f"- Data: `{config['data']}`, {config['train_problems']} problems of the embedded generator.",
    ]
    if config.get("supervised_steps"):
        lines.append(
            f"- Each pair of thoughts was taught its equation, for up to {config['supervised_steps']} "
            "of them (`trainer/backbone/step_codes.py`): first with the codes told in the thoughts' "
            "places, then with the thoughts fed back."
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


_LIMITS = """\
It knows the embedded task and nothing else: whole numbers below 10,000, two to six operations, the
situations and phrasings it was trained on. Its vocabulary can encode any text, but it answers other
questions at random. It is meant for trying the service, for tests, and for research on sampling."""
