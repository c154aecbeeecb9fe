"""What fills the panels of a report's figures, and its figures inside a page.

The SVG inside a page takes its colours from the page's theme. `trainer.runs.pictures` has the look.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup

from trainer.evaluation.statistics import Interval
from trainer.evaluation.summary import Series
from trainer.runs.pictures import BASELINES, LEARNED, MUTED, THEME, WIDTH, Picture, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Absent",
    "Drawing",
    "Panel",
    "SeriesStyle",
    "budget_axis",
    "draw_baseline",
    "draw_series",
    "legend",
    "legend_rows",
    "render_panels",
    "series_styles",
    "shorten",
    "theme_css",
]

_BASELINE = "deterministic"
Dash = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]
_DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = "osD^vPX"
_LABEL_LENGTH = 34
_LEGEND_WIDTH = 100  # characters per row of a full-width legend


@dataclass(frozen=True)
class SeriesStyle:
    """Line style of one series, the same in every figure of a report."""

    colour: str
    dash: Dash
    marker: str


@dataclass(frozen=True)
class Panel:
    """Curves against the budget in one panel of a figure."""

    title: str
    curves: Sequence[tuple[str, Series]]  # with the names of their styles
    accuracy: Interval | None = None  # of the deterministic trajectory, drawn as a horizontal line


@dataclass(frozen=True)
class Drawing:
    """A figure with its texts."""

    title: str
    caption: str
    alt: str
    picture: Picture

    @property
    def inline_svg(self) -> Markup:
        """The SVG for inside a page: colours as CSS variables, ids unique to this figure."""
        name, svg = self.picture.name, self.picture.svg
        text = svg[svg.index("<svg") :]
        for variable, light, _ in THEME:
            text = text.replace(light, f"var(--{variable})")
        text = re.sub(r'\bid="', f'id="{name}-', text)
        text = text.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-').strip()
        label = Markup('<svg role="img" aria-label="{}" ').format(self.alt)
        return Markup(text.replace("<svg ", label, 1))


@dataclass(frozen=True)
class Absent:
    """A figure that this run has no data for."""

    title: str
    reason: str


def series_styles(names: Sequence[str], learned: Sequence[str]) -> dict[str, SeriesStyle]:
    """Style of each series: warm colours for learned samplers, cool ones for the others."""
    chosen: dict[str, SeriesStyle] = {}
    for group, palette in (
        ([name for name in names if name in learned], LEARNED),
        ([name for name in names if name not in learned], BASELINES),
    ):
        for place, name in enumerate(group):
            offset = 0 if palette is LEARNED else 1
            chosen[name] = SeriesStyle(
                colour=palette[place % len(palette)][1],
                dash=_DASHES[(place + offset) % len(_DASHES)],
                marker=_MARKERS[(place + 3 * offset) % len(_MARKERS)],
            )
    return chosen


def shorten(label: str) -> str:
    """Make a label fit a legend: printable characters, and only the end of a long one."""
    text = "".join(char if char.isprintable() else "?" for char in label)
    return text if len(text) <= _LABEL_LENGTH else "…" + text[1 - _LABEL_LENGTH :]


def theme_css() -> Markup:
    """Colours as CSS variables, for light and for dark pages."""
    light = "".join(f"--{name}:{value};" for name, value, _ in THEME if name != "paper")
    dark = "".join(f"--{name}:{value};" for name, _, value in THEME if name != "paper")
    return Markup(
        f":root{{--paper:transparent;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )


def render_panels(
    name: str,
    shown: Sequence[Panel],
    styles: Mapping[str, SeriesStyle],
    *,
    ylabel: str,
    heights: tuple[float, float],
    max_columns: int = 1,
    scale: float = 100.0,
) -> Picture:
    """Render a grid of panels; `heights` in inches: of a row of panels, and added to all rows."""
    columns = min(max_columns, len(shown))
    rows = -(-len(shown) // columns)
    is_narrow = max_columns > 1

    def draw(figure: "Figure", panels: "list[Axes]") -> None:
        for axes, panel in zip(panels, shown, strict=False):
            if panel.accuracy is not None:
                draw_baseline(axes, panel.accuracy)
            for label, series in panel.curves:
                draw_series(axes, series, styles[label], scale=scale)
            budgets = (n for _, series in panel.curves for n in series)
            budget_axis(axes, budgets, is_narrow=is_narrow)
            axes.set_title(shorten(panel.title))
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        if is_narrow:
            figure.supylabel(ylabel, fontsize=9)
        else:
            panels[0].set_ylabel(ylabel)
        if scale == 1.0:
            panels[0].set_ylim(bottom=0)
        legend(figure, styles, has_baseline=shown[0].accuracy is not None)

    height = heights[0] * rows + heights[1] + 0.2 * legend_rows(styles)
    return render(name, (WIDTH, height), (rows, columns), draw, sharey=is_narrow)


def draw_series(axes: "Axes", series: Series, style: SeriesStyle, *, scale: float = 100.0) -> None:
    """Draw a measure against the budget, with its 95% band."""
    at = list(series)
    points = list(series.values())
    axes.fill_between(
        at,
        [point.low * scale for point in points],
        [point.high * scale for point in points],
        color=style.colour,
        alpha=0.14,
        linewidth=0,
    )
    axes.plot(
        at,
        [point.value * scale for point in points],
        color=style.colour,
        linestyle=style.dash,
        marker=style.marker,
    )


def draw_baseline(axes: "Axes", accuracy: Interval) -> None:
    """Draw the deterministic accuracy as a horizontal line."""
    axes.axhline(accuracy.value * 100, color=MUTED, linewidth=1.1, linestyle=(0, (1, 1.5)))


def budget_axis(axes: "Axes", budgets: Iterable[int], *, is_narrow: bool = False) -> None:
    """Make x the budget on a log₂ scale; a narrow panel labels every second of many budgets."""
    at = sorted(set(budgets))
    if is_narrow and len(at) > 5:
        at = at[::2]
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [str(budget) for budget in at])
    axes.minorticks_off()
    axes.set_xlabel("budget N")


def legend(
    figure: "Figure", styles: Mapping[str, SeriesStyle], *, has_baseline: bool = False
) -> None:
    """Draw one legend below all panels."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=style.colour, linestyle=style.dash, marker=style.marker)
        for style in styles.values()
    ]
    labels = [shorten(name) for name in styles]
    if has_baseline:
        handles.append(Line2D([], [], color=MUTED, linewidth=1.1, linestyle=(0, (1, 1.5))))
        labels.append(_BASELINE)
    columns = _legend_columns(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3.2)


def legend_rows(names: Iterable[str]) -> int:
    """Number of rows of a legend with these names and a baseline."""
    labels = [*(shorten(name) for name in names), _BASELINE]
    return -(-len(labels) // _legend_columns(labels))


def _legend_columns(labels: Sequence[str]) -> int:
    widest = max(len(label) for label in labels) + 8
    return max(1, min(len(labels), _LEGEND_WIDTH // widest))
