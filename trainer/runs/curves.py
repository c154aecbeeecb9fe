"""Curves of a training run against its steps, in the look of an evaluation's report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainer.runs.pictures import BASELINES, LEARNED, MUTED, WIDTH, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "CurvePanel", "curve", "draw_curves"]

_PANEL_HEIGHT = 2.4  # inches
# A marker at every point only while the points can be told apart.
_MAX_MARKED = 60


@dataclass(frozen=True)
class Curve:
    """One measure at the steps where the log has it."""

    label: str
    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True)
class CurvePanel:
    """Curves that share a y-axis; its name is in words, with the usual short one in brackets."""

    ylabel: str
    curves: Sequence[Curve]
    scale: Literal["linear", "log"] = "linear"
    is_share: bool = False  # from 0 to 1, drawn as per cent
    is_ordered: bool = (
        False  # the curves are places in a sequence: from the first colour to the last
    )


def curve(records: Sequence[dict[str, Any]], name: str, label: str) -> Curve:
    """Read a measure from the records of a log that have it."""
    own = [record for record in records if name in record]
    return Curve(label, [record["step"] for record in own], [record[name] for record in own])


def draw_curves(
    folder: Path, name: str, panels: Sequence[CurvePanel], stage_ends: Sequence[int] = ()
) -> list[Path]:
    """Write NAME.png and NAME.svg, panels one above the other, and return the paths.

    A vertical line marks the end of each stage.
    """

    def draw(figure: "Figure", axes: "list[Axes]") -> None:
        for one, panel in zip(axes, panels, strict=True):
            for end in stage_ends:
                one.axvline(end, color=MUTED, linewidth=0.8, linestyle=":")
            _fill(one, panel)
        axes[-1].set_xlabel("training step")
        figure.align_ylabels()

    size = (WIDTH, _PANEL_HEIGHT * len(panels) + 0.5)
    return render(name, size, (len(panels), 1), draw, sharex=True).save(folder)


def _fill(axes: "Axes", panel: CurvePanel) -> None:
    shown = [each for each in panel.curves if each.steps]
    for each, colour in zip(shown, _colours(len(shown), panel.is_ordered), strict=True):
        axes.plot(
            list(each.steps),
            [value * 100 if panel.is_share else value for value in each.values],
            label=each.label,
            color=colour,
            linewidth=1.2,
            marker="o" if len(each.steps) <= _MAX_MARKED else None,
            markersize=3,
        )
    axes.set_ylabel(panel.ylabel)
    axes.set_yscale(panel.scale)
    if panel.scale == "log":
        from matplotlib.ticker import LogFormatter

        # The usual formatter writes powers in TeX, which is off.
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
    if panel.is_share:
        axes.set_ylim(-3, 103)
    if len(shown) > 1:
        # Beside the panel: the curves use all of it.
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)


def _colours(count: int, is_ordered: bool) -> list[Any]:
    plain = [light for _, light, _ in (LEARNED[0], *BASELINES, *LEARNED[1:])]
    if not is_ordered:
        return [plain[place % len(plain)] for place in range(count)]
    from matplotlib.colors import LinearSegmentedColormap

    ends = [light for _, light, _ in (*BASELINES[:3], LEARNED[0])]
    between = LinearSegmentedColormap.from_list("sequence", ends)
    return [between(place / max(count - 1, 1)) for place in range(count)]
