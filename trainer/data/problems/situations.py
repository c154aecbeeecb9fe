"""The situations of the embedded task: what is counted and how each operation is told. Only words.

A block is one situation; a line is `slot: phrasing / phrasing`, and one that opens with a slash goes
on with the line before. Clauses start in lower case and bear
no full stop. {N} he/him/his: the person; {n}: a number; {a} {b}: two; {k}: a factor or divisor;
{x}: "twice", "3 times"; {doubles}: "doubles", "triples" (factors up to 4 only).
"""

from dataclasses import dataclass

from trainer.data.problems.everyday import EVERYDAY
from trainer.data.problems.heldout import HELDOUT
from trainer.data.problems.places import PLACES


@dataclass(frozen=True)
class Situation:
    """One setting: phrasings for its opening, each operation, an aside, and the question."""

    name: str
    start: tuple[str, ...]
    product: tuple[str, ...]
    sum: tuple[str, ...]
    add: tuple[str, ...]
    sub: tuple[str, ...]
    mul: tuple[str, ...]
    div: tuple[str, ...]
    half: tuple[str, ...]
    aside: tuple[str, ...]
    ask: tuple[str, ...]


def parse_situations(text: str) -> tuple[Situation, ...]:
    """Read blocks separated by blank lines: a name, then one line per slot."""
    return tuple(_parse_block(block) for block in text.strip().split("\n\n"))


def _parse_block(block: str) -> Situation:
    name, *lines = block.strip().replace("\n / ", " / ").split("\n")
    slots = {}
    for line in lines:
        slot, _, phrasings = line.partition(":")
        slots[slot] = tuple(phrase.strip() for phrase in phrasings.split(" / "))
    return Situation(name=name, **slots)


TRAINING = parse_situations(EVERYDAY) + parse_situations(PLACES)
OUT_OF_DISTRIBUTION = parse_situations(HELDOUT)
