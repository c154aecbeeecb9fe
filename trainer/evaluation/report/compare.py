"""Compares evaluations of several reasoners, datasets or samplers in one report."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from latent.errors import InputError
from trainer.evaluation.report.page import write_page
from trainer.evaluation.report.plotting import Absent, Drawing, Panel, render_panels, series_styles
from trainer.evaluation.report.tables import NOTHING, Cell, Table, decimal, parameters, percent
from trainer.evaluation.summary import SamplerResult, Summary, read_run
from trainer.runs.output_folder import claimed

__all__ = ["write_comparison"]


@dataclass(frozen=True)
class _Labelled:
    label: str
    run: Summary

    def sampler(self, spec: str) -> SamplerResult | None:
        return next((one for one in self.run.sampling if one.spec == spec), None)


def write_comparison(folders: Sequence[Path], out: Path) -> Path:
    """Write report.html and the figures of all runs into `out`; return the page's path."""
    runs = _read(folders)
    with claimed(out, "a comparison"):
        return write_page(
            out,
            "comparison.html.j2",
            [_by_run(runs), _by_sampler(runs)],
            title=f"{len(runs)} evaluations compared",
            headline=_headline(runs),
            overview=_overview(runs),
            tables=_measures(runs),
        )


def _read(folders: Sequence[Path]) -> list[_Labelled]:
    runs = [read_run(folder) for folder in folders]  # first, so that a missing folder is named
    if len({folder.resolve() for folder in folders}) < max(2, len(folders)):
        given = ", ".join(str(folder) for folder in folders)
        raise InputError(
            f"give two or more folders of gts evaluate, each once; got {given}", param="folders"
        )
    by_content = [f"{run.model.name} on {run.data.name}" for run in runs]
    by_name = [folder.resolve().name for folder in folders]
    by_path = [str(folder) for folder in folders]
    labels = next(
        names for names in (by_content, by_name, by_path) if len(set(names)) == len(names)
    )
    return [_Labelled(label, run) for label, run in zip(labels, runs, strict=True)]


def _headline(runs: Sequence[_Labelled]) -> str:
    deterministic = max(runs, key=lambda one: one.run.accuracy.value)
    sentences = [
        f"The highest deterministic accuracy is {deterministic.run.accuracy.value * 100:.1f}%, of "
        f"{deterministic.label}."
    ]
    ends = [
        (sampler.largest_pass_at.value, one.label, sampler)
        for one in runs
        for sampler in one.run.sampling
    ]
    if ends:
        value, label, sampler = max(ends, key=lambda end: end[0])
        sentences.append(
            f"The highest pass@N is {value * 100:.1f}% at N = {max(sampler.pass_at)}, of {label} with "
            f"{sampler.spec}."
        )
    return " ".join(sentences)


def _overview(runs: Sequence[_Labelled]) -> Table:
    rows = tuple(
        (
            Cell(one.label),
            percent(one.run.accuracy),
            Cell(f"{one.run.data.rows:,}"),
            Cell(str(len(one.run.data.malformed))),
            Cell(str(one.run.config.budget)),
            Cell(str(one.run.config.seed)),
            Cell(f"{one.run.seconds:,.0f}"),
            Cell(one.run.model.kind),
            Cell(parameters(one.run.model.parameters)),
            Cell(one.run.data.name),
        )
        for one in runs
    )
    head = ("run", "accuracy", "questions", "malformed", "budget", "seed", "seconds", "kind")
    note = "Accuracy is the deterministic trajectory's, in percent, with its 95% interval."
    return Table("Runs", note, (*head, "parameters", "data"), rows)


def _measures(runs: Sequence[_Labelled]) -> Iterable[Table]:
    """A table for each measure: a row per sampler, a column per run."""
    budgets = sorted({8, 32} | {one.run.config.budget for one in runs})
    measures: list[tuple[str, Callable[[SamplerResult], Cell]]] = [
        ("mean@1, %", lambda one: percent(one.pass_at.get(1))),
        *((f"pass@{n}, %", lambda one, n=n: percent(one.pass_at.get(n))) for n in budgets),
        *((f"majority@{n}, %", lambda one, n=n: percent(one.majority.get(n))) for n in budgets),
        ("SG", lambda one: decimal(one.gain)),
        ("SG > 0.5", lambda one: decimal(one.gain_rate)),
        ("JS, nats", lambda one: decimal(one.js, 3)),
        ("Unique answers at the largest N", lambda one: decimal(one.unique[max(one.unique)], 1)),
    ]
    for title, measure in measures:
        rows = []
        for spec in _specs(runs):
            found = [one.sampler(spec) for one in runs]
            rows.append((Cell(spec), *(measure(one) if one else NOTHING for one in found)))
        if any(cell != NOTHING for row in rows for cell in row[1:]):
            yield Table(title, "", ("sampler", *(one.label for one in runs)), tuple(rows))


def _specs(runs: Sequence[_Labelled]) -> list[str]:
    """Specs of all samplers except the deterministic one, in the order of first appearance."""
    return list(dict.fromkeys(one.spec for labelled in runs for one in labelled.run.sampling))


def _by_run(runs: Sequence[_Labelled]) -> Drawing | Absent:
    title = "pass@N of each run"
    panels = [
        Panel(one.label, [(s.spec, s.pass_at) for s in one.run.sampling], one.run.accuracy)
        for one in runs
        if one.run.sampling
    ]
    if not panels:
        return Absent(title, "no run has a sampler that draws")
    learned = [s.spec for one in runs for s in one.run.learned]
    caption = "pass@N with 95% bands, a panel for each run; dotted: the deterministic accuracy."
    return _draw("pass-at-by-run", title, caption, panels, _specs(runs), learned)


def _by_sampler(runs: Sequence[_Labelled]) -> Drawing | Absent:
    title = "pass@N of each sampler"
    members = {
        spec: [(one.label, found.pass_at) for one in runs if (found := one.sampler(spec))]
        for spec in _specs(runs)
    }
    panels = [Panel(spec, shared) for spec, shared in members.items() if len(shared) > 1]
    if not panels:
        return Absent(title, "no sampler is in two of the runs")
    caption = "The same curves, a panel for each sampler that two or more runs have."
    return _draw("pass-at-by-sampler", title, caption, panels, [one.label for one in runs], ())


def _draw(
    name: str,
    title: str,
    caption: str,
    panels: Sequence[Panel],
    labels: Sequence[str],
    learned: Sequence[str],
) -> Drawing:
    ends = "; ".join(
        f"{panel.title}, {label}: {series[max(series)].value:.1%}"
        for panel in panels
        for label, series in panel.curves
    )
    return Drawing(
        title,
        caption,
        f"Line charts of pass@N against N. At the largest N: {ends}.",
        render_panels(
            name,
            panels,
            series_styles(labels, learned),
            ylabel="pass@N, %",
            max_columns=3,
            heights=(2.7, 0.4),
        ),
    )
