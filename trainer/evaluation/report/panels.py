"""What fills one panel of a figure: curves against the budget, intervals, violins, reliability."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainer.evaluation.report.findings import Calibration, Interval, Series
from trainer.evaluation.report.style import INK, MUTED, Look, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "budget_axis",
    "draw_baseline",
    "draw_counts",
    "draw_interval",
    "draw_reliability",
    "draw_series",
    "draw_violins",
    "legend",
    "legend_rows",
]

_LEGEND_WIDTH = 100  # characters in a row of a full-width figure's legend


def draw_series(axes: "Axes", series: Series, look: Look, *, scale: float = 100.0) -> None:
    """Draw a measure against the budget, with its 95% band."""
    at = list(series)
    points = list(series.values())
    axes.fill_between(
        at,
        [point.low * scale for point in points],
        [point.high * scale for point in points],
        color=look.colour,
        alpha=0.14,
        linewidth=0,
    )
    axes.plot(
        at,
        [point.value * scale for point in points],
        color=look.colour,
        linestyle=look.dash,
        marker=look.marker,
    )


def draw_baseline(axes: "Axes", accuracy: Interval) -> None:
    """Draw the deterministic accuracy as a level line."""
    axes.axhline(accuracy.value * 100, color=MUTED, linewidth=1.1, linestyle=(0, (1, 1.5)))


def budget_axis(axes: "Axes", budgets: Iterable[int], *, is_narrow: bool = False) -> None:
    """Make x the budget, in doublings; a narrow panel has room for every second of many."""
    at = sorted(set(budgets))
    if is_narrow and len(at) > 5:
        at = at[::2]
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [str(budget) for budget in at])
    axes.minorticks_off()
    axes.set_xlabel("budget N")


def draw_interval(axes: "Axes", place: int, measured: Interval, look: Look) -> None:
    """Draw one value with its interval as an upright bar."""
    axes.plot([place, place], [measured.low, measured.high], color=look.colour, linewidth=2)
    axes.plot([place], [measured.value], color=look.colour, marker=look.marker, markersize=7)


def draw_violins(axes: "Axes", questions: Sequence[Sequence[float]], look: Look) -> None:
    """Draw the spread over questions of a measure of each thought: (questions, thoughts)."""
    thoughts = [list(column) for column in zip(*questions, strict=True)]
    places = list(range(1, len(thoughts) + 1))
    drawn: Any = axes.violinplot(thoughts, places, widths=0.8, showextrema=False)
    for body in drawn["bodies"]:
        body.set(facecolor=look.colour, edgecolor=look.colour, alpha=0.35)
    medians = [sorted(column)[len(column) // 2] for column in thoughts]
    axes.plot(places, medians, color=look.colour, marker=look.marker, linewidth=0.9)
    axes.axhline(1.0, color=MUTED, linewidth=0.9, linestyle=":")
    axes.set_xticks(places)
    axes.set_xlabel("thought")


def draw_reliability(axes: "Axes", measured: Calibration, look: Look) -> None:
    """Draw how often the winner is right against its share; the diagonal is perfect."""
    filled = [one for one in measured.bins if one.count]
    axes.plot([0, 100], [0, 100], color=MUTED, linewidth=0.9, linestyle=":")
    axes.plot(
        [one.share * 100 for one in filled],
        [one.accuracy * 100 for one in filled],
        color=look.colour,
        linestyle=look.dash,
        marker=look.marker,
    )
    axes.set_xlim(-3, 103)
    axes.set_ylim(-3, 103)
    axes.set_xticks([0, 50, 100])
    axes.set_yticks([0, 25, 50, 75, 100])


def draw_counts(axes: "Axes", measured: Calibration, look: Look) -> None:
    """Draw how many questions each bin holds, with the number on its bar."""
    for one in measured.bins:
        middle, width = (one.low + one.high) * 50, (one.high - one.low) * 90
        axes.bar([middle], [one.count], width=width, color=look.colour, alpha=0.45)
        if one.count:
            axes.annotate(
                str(one.count),
                (middle, one.count),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=6,
                color=INK,
            )
    axes.set_xlabel("share of the winner, %")
    axes.tick_params(labelbottom=True)  # under every diagram, not only those of the last row
    axes.margins(y=0.25)
    axes.set_yticks([])
    axes.grid(visible=False)


def legend(figure: "Figure", looks: Mapping[str, Look], *, baseline: str | None = None) -> None:
    """Put one legend under all panels."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look.colour, linestyle=look.dash, marker=look.marker)
        for look in looks.values()
    ]
    labels = [short(name) for name in looks]
    if baseline is not None:
        handles.append(Line2D([], [], color=MUTED, linewidth=1.1, linestyle=(0, (1, 1.5))))
        labels.append(baseline)
    columns = _legend_columns(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3.2)


def legend_rows(names: Iterable[str]) -> int:
    """Tell how many rows a legend of these names takes, with one for a baseline."""
    labels = [*(short(name) for name in names), "deterministic"]
    return -(-len(labels) // _legend_columns(labels))


def _legend_columns(labels: Sequence[str]) -> int:
    widest = max(len(label) for label in labels) + 8
    return max(1, min(len(labels), _LEGEND_WIDTH // widest))
