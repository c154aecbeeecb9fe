"""Generates plain sums to practise: one or two operations on numbers like those of word problems."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from trainer.data.redraw.arithmetic import Binary, Constant, Expression, unfold
from trainer.data.rows import Row

__all__ = ["Drills", "draw_drill"]

_FORMS = (
    "What is {}?",
    "What is {}?",
    "Calculate {}.",
    "Compute {}.",
    "How much is {}?",
    "{} = ?",
    "{}",
    "Work out {}.",
    "Find {}.",
)
_SPOKEN = {
    "+": ("{} plus {}", "the sum of {} and {}", "{} and {} together"),
    "-": ("{} minus {}", "the difference of {} and {}"),
    "*": ("{} times {}", "the product of {} and {}", "{} multiplied by {}"),
    "/": ("{} divided by {}",),
}
_SPOKEN_SHARE = 0.3
_CHAIN_SHARE = 0.2


@dataclass(frozen=True)
class Drills:
    """The generator in the interface of a template."""

    key: str = "drills"
    can_redraw: bool = True

    def original(self) -> Row:
        """Return the first drill."""
        return self.draw(random.Random("drills"))

    def draw(self, rng: random.Random) -> Row:
        """Draw a drill."""
        return draw_drill(rng)


def draw_drill(rng: random.Random) -> Row:
    """Draw a sum, difference, product, quotient or a chain of two of them."""
    if rng.random() < _CHAIN_SHARE:
        return _row(*_draw_chain(rng), rng)
    operator, left, right = _draw_pair(rng)
    if rng.random() < _SPOKEN_SHARE:
        text = rng.choice(_SPOKEN[operator]).format(left, right)
    else:
        gap = rng.choice(("", " ", " "))
        text = f"{left}{gap}{_sign(operator, rng)}{gap}{right}"
    return _row(text, _binary(operator, left, right), rng)


def _row(text: str, expression: Expression, rng: random.Random) -> Row:
    question = rng.choice(_FORMS).format(text)
    solution = unfold(expression, (), ())
    return Row(question[0].upper() + question[1:], solution.steps, str(solution.value))


def _sign(operator: str, rng: random.Random) -> str:
    return {"*": rng.choice("*×x"), "/": rng.choice("/÷")}.get(operator, operator)


def _binary(operator: str, left: int, right: int) -> Binary:
    return Binary(operator, Constant(Fraction(left)), Constant(Fraction(right)))


def _sized(rng: random.Random) -> int:
    """Draw a number of one to four digits; two and three are the most common."""
    digits = rng.choices((1, 2, 3, 4), weights=(1, 5, 4, 1))[0]
    return rng.randint(max(2, 10 ** (digits - 1)), 10**digits - 1)


def _draw_sum(rng: random.Random) -> tuple[int, int]:
    return _sized(rng), _sized(rng)


def _draw_difference(rng: random.Random) -> tuple[int, int]:
    low, high = sorted((_sized(rng), _sized(rng)))
    if rng.random() < 0.5:  # near each other, and with a borrow: 51 - 49
        low = max(1, high - rng.randint(1, 99))
    return (high, low) if high > low else (high + 1, low)


def _draw_product(rng: random.Random) -> tuple[int, int]:
    kind = rng.random()
    if kind < 0.4:
        pair = [rng.randint(2, 12), rng.randint(2, 12)]
    elif kind < 0.8:
        pair = [rng.randint(2, 12), rng.randint(11, 99)]
    elif kind < 0.92:
        pair = [rng.randint(11, 60), rng.randint(11, 60)]
    else:
        pair = [rng.randint(2, 9), rng.randint(100, 999)]
    rng.shuffle(pair)
    return pair[0], pair[1]


def _draw_quotient(rng: random.Random) -> tuple[int, int]:
    divisor = rng.randint(2, 12) if rng.random() < 0.75 else rng.randint(13, 60)
    quotient = rng.randint(2, 12) if rng.random() < 0.5 else rng.randint(11, 120)
    return divisor * quotient, divisor


_PAIRS: dict[str, Callable[[random.Random], tuple[int, int]]] = {
    "+": _draw_sum,
    "-": _draw_difference,
    "*": _draw_product,
    "/": _draw_quotient,
}


def _draw_pair(rng: random.Random) -> tuple[str, int, int]:
    operator = rng.choices("+-*/", weights=(25, 35, 22, 18))[0]
    return operator, *_PAIRS[operator](rng)


def _draw_chain(rng: random.Random) -> tuple[str, Expression]:
    """Draw `a + b - c`, `a * b + c` or `(a - b) / c`-like chains with whole, positive results."""
    while True:
        operator, left, right = _draw_pair(rng)
        first = _binary(operator, left, right)
        value = int(unfold(first, (), ()).value)
        if rng.random() < 0.3:
            divisors = [one for one in range(2, 13) if value % one == 0]
            if not divisors or value > 2000:
                continue
            then, third = "/", rng.choice(divisors)
        else:
            then, third = rng.choice("++-"), _sized(rng)
            if then == "-" and third >= value:
                continue
        inner = f"{left} {operator} {right}"
        text = f"({inner}) {then} {third}" if then == "/" else f"{inner} {then} {third}"
        return text, Binary(then, first, Constant(Fraction(third)))
