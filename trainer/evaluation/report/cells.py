"""Tables of text, and how measured numbers become that text."""

from dataclasses import dataclass

from trainer.evaluation.report.findings import Interval

__all__ = ["NOTHING", "Cell", "Table", "decimal", "parameters", "percent", "points", "signed"]


@dataclass(frozen=True)
class Cell:
    """One cell: what it says, its interval or unit in smaller type, whether it stands out."""

    text: str
    detail: str = ""
    is_strong: bool = False


NOTHING = Cell("–")


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def percent(measured: Interval | None) -> Cell:
    """Show a share as a percentage with its interval."""
    if measured is None:
        return NOTHING
    return Cell(
        f"{measured.value * 100:.1f}", f"{measured.low * 100:.1f}–{measured.high * 100:.1f}"
    )


def decimal(measured: Interval | None, places: int = 2) -> Cell:
    """Show a plain number with its interval."""
    if measured is None:
        return NOTHING
    low, high = signed(measured.low, places), signed(measured.high, places)
    return Cell(signed(measured.value, places), f"{low} to {high}")


def points(difference: Interval, *, is_share: bool) -> Cell:
    """Show a difference with its sign: percentage points for shares, plain otherwise."""
    scale, places = (100.0, 1) if is_share else (1.0, 2)
    numbers = (difference.value * scale, difference.low * scale, difference.high * scale)
    value, low, high = (signed(number, places, plus=True) for number in numbers)
    return Cell(value, f"{low} to {high}", is_strong=difference.is_clear_of_zero)


def parameters(count: int) -> str:
    """Show a number of parameters in millions."""
    return f"{count / 1e6:,.2f} M" if count < 1e7 else f"{count / 1e6:,.0f} M"


def signed(number: float, places: int, *, plus: bool = False) -> str:
    """Format with a true minus sign, and no minus before a zero."""
    text = f"{number:+.{places}f}" if plus else f"{number:.{places}f}"
    if float(text) == 0:
        return f"{0:.{places}f}"
    return text.replace("-", "−")
