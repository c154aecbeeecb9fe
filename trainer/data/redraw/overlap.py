"""Compares questions by their words, numbers masked: the split by template, and overlap with tests."""

import hashlib
import re
from collections.abc import Collection, Iterable

from trainer.data.rows import Row

__all__ = ["HELD_OUT_SHARE", "find_overlap", "is_held_out", "masked", "masked_questions"]

HELD_OUT_SHARE = 0.05
_SPELLED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand"
).split()
_NUMBER = re.compile(rf"number\d+|[\d][\d,./:]*|\b(?:{'|'.join(_SPELLED)})\b")


def masked(question: str) -> str:
    """Return the words of a question, lower case, without punctuation, each number as `#`."""
    hidden = _NUMBER.sub(" # ", question.lower())
    return " ".join(re.findall(r"#|[^\W\d_]+", hidden.replace("'", "").replace("’", "")))


def is_held_out(key: str, share: float = HELD_OUT_SHARE) -> bool:
    """Decide by a hash of the masked question, so that equal words are always on the same side."""
    digest = hashlib.sha256(f"/{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def masked_questions(rows: Iterable[Row]) -> frozenset[str]:
    """Masked questions of a test set, to compare training questions with."""
    return frozenset(masked(row.question) for row in rows)


def find_overlap(rows: Iterable[Row], test_keys: Collection[str]) -> list[Row]:
    """Rows whose words are those of a test question, whatever their numbers."""
    return [row for row in rows if masked(row.question) in test_keys]
