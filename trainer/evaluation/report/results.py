"""Writes or checks docs/results.md: `python -m trainer.evaluation.report.results [--check]`.

Its text and docs/results/NAME.svg are generated from docs/results/NAME.json, each a summary.json that
gts evaluate wrote; panels are in docs/results/panels.
"""

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from latent.errors import GtsError, NotFoundError
from trainer.evaluation.report.figures import pass_at_figure
from trainer.evaluation.report.page import headline, render_page
from trainer.evaluation.report.panels import (
    PanelSummary,
    panel_command,
    panel_table,
    panel_text,
    read_panel_summary,
)
from trainer.evaluation.report.plotting import Drawing
from trainer.evaluation.report.tables import NOTHING, Cell, Table, command, seed_table
from trainer.evaluation.statistics import Interval
from trainer.evaluation.summary import Summary, read_summary
from trainer.runs.output_folder import write_file

__all__ = ["main", "results_text"]

_COMMAND = "python -m trainer.evaluation.report.results"


@dataclass(frozen=True)
class _Committed:
    """One summary in docs/results."""

    path: Path
    run: Summary

    @property
    def figure(self) -> Path:
        return self.path.with_suffix(".svg")

    @property
    def stamp(self) -> str:
        """Comment in the figure with the digest of its summary, by which --check finds old ones."""
        return f"<!-- drawn from sha256 {hashlib.sha256(self.path.read_bytes()).hexdigest()} -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the results; with --check, exit with 1 if the files differ from the summaries."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    options = parser.parse_args(arguments)
    try:
        committed = _read(options.results)
        panels = sorted((options.results / "panels").glob("*.json"))
        text = results_text(committed, os.path.relpath(options.results, options.out.parent), panels)
        if options.check:
            return _check(options.out, text, committed)
        for one in committed:
            _draw(one)
        write_file(options.out, text.encode())
    except GtsError as error:
        print(f"{_COMMAND}: {error}", file=sys.stderr)
        return 2
    return 0


def results_text(committed: Sequence[_Committed], folder: str, panels: Sequence[Path] = ()) -> str:
    """The results in Markdown, a section for each run and each panel."""
    sections = [_section(one.path.stem, one.run) for one in committed]
    sections += [_panel_section(path.stem, read_panel_summary(path)) for path in panels]
    return render_page("results.md.j2", command=_COMMAND, folder=folder, sections=sections)


def _panel_section(name: str, run: PanelSummary) -> dict[str, Any]:
    return {
        "name": name,
        "text": _escaped(panel_text(run)),
        "table": None,  # nor is there a figure
        "panel": panel_table(run),
        "seeds": [],
        "command": panel_command(run, f"runs/{name}"),
    }


def _section(name: str, run: Summary) -> dict[str, Any]:
    malformed = len(run.data.malformed)
    left_out = f" {malformed} malformed rows were left out." if malformed else ""
    seeds = [seed_table(one) for one in run.seeds]
    return {
        "name": name,
        "text": _escaped(headline(run)) + left_out,
        "table": _table(run) if run.sampling else None,
        "panel": None,
        "seeds": [
            (_escaped(one.note), replace(one, head=(one.title, *one.head[1:]))) for one in seeds
        ],
        "command": command(run, f"runs/{name}"),
    }


def _table(run: Summary) -> Table:
    last = max(n for one in run.sampling for n in one.pass_at)
    budgets = sorted({8, 32, last} & {n for one in run.sampling for n in one.pass_at})
    head = ("sampler", "mean@1", *(f"pass@{n}" for n in budgets), f"majority@{last}")
    rows = tuple(
        (
            Cell(f"`{one.spec}`"),
            _number(one.pass_at.get(1), 1, 100),
            *(_number(one.pass_at.get(n), 1, 100) for n in budgets),
            _number(one.majority.get(last), 1, 100),
            _number(one.gain, 2),
            _number(one.gain_rate, 2),
            _number(one.js, 3),
            Cell(one.regime) if one.regime else NOTHING,
        )
        for one in run.sampling
    )
    return Table("", "", (*head, "SG", "SG > 0.5", "JS", "regime"), rows)


def _number(measured: Interval | None, places: int, scale: float = 1.0) -> Cell:
    if measured is None:
        return NOTHING
    value, half = scale * measured.value, (scale * measured.high - scale * measured.low) / 2
    return Cell(f"{value:.{places}f} ±{half:.{places}f}".replace("-", "−"))


def _escaped(text: str) -> str:
    """Escape what Markdown would interpret, such as the underscores of a path."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", text)


def _read(folder: Path) -> list[_Committed]:
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stem)
    if not paths:
        raise NotFoundError(f"{folder} holds no summaries; copy summary.json there as NAME.json")
    return [_Committed(path, read_summary(path)) for path in paths]


def _draw(one: _Committed) -> None:
    drawn = pass_at_figure(one.run.first_seeds())
    if isinstance(drawn, Drawing):
        write_file(one.figure, f"{drawn.picture.svg.rstrip()}\n{one.stamp}\n".encode())


def _check(out: Path, text: str, committed: Sequence[_Committed]) -> int:
    """Name the files that differ from the summaries; return the exit code."""
    stale = [] if _content(out) == text else [out]
    stale += [
        one.figure
        for one in committed
        if one.run.sampling and not _content(one.figure).rstrip().endswith(one.stamp)
    ]
    for path in stale:
        print(f"{path} differs from the committed summaries; run: {_COMMAND}", file=sys.stderr)
    return 1 if stale else 0


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
