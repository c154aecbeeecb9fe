"""Sentences of other problems, put into a problem where they do not matter.

Problems for training state only numbers that are needed, so a reasoner learns to use them all. People
also say what does not matter.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from trainer.data.rows import Row

__all__ = ["add_distractors", "find_distractors"]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_MAX_WORDS = 16
# A sentence that begins so speaks of something said before it, or asks.
_DEPENDENT = frozenset(
    "he she they it his her their its this that these those then after later if so now each how what "
    "when all both another some the also next".split()
)


def find_distractors(rows: Sequence[Row]) -> list[str]:
    """Statements with one number each that stand by themselves."""
    found = {
        sentence
        for row in rows
        for sentence in _SENTENCE_END.split(row.question.strip())
        if _stands_alone(sentence)
    }
    return sorted(found)


def add_distractors(rows: Sequence[Row], share: float, rng: random.Random) -> list[Row]:
    """Put a statement of another problem into a share of the problems; steps and answers stay.

    Problems without words, such as drills, stay as they are.
    """
    statements = find_distractors(rows)
    if not statements:
        return list(rows)
    return [
        _with_statement(row, rng.choice(statements), rng) if rng.random() < share else row
        for row in rows
    ]


def _stands_alone(sentence: str) -> bool:
    words = sentence.split()
    return (
        sentence.endswith(".")
        and 4 <= len(words) <= _MAX_WORDS
        and len(_NUMBER.findall(sentence)) == 1
        and words[0].lower() not in _DEPENDENT
    )


def _with_statement(row: Row, statement: str, rng: random.Random) -> Row:
    sentences = _SENTENCE_END.split(row.question.strip())
    if len(sentences) < 2 or statement in sentences:
        return row  # a question of one sentence, or the statement's own
    # Not before the first sentence, to which "he" and "there" of the next one refer.
    place = rng.randrange(1, len(sentences))
    return replace(row, question=" ".join((*sentences[:place], statement, *sentences[place:])))
