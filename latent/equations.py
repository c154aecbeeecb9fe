"""Checks the equations that a trajectory writes, such as 12+5=17. Needs no torch."""

import re
from fractions import Fraction
from functools import lru_cache

__all__ = ["are_equations_true"]

_NUMBER = r"\d+(?:\.\d+)?"
_GAP = r"[^\S\n]*"  # an equation stands on one line
# Not inside a longer number or word, and not after a sign that would change its meaning.
_EQUATION = re.compile(
    rf"(?<![\w.)+*/-])({_NUMBER}(?:{_GAP}[-+*/]{_GAP}{_NUMBER})+){_GAP}={_GAP}(-?{_NUMBER})"
    rf"(?![\w.(]|{_GAP}[-+*/])"
)
_TERM = re.compile(rf"([-+*/])\s*({_NUMBER})")


@lru_cache(maxsize=4096)
def are_equations_true(text: str) -> bool:
    """Whether every sum, difference, product or quotient that the text states is right.

    A result with decimals may be rounded to as many as are written. A text without equations has no
    wrong one.
    """
    return all(_is_true(left, right) for left, right in _EQUATION.findall(text))


def _is_true(left: str, right: str) -> bool:
    value = _value(left)
    if value is None:
        return False
    _, _, decimals = right.partition(".")
    half_a_digit = Fraction(1, 2 * 10 ** len(decimals)) if decimals else Fraction(0)
    return abs(value - Fraction(right)) <= half_a_digit


def _value(text: str) -> Fraction | None:
    """Value of numbers joined by signs, products before sums; None if it divides by zero."""
    total, product = Fraction(0), None
    for sign, number in _TERM.findall(f"+{text}"):
        value = Fraction(number)
        if sign in "+-":
            total += product or 0
            product = value if sign == "+" else -value
        elif sign == "*":
            assert product is not None
            product *= value
        elif value == 0:
            return None
        else:
            assert product is not None
            product /= value
    return total + (product or 0)
