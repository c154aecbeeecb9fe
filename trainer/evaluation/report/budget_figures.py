"""Figures against the budget: pass@N, unique answers, votes."""

from typing import TYPE_CHECKING

from trainer.evaluation.report.drawing import (
    DETERMINISTIC,
    WIDTH,
    Absent,
    Drawing,
    final_values,
    run_looks,
)
from trainer.evaluation.report.findings import Interval, Run, Series
from trainer.evaluation.report.panels import (
    budget_axis,
    draw_baseline,
    draw_series,
    legend,
    legend_rows,
)
from trainer.evaluation.report.style import render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["pass_at_figure", "unique_figure", "votes_figure"]

_VOTES = ("majority", "confidence", "best", "centroid")
_NO_SAMPLES = "no sampler that draws was measured"


def pass_at_figure(run: Run) -> Drawing | Absent:
    """Draw pass@N against N."""
    title = "pass@N"
    if not run.sampling:
        return Absent(title, _NO_SAMPLES)
    styles = run_looks(run)

    def draw(figure: "Figure", panels: "list[Axes]") -> None:
        (axes,) = panels
        draw_baseline(axes, run.accuracy)
        for one in run.sampling:
            draw_series(axes, one.pass_at, styles[one.spec])
        budget_axis(axes, (n for one in run.sampling for n in one.pass_at))
        axes.set_ylabel("questions with a right answer, %")
        legend(figure, styles, baseline=DETERMINISTIC)

    return Drawing(
        title,
        "The share of questions with at least one right answer among N trajectories (unbiased over "
        "subsets), with 95% bands; at N = 1 it is the accuracy of one sample, and the dotted line "
        "is that of the deterministic trajectory.",
        f"Line chart of pass@N against N. {final_values(run.sampling)}",
        render("pass-at", (WIDTH, 4.0 + 0.2 * legend_rows(styles)), (1, 1), draw),
    )


def unique_figure(run: Run) -> Drawing | Absent:
    """Draw the number of different answers against N."""
    title = "Unique answers"
    if not run.sampling:
        return Absent(title, _NO_SAMPLES)
    styles = run_looks(run)

    def draw(figure: "Figure", panels: "list[Axes]") -> None:
        (axes,) = panels
        for one in run.sampling:
            draw_series(axes, one.unique, styles[one.spec], scale=1.0)
        budget_axis(axes, (n for one in run.sampling for n in one.unique))
        axes.set_ylabel("different answers per question")
        axes.set_ylim(bottom=0)
        legend(figure, styles)

    last = "; ".join(f"{one.spec} {_last(one.unique).value:.1f}" for one in run.sampling)
    return Drawing(
        title,
        "How many different answers N trajectories give to a question, on average; more is not "
        "better by itself.",
        f"Line chart of unique answers against N. At the largest N: {last}.",
        render("unique-answers", (WIDTH, 3.2 + 0.2 * legend_rows(styles)), (1, 1), draw),
    )


def votes_figure(run: Run) -> Drawing | Absent:
    """Draw the accuracy of each vote against N, a panel for each."""
    title = "Votes"
    names = [vote for vote in _VOTES if any(one.votes.get(vote) for one in run.sampling)]
    if not names:
        return Absent(title, _NO_SAMPLES)
    styles = run_looks(run)

    def draw(figure: "Figure", panels: "list[Axes]") -> None:
        for axes, vote in zip(panels, names, strict=True):
            voted = [(one.spec, one.votes[vote]) for one in run.sampling if one.votes.get(vote)]
            draw_baseline(axes, run.accuracy)
            for spec, series in voted:
                draw_series(axes, series, styles[spec])
            budget_axis(axes, (n for _, series in voted for n in series), is_narrow=True)
            axes.set_title(vote)
        figure.supylabel("questions answered right, %", fontsize=9)
        legend(figure, styles, baseline=DETERMINISTIC)

    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    majority = "; ".join(
        f"{one.spec} {_last(one.votes['majority']).value:.1%}"
        for one in run.sampling
        if one.votes.get("majority")
    )
    return Drawing(
        title,
        "The share of questions that each vote of N trajectories answers right, with 95% bands; "
        "the dotted line is the deterministic trajectory's.",
        f"Line charts of the accuracy of {', '.join(names)} against N. "
        f"Majority at the largest N: {majority or 'not measured'}.",
        render(
            "votes",
            (WIDTH, 2.5 * rows + 0.5 + 0.2 * legend_rows(styles)),
            (rows, columns),
            lambda figure, panels: draw(figure, _keep(panels, len(names))),
            sharey=True,
        ),
    )


def _keep(panels: "list[Axes]", count: int) -> "list[Axes]":
    """Hide the panels of a grid that nothing fills."""
    for axes in panels[count:]:
        axes.set_visible(False)
    return panels[:count]


def _last(series: Series) -> Interval:
    return series[max(series)]
