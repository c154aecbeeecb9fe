"""Answers as numbers: read them out of text, compare them, print them one way."""

import re
from decimal import Decimal, DecimalException
from typing import Any

__all__ = [
    "TOLERANCE",
    "common_prefix",
    "format_answer",
    "last_number",
    "parse_answer",
    "same_answer",
    "show_answer",
]

TOLERANCE = Decimal("0.001")

# A sign, digits with or without thousands separators, a fraction; also ".5".
_NUMBER = re.compile(r"[-−]?\s*\$?\s*(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
# Digits of every kind, and signs: a tokenizer may join the prefix's last space to any of these.
_PREFIX_PROBES = ("0", "5", "7", "18", "123", "408", "1234", "-6", "-250", "0.5")


def parse_answer(text: str) -> Decimal | None:
    """Read the last number in a text: "1,234", "1234.0" and "$1234" are one; None if there is none."""
    found = _NUMBER.findall(text)
    if not found:
        return None
    plain = re.sub(r"[,$\s]", "", found[-1]).replace("−", "-")
    try:
        return _canonical(Decimal(plain))
    except DecimalException:
        return None


def last_number(text: str, template: str) -> Decimal | None:
    """Read the last number as CODI's and COCONUT's own evaluation does, whatever stands before it.

    Commas are removed first, a sign counts only right before a digit, and where targets are written
    with "#" only what follows the last one is read.
    """
    tail = text.rpartition("#")[2] if "#" in template else text
    found = re.findall(r"-?\d+(?:\.\d+)?", tail.replace(",", ""))
    return _canonical(Decimal(found[-1])) if found else None


def same_answer(left: Decimal | None, right: Decimal | None) -> bool:
    """Compare two answers as numbers; an unparsable one equals nothing."""
    return left is not None and right is not None and abs(left - right) <= TOLERANCE


def format_answer(answer: Decimal) -> str:
    """Print an answer without exponent, trailing zeros or separators."""
    return format(_canonical(answer), "f")


def show_answer(answer: Decimal | None) -> str | None:
    """Print an answer as users see it; an unparsable one is None."""
    return None if answer is None else format_answer(answer)


def _canonical(value: Decimal) -> Decimal:
    normal = value.normalize()
    return Decimal(0) if normal == 0 else normal


def common_prefix(tokenizer: Any, template: str) -> tuple[int, ...]:
    """Tokens that a template such as "### {}" begins with, whatever number stands in it."""
    encoded = [
        tokenizer.encode(template.format(number), add_special_tokens=False)
        for number in _PREFIX_PROBES
    ]
    length = 0
    for tokens in zip(*encoded, strict=False):
        if len(set(tokens)) > 1:
            break
        length += 1
    return tuple(encoded[0][:length])
