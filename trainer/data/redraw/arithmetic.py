"""Exact arithmetic over expressions whose leaves may be numbers of a question. Knows nothing of text.

An expression is unfolded into equations of one binary operation each, in the order of evaluation.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = [
    "Binary",
    "Constant",
    "Expression",
    "Result",
    "Slot",
    "Solution",
    "UnsolvableError",
    "format_number",
    "leaves",
    "parse_infix",
    "parse_prefix",
    "unfold",
]

MAX_DECIMALS = 3
_MAX_TOKENS = 200  # of an expression; longer ones would exhaust the stack
_NUMBER = re.compile(r"-?\d{1,28}(?:\.\d{1,28})?", re.ASCII)
_SLOT = re.compile(r"number(\d{1,3})", re.ASCII)
_TOKEN = re.compile(r"\d+(?:\.\d+)?|\.\d+|[-+*/()]", re.ASCII)


class UnsolvableError(ValueError):
    """A division by zero, or a value that needs more than `MAX_DECIMALS` decimals."""


@dataclass(frozen=True)
class Constant:
    """A number that stays as it is."""

    value: Fraction


@dataclass(frozen=True)
class Slot:
    """A number of the question, times `scale` (1/100 for a percentage written as a share)."""

    index: int
    scale: Fraction = Fraction(1)


@dataclass(frozen=True)
class Result:
    """The result of an earlier equation of the same problem."""

    index: int


@dataclass(frozen=True)
class Binary:
    """One operation, `+`, `-`, `*` or `/`."""

    operator: str
    left: "Expression"
    right: "Expression"


Leaf = Constant | Slot | Result
Expression = Leaf | Binary


@dataclass(frozen=True)
class Solution:
    """The value of an expression and the binary equations that lead to it."""

    value: Fraction
    steps: tuple[str, ...]
    values: tuple[Fraction, ...]  # result of each step


def format_number(value: Fraction) -> str:
    """Write a number without exponent or trailing zeros; raise if it has too many decimals."""
    if value.denominator == 1:
        return str(value.numerator)
    scaled = value * 10**MAX_DECIMALS
    if scaled.denominator != 1:
        raise UnsolvableError(f"{value} has more than {MAX_DECIMALS} decimals")
    sign = "-" if value < 0 else ""
    digits = str(abs(scaled.numerator)).rjust(MAX_DECIMALS + 1, "0")
    return f"{sign}{digits[:-MAX_DECIMALS]}.{digits[-MAX_DECIMALS:].rstrip('0')}"


def parse_infix(text: str) -> Expression:
    """Parse `2*(3+4)-1` into an expression of constants; raise ValueError if it is malformed."""
    compact = text.replace(" ", "")
    tokens: list[str] = _TOKEN.findall(compact)
    if "".join(tokens) != compact or not 0 < len(tokens) <= _MAX_TOKENS:
        raise ValueError(f"not an arithmetic expression: {text!r}")
    position = 0

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def take() -> str:
        nonlocal position
        position += 1
        return tokens[position - 1]

    def chain(operators: str, operand: Callable[[], Expression]) -> Expression:
        node = operand()
        while peek() and peek() in operators:
            operator = take()
            node = Binary(operator, node, operand())
        return node

    def atom() -> Expression:
        if peek() == "(":
            take()
            node = total()
            if peek() != ")":
                raise ValueError(f"unbalanced parenthesis in {text!r}")
            take()
            return node
        if not peek() or not (peek()[0].isdigit() or peek()[0] == "."):
            raise ValueError(f"a number is missing in {text!r}")
        return Constant(Fraction(take()))

    def product() -> Expression:
        return chain("*/", atom)

    def total() -> Expression:
        return chain("+-", product)

    node = total()
    if position != len(tokens):
        raise ValueError(f"unexpected {peek()!r} in {text!r}")
    return node


def parse_prefix(text: str) -> Expression:
    """Parse `- number0 * number1 7.0` (slots are `number<i>`); raise ValueError if malformed."""
    tokens = text.split()
    if len(tokens) > _MAX_TOKENS:
        raise ValueError(f"the equation has more than {_MAX_TOKENS} parts")

    def parse(position: int) -> tuple[Expression, int]:
        if position >= len(tokens):
            raise ValueError(f"an operand is missing in {text!r}")
        token = tokens[position]
        if token in ("+", "-", "*", "/"):
            left, after = parse(position + 1)
            right, after = parse(after)
            return Binary(token, left, right), after
        slot = _SLOT.fullmatch(token)
        if slot is not None:
            return Slot(int(slot[1])), position + 1
        if not _NUMBER.fullmatch(token):
            raise ValueError(f"{token[:40]!r} is no number in {text[:80]!r}")
        return Constant(Fraction(token)), position + 1

    node, end = parse(0)
    if end != len(tokens):
        raise ValueError(f"unexpected {tokens[end]!r} in {text!r}")
    return node


def leaves(node: Expression) -> list[Leaf]:
    """Return the leaves from left to right."""
    if isinstance(node, Binary):
        return leaves(node.left) + leaves(node.right)
    return [node]


def unfold(node: Expression, numbers: Sequence[Fraction], results: Sequence[Fraction]) -> Solution:
    """Evaluate an expression; `numbers` fill its slots, `results` are of the equations before it."""
    steps: list[str] = []
    values: list[Fraction] = []

    def record(operator: str, left: Fraction, right: Fraction) -> Fraction:
        value = _apply(operator, left, right)
        if not (operator in "*/" and right == 1):  # multiplying by one is no step
            text = f"{format_number(left)}{operator}{format_number(right)}={format_number(value)}"
            steps.append(text)
            values.append(value)
        return value

    def evaluate(part: Expression) -> Fraction:
        if isinstance(part, Constant):
            return part.value
        if isinstance(part, Slot):
            return numbers[part.index] * part.scale
        if isinstance(part, Result):
            return results[part.index]
        if part.operator in "+-":
            left = evaluate(part.left)
            return record(part.operator, left, evaluate(part.right))
        factors = [(operator, evaluate(one)) for operator, one in _factors(part)]
        value = factors[0][1]
        for operator, factor in _whole_order(factors)[1:]:
            value = record(operator, value, factor)
        return value

    value = evaluate(node)
    format_number(value)
    return Solution(value, tuple(steps), tuple(values))


def _apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if right == 0:
        raise UnsolvableError("division by zero")
    return left / right


def _factors(node: Expression) -> list[tuple[str, Expression]]:
    """Flatten a product into its factors, each with `*` or `/`; the first always has `*`."""
    if not isinstance(node, Binary) or node.operator not in "*/":
        return [("*", node)]
    right = _factors(node.right)
    if node.operator == "/":
        right = [("/" if operator == "*" else "*", factor) for operator, factor in right]
    return _factors(node.left) + right


def _whole_order(factors: list[tuple[str, Fraction]]) -> list[tuple[str, Fraction]]:
    """Put divisions last if a quotient on the way would not be whole: 2/3*105 is 2*105/3."""
    value = Fraction(1)
    for operator, factor in factors:
        value = _apply(operator, value, factor)
        if value.denominator != 1:
            return sorted(factors, key=lambda item: item[0] == "/")
    return factors
