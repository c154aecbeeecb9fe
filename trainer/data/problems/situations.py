"""Situations of the embedded task: what is counted, and phrasings for each operation, from text files.

training.txt and heldout.txt (out-of-distribution) share no situation and no phrasing. A block is one
situation: its name, then lines of `slot: phrasing / phrasing`; a line that begins with a slash
continues the one before. Clauses begin in lower case and have no full stop. Placeholders: {N} he/him/his
for the person, {n} a number, {a} {b} two numbers, {k} a factor or divisor, {x} "twice" or "3 times",
{doubles} "doubles" or "triples" (factors up to 4 only).
"""

from dataclasses import dataclass
from importlib import resources


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


def read_situations(name: str) -> tuple[Situation, ...]:
    """Parse a text file of this package."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return tuple(_parse_block(block) for block in text.strip().split("\n\n"))


def _parse_block(block: str) -> Situation:
    name, *lines = block.strip().replace("\n / ", " / ").split("\n")
    slots = {}
    for line in lines:
        slot, _, phrasings = line.partition(":")
        slots[slot] = tuple(phrase.strip() for phrase in phrasings.split(" / "))
    return Situation(name=name, **slots)


TRAINING = read_situations("training.txt")
OUT_OF_DISTRIBUTION = read_situations("heldout.txt")
