"""Everyday problems of one to four operations, with many names and things.

A form of everyday.txt is text with {a}, {b} (people), {things}, {0:17}, {1:6} … (numbers, each with a
typical value), and the infix equations that solve it.
"""

import random
import re
from fractions import Fraction
from importlib.resources import files

from trainer.data.redraw.arithmetic import Binary, Constant, Expression, Result, Slot, parse_infix
from trainer.data.redraw.overlap import masked
from trainer.data.redraw.template import Number, Template
from trainer.data.rows import Row

__all__ = ["EverydayTemplate", "everyday_templates"]

_SHE = (
    "Anna Maria Emma Olivia Sofia Mia Lucy Grace Ruth Ella Priya Nadia Carla Helen Julia Kate Lena "
    "Fatima Yuki Chloe Sarah Amy Jenny Laura Nina Rosa Tina Zoe Alice Wendy"
).split()
_HE = (
    "Tom Ben Sam Peter John Lucas Omar David Leo Max Paul Jack Noah Ravi Ivan Hugo Carlos Ahmed Tim "
    "Mark Felix Oscar Adam Kevin Bob Mike Dan Eric George Luis"
).split()
_THINGS = (
    "apples oranges books marbles stickers pencils cookies cards coins balloons shells stamps "
    "eggs toys flowers candies pens cupcakes bananas tickets stones crayons pears muffins chocolates "
    "postcards beads lemons plums peaches sandwiches bottles buttons photos magazines"
).split()


class EverydayTemplate:
    """One form; `draw` fills in names and things as well as numbers."""

    can_redraw = True

    def __init__(self, form: str) -> None:
        """Parse one line of the forms."""
        text, _, equations = form.partition(" | ")
        self.key = masked(re.sub(r"{\d(?::(\d+))?}", "0", text))
        self._text = text
        self._equations = tuple(_parse(part) for part in equations.split(" ; "))
        found = dict(re.findall(r"{(\d):(\d+)}", text))
        self._numbers = tuple(
            Number(Fraction(found[str(index)]), "plain") for index in range(len(found))
        )

    def original(self) -> Row:
        """Return the form with its typical numbers, and names that follow from its text."""
        return self._dressed(random.Random(self.key)).original()

    def draw(self, rng: random.Random) -> Row:
        """Draw people, things and numbers."""
        return self._dressed(rng).draw(rng)

    def _dressed(self, rng: random.Random) -> Template:
        """Choose people and things."""
        parts = re.split(r"{(\d)(?::\d+)?}", self._worded(rng))
        return Template(
            key=self.key,
            pieces=tuple(parts[::2]),
            places=tuple(int(index) for index in parts[1::2]),
            numbers=self._numbers,
            equations=self._equations,
        )

    def _worded(self, rng: random.Random) -> str:
        is_she = rng.random() < 0.5
        first = rng.choice(_SHE if is_she else _HE)
        others = rng.sample([name for name in (*_SHE, *_HE) if name != first], 2)
        pronouns = ("she", "her", "her", "herself") if is_she else ("he", "his", "him", "himself")
        words = dict(zip(("he", "his", "him", "himself"), pronouns, strict=True))
        words |= {"He": words["he"].capitalize(), "a": first, "b": others[0], "c": others[1]}
        words["things"] = rng.choice(_THINGS)
        return re.sub(r"{([A-Za-z]+)}", lambda match: words[match[1]], self._text)


def everyday_templates() -> list[EverydayTemplate]:
    """Return all forms."""
    text = (files(__package__) / "everyday.txt").read_text(encoding="utf-8")
    return [EverydayTemplate(line) for line in text.splitlines() if not line.startswith("#")]


def _parse(text: str) -> Expression:
    """Parse an equation over n<i> and r<i>."""
    names = re.findall(r"[nr]\d", text)
    # The parser knows numbers only: each name becomes a number that no form has, until it is parsed.
    codes = {Fraction(10**9 + index): name for index, name in enumerate(names)}
    for code, name in codes.items():
        text = text.replace(name, str(code), 1)
    return _restore(parse_infix(text), codes)


def _restore(node: Expression, codes: dict[Fraction, str]) -> Expression:
    if isinstance(node, Binary):
        return Binary(node.operator, _restore(node.left, codes), _restore(node.right, codes))
    if isinstance(node, Constant) and node.value in codes:
        name = codes[node.value]
        return Slot(int(name[1:])) if name[0] == "n" else Result(int(name[1:]))
    return node
