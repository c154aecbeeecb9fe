"""Writes or checks the README's results: `python -m trainer.evaluation.report.readme [--check]`.

The text between the two markers and docs/results/NAME.svg come from docs/results/NAME.json, each a
summary.json as gts evaluate wrote it.
"""

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from latent.errors import FormatError, GtsError, NotFoundError
from trainer.evaluation.report.budget_figures import pass_at_figure
from trainer.evaluation.report.cells import Table
from trainer.evaluation.report.drawing import Drawing
from trainer.evaluation.report.findings import Interval, Run
from trainer.evaluation.report.headline import headline
from trainer.evaluation.report.page import write_page
from trainer.evaluation.report.reading import read_summary
from trainer.evaluation.report.tables import command, seed_tables

__all__ = ["BEGIN", "END", "main", "results_text", "with_results"]

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
_COMMAND = "python -m trainer.evaluation.report.readme"


@dataclass(frozen=True)
class _Committed:
    """One summary under docs/results."""

    path: Path
    run: Run

    @property
    def figure(self) -> Path:
        return self.path.with_suffix(".svg")

    @property
    def stamp(self) -> str:
        """Ties a figure to the summary it was drawn from, whatever drew it."""
        return f"<!-- drawn from sha256 {hashlib.sha256(self.path.read_bytes()).hexdigest()} -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the results, or with --check say whether they are as the summaries are."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    options = parser.parse_args(arguments)
    try:
        committed = _read(options.results)
        text = results_text(committed, os.path.relpath(options.results, options.readme.parent))
        before = _read_readme(options.readme)
        after = with_results(before, text, options.readme)
        if options.check:
            return _report(_differences(options.readme, before != after, committed))
        for one in committed:
            _draw(one)
        write_page(options.readme, after)
    except GtsError as error:
        print(f"{_COMMAND}: {error}", file=sys.stderr)
        return 2
    return 0


def with_results(readme: str, text: str, path: Path) -> str:
    """Put the text between the markers of a README."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise FormatError(f"{path} must hold {BEGIN} and {END}, each once")
    head, _, rest = readme.partition(BEGIN)
    _, marker, tail = rest.partition(END)
    if not marker:
        raise FormatError(f"{path} has {END} before {BEGIN}")
    return f"{head}{BEGIN}\n{text}{END}{tail}"


def results_text(committed: Sequence[_Committed], folder: str) -> str:
    """Write the results in Markdown, a section for each run."""
    note = (
        "Percent of questions, SG in log-odds, JS in nats; ± is half the width of the 95% bootstrap "
        "interval over questions. mean@1 is the accuracy of one sample."
    )
    source = f"<!-- written by {_COMMAND} from {folder}/*.json, not by hand -->"
    return "\n\n".join([source, note, *(_section(one, folder) for one in committed)]) + "\n"


def _section(one: _Committed, folder: str) -> str:
    run, name = one.run, one.path.stem
    left_out = f" {len(run.malformed)} malformed rows were left out." if run.malformed else ""
    parts = [f"### {name}", _escaped(headline(run)) + left_out]
    if run.sampling:
        parts += [f"![pass@N against N: {name}]({folder}/{name}.svg)", _table(run)]
        parts += [text for table in seed_tables(run) for text in _seeds(table)]
    return "\n\n".join([*parts, f"    {command(run, f'runs/{name}')}"])


def _table(run: Run) -> str:
    last = max(n for one in run.sampling for n in one.pass_at)
    budgets = sorted({8, 32, last} & {n for one in run.sampling for n in one.pass_at})
    head = ["sampler", "mean@1", *(f"pass@{n}" for n in budgets), f"majority@{last}"]
    rows = [
        [
            f"`{one.spec}`",
            _percent(one.pass_at.get(1)),
            *(_percent(one.pass_at.get(n)) for n in budgets),
            _percent(one.votes.get("majority", {}).get(last)),
            _number(one.gain, 2),
            _number(one.gain_rate, 2),
            _number(one.js, 3),
        ]
        for one in run.sampling
    ]
    lines = [[*head, "SG", "SG > 0.5", "JS"], ["---", *["--:"] * (len(head) + 2)], *rows]
    return _markdown(lines)


def _seeds(table: Table) -> tuple[str, str]:
    rows = [
        [f"{cell.text} ({cell.detail})" if cell.detail else cell.text for cell in row]
        for row in table.rows
    ]
    head = [table.title, *table.head[1:]]
    return _escaped(table.note), _markdown([head, ["---", *["--:"] * (len(head) - 1)], *rows])


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines
    )


def _percent(measured: Interval | None) -> str:
    if measured is None:
        return "–"
    return _number(Interval(*(100 * x for x in (measured.value, measured.low, measured.high))), 1)


def _number(measured: Interval | None, places: int) -> str:
    if measured is None:
        return "–"
    half = (measured.high - measured.low) / 2
    return f"{measured.value:.{places}f} ±{half:.{places}f}".replace("-", "−")


def _escaped(text: str) -> str:
    """Keep Markdown from reading a path's underscores, or anything else in a name, as its own."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", text)


def _read(folder: Path) -> list[_Committed]:
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stem)
    if not paths:
        raise NotFoundError(f"{folder} holds no summaries; copy summary.json there as NAME.json")
    return [_Committed(path, read_summary(path)) for path in paths]


def _read_readme(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotFoundError(f"{path} is not readable: {error.strerror}") from error


def _draw(one: _Committed) -> None:
    drawn = pass_at_figure(one.run.without_repeats())
    if isinstance(drawn, Drawing):
        write_page(one.figure, f"{drawn.picture.svg.rstrip()}\n{one.stamp}\n")


def _differences(readme: Path, is_changed: bool, committed: Sequence[_Committed]) -> list[str]:
    drawn = [one for one in committed if one.run.sampling]
    stale = [str(one.figure) for one in drawn if not _is_current(one)]
    return [str(readme), *stale] if is_changed else stale


def _is_current(one: _Committed) -> bool:
    return one.figure.exists() and one.figure.read_text(encoding="utf-8").rstrip().endswith(
        one.stamp
    )


def _report(differences: Sequence[str]) -> int:
    for name in differences:
        print(f"{name} differs from the committed summaries; run: {_COMMAND}", file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
