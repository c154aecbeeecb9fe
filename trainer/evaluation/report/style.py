"""How figures look, and how a figure becomes bytes: PNG, SVG, and SVG that follows a page's theme."""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from latent.errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["GRID", "INK", "MUTED", "Look", "Picture", "looks", "render", "short", "theme_css"]

INK, MUTED, GRID, _PAPER = "#1f2328", "#69707a", "#dfe3e8", "#fffffe"
# Told apart by lightness as well as hue, for colour-blind readers: (name, light page, dark page).
_LEARNED = (
    ("learned-1", "#c44e00", "#ff9557"),
    ("learned-2", "#5b4bb5", "#b3a7fa"),
    ("learned-3", "#a8407e", "#f0a3d0"),
)
_BASELINES = (
    ("baseline-1", "#0067a8", "#62b6f2"),
    ("baseline-2", "#00805c", "#3ccb9f"),
    ("baseline-3", "#946800", "#e5b93c"),
    ("baseline-4", "#7a4a2b", "#cfa384"),
)
_THEME = (
    ("ink", INK, "#e6e8eb"),
    ("muted", MUTED, "#9aa3ad"),
    ("grid", GRID, "#343a42"),
    ("paper", _PAPER, "transparent"),
    *_LEARNED,
    *_BASELINES,
)
Dash = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]
_DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = "osD^vPX"
_LABEL_LENGTH = 34

_RC: dict[Any, Any] = {
    "svg.hashsalt": "gts",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a sampler's path may hold a dollar sign
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 9.5,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
}


@dataclass(frozen=True)
class Look:
    """How one series is drawn, the same in every figure of a report."""

    colour: str
    dash: Dash
    marker: str


@dataclass(frozen=True)
class Picture:
    """One figure's bytes."""

    name: str
    svg: str
    png: bytes

    @property
    def inline_svg(self) -> str:
        """The SVG for inside a page: its colours are the page's, its ids are its own."""
        text = self.svg[self.svg.index("<svg") :]
        for name, light, _ in _THEME:
            text = text.replace(light, f"var(--{name})")
        text = re.sub(r'\bid="', f'id="{self.name}-', text)
        text = text.replace("url(#", f"url(#{self.name}-")
        return text.replace('href="#', f'href="#{self.name}-').strip()


def looks(names: Sequence[str], learned: Sequence[str]) -> dict[str, Look]:
    """Give every series its look: warm and solid for learned samplers, cool for the others."""
    chosen: dict[str, Look] = {}
    for group, palette in (
        ([name for name in names if name in learned], _LEARNED),
        ([name for name in names if name not in learned], _BASELINES),
    ):
        for place, name in enumerate(group):
            offset = 0 if palette is _LEARNED else 1
            chosen[name] = Look(
                colour=palette[place % len(palette)][1],
                dash=_DASHES[(place + offset) % len(_DASHES)],
                marker=_MARKERS[(place + 3 * offset) % len(_MARKERS)],
            )
    return chosen


def short(label: str) -> str:
    """Make a label fit a legend: printable, and its end where it is too long."""
    text = "".join(char if char.isprintable() else "?" for char in label)
    return text if len(text) <= _LABEL_LENGTH else "…" + text[1 - _LABEL_LENGTH :]


def theme_css() -> str:
    """Give the colours as CSS variables, for light and for dark pages."""
    light = "".join(f"--{name}:{value};" for name, value, _ in _THEME if name != "paper")
    dark = "".join(f"--{name}:{value};" for name, _, value in _THEME if name != "paper")
    return (
        f":root{{--paper:transparent;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )


def render(
    name: str,
    size: tuple[float, float],
    shape: tuple[int, int],
    draw: Callable[["Figure", "list[Axes]"], None],
    **grid: Any,
) -> Picture:
    """Let `draw` fill a figure of rows × columns panels; give its bytes, the same every time."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError("figures need matplotlib: pip install 'gts[train]'") from error
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        # A browser has glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained", facecolor=_PAPER)
        FigureCanvasAgg(figure)
        panels = figure.subplots(*shape, squeeze=False, **grid)
        draw(figure, list(panels.flat))
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # it is laid out; doing it again is half of the time
        figure.savefig(png, format="png", dpi=144, metadata={"Software": None})
    return Picture(name=name, svg=svg.getvalue(), png=png.getvalue())
