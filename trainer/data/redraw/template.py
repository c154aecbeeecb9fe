"""A word problem whose numbers can be drawn anew, with its equations recomputed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, Protocol

from trainer.data.redraw.arithmetic import Expression, UnsolvableError, format_number, unfold
from trainer.data.redraw.overlap import masked
from trainer.data.rows import Row

__all__ = ["Drawable", "Fixed", "Number", "NumberKind", "Template", "draw_like", "solve"]

MAX_TRIES = 60
# The share of numbers that stay as published, in the first and the last try: whole results are
# likelier if fewer numbers change.
FIRST_KEEP_SHARE, LAST_KEEP_SHARE = 0.05, 0.6
_MAX_VALUE = 10_000_000

NumberKind = Literal["plain", "percent", "fixed"]


class Drawable(Protocol):
    """A problem to train on. Problems with the same key have the same words."""

    @property
    def key(self) -> str:
        """The question with its numbers masked."""
        ...

    @property
    def can_redraw(self) -> bool:
        """Whether any number may change."""
        ...

    def original(self) -> Row:
        """Return the problem with its published numbers."""
        ...

    def draw(self, rng: random.Random) -> Row:
        """Return the problem with other numbers, or with its own if it has no other."""
        ...


@dataclass(frozen=True)
class Fixed:
    """A problem that keeps its numbers."""

    row: Row
    can_redraw: bool = False

    @property
    def key(self) -> str:
        """The question with its numbers masked."""
        return masked(self.row.question)

    def original(self) -> Row:
        """Return the row."""
        return self.row

    def draw(self, rng: random.Random) -> Row:
        """Return the row."""
        return self.row


@dataclass(frozen=True)
class Number:
    """A number of the question: its published value and how it is drawn and written."""

    value: Fraction
    kind: NumberKind = "plain"
    decimals: int = 0  # as written: 2 in "12.50"
    has_commas: bool = False

    def write(self, value: Fraction) -> str:
        """Write a value as this number is written in the question."""
        if self.decimals and value.denominator != 1:
            return f"{float(value):.{self.decimals}f}"
        return f"{value.numerator:,}" if self.has_commas else format_number(value)


@dataclass(frozen=True)
class Template:
    """Text pieces around numbers; `places[i]` is the number between pieces i and i+1."""

    key: str
    pieces: tuple[str, ...]
    places: tuple[int, ...]
    numbers: tuple[Number, ...]
    equations: tuple[Expression, ...]  # the result of the last is the answer

    @property
    def can_redraw(self) -> bool:
        """Whether any number may change."""
        return any(number.kind != "fixed" for number in self.numbers)

    def original(self) -> Row:
        """Return the problem with its published numbers."""
        row = self.filled([number.value for number in self.numbers])
        assert row is not None, "a template is made of a problem that can be solved"
        return row

    def filled(self, values: Sequence[Fraction]) -> Row | None:
        """Return the problem with these numbers; None if a result is not of the published kind.

        A result that was positive, or whole, must be so again.
        """
        try:
            published = self._published_results
            steps, results = _solved(self.equations, values)
        except UnsolvableError:
            return None
        for before, after in zip(published, results, strict=True):
            if after <= 0 < before or (before.denominator == 1 and after.denominator != 1):
                return None
        if results[-1] > _MAX_VALUE and results[-1] > published[-1]:
            return None
        return Row(self._text(values), steps, format_number(results[-1]))

    def draw(self, rng: random.Random) -> Row:
        """Draw numbers of like magnitude until the results are of the published kind."""
        if self.can_redraw:
            for attempt in range(MAX_TRIES):
                progress = attempt / MAX_TRIES
                keep_share = FIRST_KEEP_SHARE + (LAST_KEEP_SHARE - FIRST_KEEP_SHARE) * progress
                row = self.filled([_drawn(number, rng, keep_share) for number in self.numbers])
                if row is not None:
                    return row
        return self.original()

    @cached_property
    def _published_results(self) -> list[Fraction]:
        return _solved(self.equations, [number.value for number in self.numbers])[1]

    def _text(self, values: Sequence[Fraction]) -> str:
        text = self.pieces[0]
        for place, piece in zip(self.places, self.pieces[1:], strict=True):
            text += self.numbers[place].write(values[place]) + piece
        return text


def solve(equations: Sequence[Expression], numbers: Sequence[Fraction] = ()) -> tuple[str, ...]:
    """Return the binary steps of a chain of equations; raise UnsolvableError if there are none."""
    return _solved(equations, numbers)[0]


def _solved(
    equations: Sequence[Expression], numbers: Sequence[Fraction]
) -> tuple[tuple[str, ...], list[Fraction]]:
    """Return all steps, and the result of each equation; no step may be negative."""
    steps: list[str] = []
    results: list[Fraction] = []
    for equation in equations:
        solution = unfold(equation, numbers, results)
        if any(value < 0 for value in solution.values):
            raise UnsolvableError("a step has a negative result")
        # The same step may be part of two published equations; once is enough.
        steps += [step for step in solution.steps if step not in steps]
        results.append(solution.value)
    return tuple(steps), results


def _drawn(number: Number, rng: random.Random, keep_share: float) -> Fraction:
    if number.kind == "fixed" or rng.random() < keep_share:
        return number.value
    if number.kind == "percent":
        return Fraction(rng.randrange(1, 20) * 5 if rng.random() < 0.7 else rng.randrange(2, 99))
    if number.decimals:
        return _draw_decimal(number, rng)
    return Fraction(draw_like(int(number.value), rng))


def draw_like(value: int, rng: random.Random) -> int:
    """Draw a whole number of like magnitude and roundness; 0 and 1 stay (grammar needs them)."""
    if value < 2:
        return value
    if value <= 12:
        return rng.randint(2, max(10, min(20, 2 * value)))
    low, high = max(2, value // 3), value * 2
    for unit in (1000, 500, 100, 50, 10, 5):
        # Round numbers stay round in most draws: they are prices, distances, populations.
        if value % unit == 0 and value >= 2 * unit and rng.random() < 0.75:
            return unit * rng.randint(max(1, low // unit), high // unit)
    return rng.randint(low, high)


def _draw_decimal(number: Number, rng: random.Random) -> Fraction:
    unit = Fraction(1, 10**number.decimals)
    if number.decimals == 2 and (number.value * 100) % 5 == 0:
        unit *= rng.choice((5, 10, 25, 50))
    count = max(2, int(number.value / unit))
    return unit * rng.randint(max(1, count // 3), count * 2)
