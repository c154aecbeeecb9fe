"""The look of all figures: colours, line widths and fonts; renders a figure as PNG and SVG."""

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latent.errors import UnsupportedError
from trainer.runs.output_folder import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BASELINES", "INK", "LEARNED", "MUTED", "THEME", "WIDTH", "Picture", "render"]

WIDTH = 8.6  # inches
INK, MUTED, _GRID, _PAPER = "#1f2328", "#69707a", "#dfe3e8", "#fffffe"
# (name, colour on a light page, on a dark page). They differ in lightness as well as hue, for
# colour-blind readers.
LEARNED = (
    ("learned-1", "#c44e00", "#ff9557"),
    ("learned-2", "#5b4bb5", "#b3a7fa"),
    ("learned-3", "#a8407e", "#f0a3d0"),
)
BASELINES = (
    ("baseline-1", "#0067a8", "#62b6f2"),
    ("baseline-2", "#00805c", "#3ccb9f"),
    ("baseline-3", "#946800", "#e5b93c"),
    ("baseline-4", "#7a4a2b", "#cfa384"),
)
THEME = (
    ("ink", INK, "#e6e8eb"),
    ("muted", MUTED, "#9aa3ad"),
    ("grid", _GRID, "#343a42"),
    ("paper", _PAPER, "transparent"),
    *LEARNED,
    *BASELINES,
)
_RC: dict[Any, Any] = {
    "svg.hashsalt": "gts",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a sampler's path may contain a dollar sign
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
    "grid.color": _GRID,
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
class Picture:
    """A rendered figure."""

    name: str
    svg: str
    png: bytes

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.png and NAME.svg; return the paths."""
        png, svg = folder / f"{self.name}.png", folder / f"{self.name}.svg"
        write_file(png, self.png)
        write_file(svg, self.svg.encode())
        return [png, svg]


def render(
    name: str,
    size: tuple[float, float],
    shape: tuple[int, int],
    draw: Callable[["Figure", "list[Axes]"], None],
    **grid: Any,
) -> Picture:
    """Render a figure of rows × columns panels that `draw` fills; the bytes are reproducible."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError("figures need matplotlib: pip install 'gts[train]'") from error
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        # The browser has glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained", facecolor=_PAPER)
        FigureCanvasAgg(figure)
        panels = figure.subplots(*shape, squeeze=False, **grid)
        draw(figure, list(panels.flat))
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.set_layout_engine(
            "none"
        )  # already laid out; doing it again would take half of the time
        figure.savefig(png, format="png", dpi=144, metadata={"Software": None})
    return Picture(name=name, svg=svg.getvalue(), png=png.getvalue())
