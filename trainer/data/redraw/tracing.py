"""Makes templates of rows by tracing each operand of their equations to its origin.

An origin is a number written in the question (equal numbers are drawn together), the result of an
earlier equation, or a constant that language implies (twice, a week, a percentage). Where two origins
are possible, no number changes that could make the equations wrong.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction

from trainer.data.redraw.arithmetic import (
    Binary,
    Constant,
    Expression,
    Result,
    Slot,
    UnsolvableError,
    format_number,
    leaves,
    parse_infix,
    unfold,
)
from trainer.data.redraw.overlap import masked
from trainer.data.redraw.template import Drawable, Fixed, Number, NumberKind, Template, solve
from trainer.data.rows import Row

__all__ = ["UntracedError", "split_numbers", "trace_row"]

# A fraction, a mixed number, a clock time, an ordinal, a year and the days of a week keep their digits.
_NUMBER = re.compile(
    r"(?P<fixed>\d+\s\d+/\d+|\d+/\d+|\d+:\d\d|\d+(?:st|nd|rd|th|s)\b"
    r"|\d+(?=\s+days\s+(?:a|per|each|every)\s+week)"
    r"|\b(?:19|20)\d\d\b(?!\s*\w*(?:meters|feet|calories)))"
    r"|(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\d)\.\d+)(?P<percent>\s?%)?",
    re.ASCII,
)
_COUNT_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
).split()
_TENS = "thirty forty fifty sixty seventy eighty ninety".split()
# Numbers that words of a question imply.
_IMPLIED: dict[str, tuple[int, ...]] = {
    **{word: (value,) for value, word in enumerate(_COUNT_WORDS)},
    **{word: (10 * value,) for value, word in enumerate(_TENS, 3)},
    **dict.fromkeys(("half", "halves", "twice", "double", "doubled", "doubles"), (2,)),
    **dict.fromkeys(("pair", "pairs", "couple", "couples", "both", "twin", "twins"), (2,)),
    **dict.fromkeys(("third", "thirds", "triple", "tripled", "triples", "thrice"), (3,)),
    **dict.fromkeys(("triplets", "triangle", "triangular", "yard", "yards"), (3,)),
    **dict.fromkeys(("quarter", "quarters"), (4, 25)),
    **dict.fromkeys(("fourth", "fourths", "quarterly", "quadruple", "square", "rectangle"), (4,)),
    **dict.fromkeys(("fifth", "fifths", "weekday", "weekdays", "nickel", "nickels"), (5,)),
    **dict.fromkeys(("sixth", "sixths"), (6,)),
    **dict.fromkeys(("week", "weeks", "weekly", "daily", "seventh", "sevenths"), (7,)),
    **dict.fromkeys(("eighth", "eighths"), (8,)),
    **dict.fromkeys(("ninth", "ninths"), (9,)),
    **dict.fromkeys(("tenth", "tenths", "dime", "dimes", "decade", "decades"), (10,)),
    **dict.fromkeys(("dozen", "dozens", "foot", "feet", "inch", "inches"), (12,)),
    **dict.fromkeys(("ounce", "ounces", "pound", "pounds"), (16,)),
    **dict.fromkeys(("score", "scores"), (20,)),
    **dict.fromkeys(("day", "days"), (7, 24)),
    **dict.fromkeys(("month", "months", "monthly"), (4, 12, 30, 31)),
    **dict.fromkeys(("year", "years", "yearly", "annual", "annually"), (12, 52, 365)),
    **dict.fromkeys(("hour", "hours", "hourly", "minute", "minutes", "second", "seconds"), (60,)),
    **dict.fromkeys(("cent", "cents", "percent", "percentage", "hundred", "hundreds"), (100,)),
    **dict.fromkeys(
        ("thousand", "thousands", "kilometers", "km", "kilograms", "kg", "liters"), (1000,)
    ),
    **dict.fromkeys(("million", "millions"), (1_000_000,)),
}
# What needs no word in the question: "one more", there and back, shares, % and $ (100 cents).
_WORDLESS = frozenset(map(Fraction, (1, 2, 100))) | {
    *(Fraction(1, 2), Fraction(1, 4), Fraction(3, 4), Fraction(1, 10), Fraction(1, 100)),
    Fraction(3, 2),
}
# What a question may imply by other words than those above.
_COMMON = _WORDLESS | frozenset(map(Fraction, (7, 10, 24, 30, 31, 52, 60, 365, 1000)))
# Any small number may count what is only listed: "Ann, Ben, Carl and Dora" are 4 people.
_MAX_COUNT = 12


class UntracedError(ValueError):
    """An operand of an equation has no origin, or it can't be decided which."""


def trace_row(row: Row) -> Drawable | None:
    """Make a template of a row; None if its equations are wrong or can't be written as decimals.

    A row whose operands can't be traced keeps its numbers.
    """
    question = " ".join(row.question.split())
    try:
        answer = Fraction(row.answer)
        published = [_parse_equation(text) for text in row.steps]
        # The steps of the whole chain as published, with its own numbers.
        if any(unfold(expression, (), ()).value != stated for expression, stated in published):
            return None
        steps = solve([expression for expression, _ in published])
    except ValueError:  # not an equation, or unsolvable
        return None
    if not steps:
        return None
    try:
        return _traced(question, published, answer)
    except (UntracedError, UnsolvableError):
        has_answer = answer == published[-1][1]
        return Fixed(Row(question, steps, format_number(answer))) if has_answer else None


def split_numbers(question: str) -> tuple[tuple[str, ...], tuple[int, ...], tuple[Number, ...]]:
    """Cut a question at its numbers; equal numbers are one, so that they are drawn together."""
    pieces, places = [""], []
    numbers: list[Number] = []
    implied = _implied_by(question)
    position = 0
    for match in _NUMBER.finditer(question):
        text = match["number"]
        if text is None:
            continue
        value = Fraction(text.replace(",", ""))
        decimals = len(text.partition(".")[2])
        is_share = bool(match["percent"]) and value < 100 and not decimals
        kind: NumberKind = "percent" if is_share else "plain"
        # A number that a word implies too can't be drawn anew: the word would stay.
        if value in implied:
            kind = "fixed"
        number = Number(value, kind, decimals, "," in text)
        same = next((i for i, one in enumerate(numbers) if one.value == value), None)
        if same is None:
            numbers.append(number)
            same = len(numbers) - 1
        elif numbers[same].kind != kind:
            numbers[same] = _fixed(number)
        pieces[-1] += question[position : match.start("number")]
        pieces.append("")
        places.append(same)
        position = match.end("number")
    pieces[-1] += question[position:]
    return tuple(pieces), tuple(places), tuple(numbers)


def _fixed(number: Number) -> Number:
    return Number(number.value, "fixed", number.decimals, number.has_commas)


def _implied_by(question: str) -> set[Fraction]:
    """Numbers that stand in the question as words, or in a fraction, a time or an ordinal."""
    words = re.findall(r"[a-z]+", question.lower())
    found = {Fraction(value) for word in words for value in _IMPLIED.get(word, ())}
    for match in _NUMBER.finditer(question):
        if match["fixed"]:
            found |= {Fraction(digits) for digits in re.findall(r"\d+", match["fixed"])}
    return found


def _parse_equation(text: str) -> tuple[Expression, Fraction]:
    left, sign, right = text.partition("=")
    stated = parse_infix(right.rpartition("=")[2])
    if not sign or not isinstance(stated, Constant):
        raise ValueError(f"no equation: {text!r}")
    return parse_infix(left), stated.value


def _traced(
    question: str, published: list[tuple[Expression, Fraction]], answer: Fraction
) -> Template:
    pieces, places, numbers = split_numbers(question)
    operands = [_value(leaf) for expression, _ in published for leaf in leaves(expression)]
    uses, mentions = Counter(operands), Counter(numbers[place].value for place in places)
    numbers = tuple(_settled(number, uses, mentions) for number in numbers)
    origins = _Origins(numbers, mentions, _implied_by(question) | _WORDLESS, uses)
    equations: list[Expression] = []
    for expression, stated in published:
        if not isinstance(expression, Binary):  # `3=3`: how it was found is not written
            raise UntracedError("an equation has no operation")
        equations.append(origins.trace(expression))
        origins.add_result(expression, stated)
    results = origins.results
    if answer != results[-1] and results.count(answer) != 1:
        raise UntracedError("the answer is not one of the results, or several of them")
    if not origins.are_results_used(answer):
        raise UntracedError("a result is not used: a step between is not written as an equation")
    final = len(results) if answer == results[-1] else results.index(answer) + 1
    traced = tuple(equations[:final])
    used = {leaf.index for one in traced for leaf in leaves(one) if isinstance(leaf, Slot)}
    kept = tuple(one if i in used else _fixed(one) for i, one in enumerate(numbers))
    template = Template(masked(question), pieces, places, kept, traced)
    row = template.filled([number.value for number in numbers])
    if row is None or Fraction(row.answer) != answer or not row.steps:
        raise UntracedError("the equations do not lead to the answer")
    return template


def _value(leaf: Expression) -> Fraction:
    assert isinstance(leaf, Constant)  # a published equation has numbers only
    return leaf.value


def _settled(number: Number, uses: Counter[Fraction], mentions: Counter[Fraction]) -> Number:
    """Fix a number that the equations use more often than the question names it, if it is small.

    One of those uses may be a constant: "$4" in the question, and the 4 people that it lists.
    """
    value = number.value
    is_common = value <= _MAX_COUNT or value in _COMMON
    is_ambiguous = is_common and uses[value] > mentions[value]
    if number.kind == "percent":  # 50% may be written 50 or 0.5, and 0.5 may be "half"
        share = value / 100
        is_ambiguous |= share in _COMMON and uses[share] + uses[value] > mentions[value]
    return _fixed(number) if is_ambiguous else number


class _Origins:
    """Where an operand of the next equation can come from."""

    def __init__(
        self,
        numbers: Sequence[Number],
        mentions: Counter[Fraction],
        constants: Collection[Fraction],
        uses: Counter[Fraction],
    ) -> None:
        self.results: list[Fraction] = []
        self._slots = {number.value: index for index, number in enumerate(numbers)}
        self._shares = {
            number.value / 100: index
            for index, number in enumerate(numbers)
            if number.kind == "percent"
        }
        self._mentions, self._constants = mentions, constants
        self._uses_left = Counter(uses)  # in equations that are not traced yet
        self._uses_before: Counter[Fraction] = Counter()
        self._uses_after: dict[Fraction, tuple[int, int]] = {}  # of a result: before it, and after

    def add_result(self, expression: Expression, value: Fraction) -> None:
        """Go on to the next equation; `value` is the result of the last."""
        for operand in map(_value, leaves(expression)):
            self._uses_left[operand] -= 1
            self._uses_before[operand] += 1
        self.results.append(value)
        self._uses_after[value] = self._uses_before[value], self._uses_left[value]

    def trace(self, node: Expression) -> Expression:
        """Replace the numbers of an equation by their origins."""
        if isinstance(node, Binary):
            return Binary(node.operator, self.trace(node.left), self.trace(node.right))
        value = _value(node)
        if value in self.results:
            if not self._is_certain(value):
                raise UntracedError(f"{value} has several origins")
            return Result(self.results.index(value))
        if value in self._slots:
            return Slot(self._slots[value])
        if value in self._shares:
            return Slot(self._shares[value], Fraction(1, 100))
        if value in self._constants:
            return node
        raise UntracedError(f"{value} has no origin")

    def _is_certain(self, result: Fraction) -> bool:
        """Whether an operand with the value of a result is that result: drawn anew, others differ.

        Every result and every number is used, as a rule. So the only use after an equation is that of
        its result, if a number of the same value was used before.
        """
        before, after = self._uses_after[result]
        if self.results.count(result) > 1:
            return False
        if result in self._slots:
            return after == 1 and before >= self._mentions[result]
        return after == 1 or (result not in self._constants and result not in _COMMON)

    def are_results_used(self, answer: Fraction) -> bool:
        """Whether each result but the answer is an operand of a later equation."""
        return all(self._uses_after[value][1] for value in self.results if value != answer)
