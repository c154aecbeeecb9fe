"""Types of data that has been read: questions with equations and answer, as text, and their places."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.data.redraw.template import Template

__all__ = ["Dataset", "Malformed", "Placed", "Row"]


@dataclass(frozen=True)
class Row:
    """One question with its equations (without the angle brackets) and its answer as text."""

    question: str
    steps: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Placed:
    """A row with its line number, or its position in an array, from 1."""

    line: int
    row: Row
    unit: str = "line"  # or "element"
    template: "Template | None" = None  # if the format says which numbers the equations use


@dataclass(frozen=True)
class Malformed:
    """An entry that is not a valid row: its position, and the reason."""

    line: int
    reason: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: {self.reason}"


@dataclass(frozen=True)
class Dataset:
    """Rows to evaluate on, and the entries that were left out."""

    name: str
    rows: tuple[Placed, ...]
    malformed: tuple[Malformed, ...] = ()
