"""Parses records of MAWPS and ASDiv-A, in the form of the SVAMP paper's training file.

The published questions are split into words, partly in lower case, with slots `number0`, `number1` …
Here they become natural text; the chain of equations follows from the prefix equation.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from trainer.data.redraw.arithmetic import Binary, Expression, Slot, leaves, parse_prefix
from trainer.data.redraw.overlap import masked
from trainer.data.redraw.template import Number, Template
from trainer.data.rows import Row

__all__ = ["Casing", "MawpsProblem", "detokenise", "learn_casing", "parse_record"]

_SLOT = re.compile(r"number(\d{1,3})", re.ASCII)
_VALUE = re.compile(r"-?\d{1,28}(?:\.\d{1,28})?", re.ASCII)
_WORD = re.compile(r"[A-Za-z]+")
_MIN_SEEN = 2  # capitals that make a word a name
_SMALL = 10
_QUESTION = re.compile(r"(?<=[\w%]) (?=(how (many|much|long|far)|what (is|was|would))\b)")
_INDIRECT = re.compile(r"\b(find|tell|know|out|and|of|about|see)$")
_LOWER = frozenset(
    "will may rose grace mark bill penny daisy a an the he she they it his her their in on at of if how "
    "there each some what when after before then and or is are was were has have had does did do to for "
    "by from with as that this these those many much more most one two we you i'm all now dollar "
    "dollars".split()
)
_KEPT = frozenset("I DVD DVDs CD CDs TV TVs USA NBA ATM LEGO PTA".split())
_NAMES = frozenset(
    (
        "monday tuesday wednesday thursday friday saturday sunday january february april june july "
        "august september october november december halloween christmas easter thanksgiving "
        "adam amy andy anna ben billy bobby carol dan dave emily faye frank gwen haley isabel jack "
        "jerry katie kaleb luke maria megan mike nancy oliver paige paul robin roger sam sarah "
        "tom tim victor wendy zoe"
    ).split()
)

Casing = frozenset[str]  # words, in lower case, that are written with a capital anywhere


def learn_casing(texts: Iterable[str]) -> Casing:
    """Find the words that cased texts write with a capital inside a sentence: mostly names."""
    upper: Counter[str] = Counter()
    lower: Counter[str] = Counter()
    for text in texts:
        for match in _WORD.finditer(text):
            word = match.group()
            if word[0].islower():
                lower[word] += 1
            elif not re.search(r"(^|[.?!\"“:])\s*$", text[: match.start()]) and word[1:].islower():
                upper[word.lower()] += 1
    found = {
        word
        for word, count in upper.items()
        if count >= _MIN_SEEN and count > 3 * lower[word] and len(word) > 2
    }
    return (frozenset(found) | _NAMES) - _LOWER


def detokenise(text: str, casing: Casing = _NAMES) -> str:
    """Join separated words into natural text: spaces, capitals, a final stop or question mark."""
    text = " ".join(text.replace("``", '"').replace("''", '"').split())
    text = re.sub(r"(?<=[a-z])\.(?= [a-z])", " .", text)  # "to wash. he put"
    text = re.sub(r"\s+([.,?!;:%])", r"\1", text)
    text = re.sub(r"([$#(])\s+(?=\w)", r"\1", text)
    text = re.sub(r"\s+\)", ")", text)
    text = re.sub(r"\s+('(?:s|re|ve|ll|d|m|t)\b)", r"\1", text)
    text = re.sub(r"(\w)\s+n't\b", r"\1n't", text)
    text = re.sub(r"(?<=s)\s+'(?=\s)", "'", text)
    text = re.sub(r'"\s*([^"]*?)\s*"', r'"\1"', text)
    text = re.sub(r"\$(number\d+|\d[\d.]*) dollars?\b", r"$\1", text)
    text = re.sub(r"(?<=\w) - (?=\w)", "-", text)
    text = _separate_question(text.strip(" ,"))
    if text and text[-1] not in ".?!":
        text += "?" if re.search(r"\b(how|what|find)\b", _last_sentence(text).lower()) else "."
    elif text.endswith(".") and re.search(r"^(how|what)\b", _last_sentence(text[:-1]).lower()):
        text = text[:-1] + "?"
    return _capitalise(text, casing)


@dataclass(frozen=True)
class MawpsProblem:
    """A record as a row; `template` is None if its equation does not give its answer exactly."""

    row: Row
    template: Template | None


def parse_record(
    question: str, numbers: str, equation: str, answer: str, *, casing: Casing = _NAMES
) -> MawpsProblem:
    """Parse the fields of a record; raises ValueError with the reason if they are malformed.

    Without a template the row has no steps: some answers of the file are rounded, some are wrong.
    """
    values = [_read(text, "number") for text in numbers.split()]
    expression, stated = parse_prefix(equation), _read(answer.strip(), "answer")
    text = detokenise(question, casing)
    pieces = _SLOT.split(text)
    if not _WORD.search("".join(pieces[::2])):
        raise ValueError("the question is empty")
    places = tuple(int(index) for index in pieces[1::2])
    slots = {leaf.index for leaf in leaves(expression) if isinstance(leaf, Slot)}
    missing = next((index for index in sorted({*places, *slots}) if index >= len(values)), None)
    if missing is not None:
        raise ValueError(f"number{missing} has no value among the {len(values)} of Numbers")
    filled = _SLOT.sub(lambda match: _plain(numbers.split()[int(match[1])]), text)
    template = None
    if slots <= set(places):
        template = _template(text, tuple(pieces[::2]), places, values, expression, stated)
    if template is None:
        return MawpsProblem(Row(filled, (), _plain(answer.strip())), None)
    return MawpsProblem(template.original(), template)


def _template(
    text: str,
    pieces: tuple[str, ...],
    places: tuple[int, ...],
    values: list[Fraction],
    expression: Expression,
    stated: Fraction,
) -> Template | None:
    expression = _share_equal(expression, values)
    used = {leaf.index for leaf in leaves(expression) if isinstance(leaf, Slot)}
    template = Template(
        key=masked(text),
        pieces=pieces,
        places=tuple(values.index(values[place]) for place in places),
        numbers=tuple(
            _number(value, index, text, index in used) for index, value in enumerate(values)
        ),
        equations=(expression,),
    )
    row = template.filled(values)
    is_mistake = (  # a number by itself, in place of another of the same value
        isinstance(expression, Binary)
        and expression.operator in "-/"
        and expression.left == expression.right
    )
    if row is None or is_mistake or abs(Fraction(row.answer) - stated) > Fraction(1, 1000):
        return None
    return template if row.steps else None


def _read(text: str, name: str) -> Fraction:
    if not _VALUE.fullmatch(text):
        raise ValueError(f"the {name} {text[:40]!r} is not a number")
    # "0.30000000000000004" in the file is 0.3.
    return Fraction(text).limit_denominator(10_000)


def _plain(text: str) -> str:
    """Write 12.0 as 12."""
    return re.sub(r"\.0+$", "", text)


def _number(value: Fraction, index: int, text: str, is_used: bool) -> Number:
    # A small number that no equation needs may be part of the language: "two numbers", "one of".
    if not is_used and value <= _SMALL:
        return Number(value, "fixed", len(str(float(value)).partition(".")[2]))
    decimals = 0
    while (value * 10**decimals).denominator != 1 and decimals < 4:
        decimals += 1
    is_percent = re.search(rf"number{index}\s?(%|percent)", text) is not None
    if is_percent and value < 100 and not decimals:
        return Number(value, "percent")
    return Number(value, "plain", decimals)


def _share_equal(node: Expression, values: list[Fraction]) -> Expression:
    """Let equal numbers be one slot: the file can't tell which of them an equation means."""
    if isinstance(node, Binary):
        left = _share_equal(node.left, values)
        return Binary(node.operator, left, _share_equal(node.right, values))
    return Slot(values.index(values[node.index])) if isinstance(node, Slot) else node


def _separate_question(text: str) -> str:
    """Put a comma or a stop before a question that runs on: `… bought 16 how many …`."""
    sentences = re.split(r"(?<=[.?!])\s+", text)
    for index, sentence in enumerate(sentences):
        found = _QUESTION.search(sentence)
        if found and not _INDIRECT.search(sentence[: found.start()]):
            is_clause = re.match(r"(if|when|after)\b|.*\bif\b", sentence, re.IGNORECASE)
            mark = ", " if is_clause else ". "
            sentences[index] = sentence[: found.start()] + mark + sentence[found.end() :]
    return " ".join(sentences)


def _last_sentence(text: str) -> str:
    return re.split(r"[.?!]\s+", text)[-1]


def _capitalise(text: str, casing: Casing) -> str:
    def fix(match: re.Match[str]) -> str:
        word = match.group()
        if word in _KEPT or word[0].isupper():
            return word
        is_start = re.search(r"(^|[.?!]\"?\s+|^\")$", text[: match.start()]) is not None
        is_name = word in casing or word == "i"
        return word[0].upper() + word[1:] if is_start or is_name else word

    return re.sub(r"(?<![\w'])(?!number\d)[A-Za-z]+", fix, text)
