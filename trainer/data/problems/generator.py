"""Writes chains of arithmetic as word problems; `generate` is a pure function of its arguments."""

import random
from dataclasses import dataclass

from latent.errors import InputError
from trainer.data.problems.chains import SPLITS, Chain, Operation, draw_chain, split_of
from trainer.data.problems.situations import OUT_OF_DISTRIBUTION, TRAINING, Situation

SHE = ("Ana", "Mia", "Lena", "Ruth", "Nina", "Zoe", "Ida", "Rosa", "Amy", "Jane", "Eva", "Kim")
HE = ("Tom", "Ben", "Omar", "Max", "Ivan", "Leo", "Sam", "Paul", "Dan", "Ravi", "Jack", "Hugo")
WORDS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen", "twenty"),
]
LINKS = ("Then ", "Later ", "After that, ", "Next, ", "Soon ")
MULTIPLES = {2: "doubles", 3: "triples", 4: "quadruples"}

WORD_SHARE = 0.12
LINK_SHARE = 0.15
JOIN_SHARE = 0.20
ASIDE_SHARE = 0.12
ASK_FIRST_SHARE = 0.10
HALF_SHARE = 0.5


@dataclass(frozen=True)
class Problem:
    """A question, the equations that solve it, and its answer."""

    question: str
    steps: tuple[str, ...]
    answer: int
    operations: int
    situation: str


def generate(split: str, index: int, seed: int = 0) -> Problem:
    """Problem `index` of a split; the same arguments always return the same problem."""
    if split not in SPLITS:
        raise InputError(f"split is {split!r}; it must be one of {', '.join(SPLITS)}")
    if index < 0:
        raise InputError(f"index is {index}; it must be 0 or more")
    rng = random.Random(f"{seed}/{split}/{index}")
    chain_split = "test" if split == "ood" else split
    chain = draw_chain(rng)
    while split_of(chain) != chain_split:
        chain = draw_chain(rng)
    situation = rng.choice(OUT_OF_DISTRIBUTION if split == "ood" else TRAINING)
    return Problem(
        question=verbalise(chain, situation, rng),
        steps=chain.steps,
        answer=chain.values[-1],
        operations=len(chain.operations),
        situation=situation.name,
    )


def verbalise(chain: Chain, situation: Situation, rng: random.Random) -> str:
    """Question text of a chain, in the phrasings of a situation."""
    is_she = rng.random() < 0.5
    person = {
        "N": rng.choice(SHE if is_she else HE),
        "he": "she" if is_she else "he",
        "him": "her" if is_she else "him",
        "his": "her" if is_she else "his",
        "himself": "herself" if is_she else "himself",
    }
    sentences = _sentences([c.format(**person) for c in _clauses(chain, situation, rng)], rng)
    if rng.random() < ASIDE_SHARE:
        aside = rng.choice(situation.aside).format(**person, n=rng.randint(2, 60))
        sentences.insert(rng.randrange(len(sentences) + 1), _capitalise(f"{aside}."))
    question = rng.choice(situation.ask).format(**person)
    sentences.insert(0 if rng.random() < ASK_FIRST_SHARE else len(sentences), question)
    return " ".join(sentences)


def _clauses(chain: Chain, situation: Situation, rng: random.Random) -> list[str]:
    first, rest = chain.operations[0], chain.operations
    opening = rng.choice(situation.start).replace("{n}", _number(chain.start, rng))
    if first.symbol in "+*" and rng.random() < 0.5:
        # Open with both numbers of the first step at once: "3 bags of 12" for 3*12.
        pair = rng.choice(situation.sum if first.symbol == "+" else situation.product)
        opening = pair.replace("{a}", _number(chain.start, rng))
        opening, rest = opening.replace("{b}", _number(first.operand, rng)), rest[1:]
    return [opening, *(_clause(operation, situation, rng) for operation in rest)]


def _clause(operation: Operation, situation: Situation, rng: random.Random) -> str:
    operand = operation.operand
    match operation.symbol:
        case "+":
            return rng.choice(situation.add).replace("{n}", _number(operand, rng))
        case "-":
            return rng.choice(situation.sub).replace("{n}", _number(operand, rng))
        case "*":
            known = [phrase for phrase in situation.mul if operand in MULTIPLES or "{x}" in phrase]
            times = "twice" if operand == 2 else f"{_number(operand, rng)} times"
            phrase = rng.choice(known).replace("{x}", times)
            return phrase.replace("{doubles}", MULTIPLES.get(operand, ""))
        case _:
            if operand == 2 and rng.random() < HALF_SHARE:
                return rng.choice(situation.half)
            return rng.choice(situation.div).replace("{k}", _number(operand, rng))


def _number(value: int, rng: random.Random) -> str:
    if value >= len(WORDS) or rng.random() >= WORD_SHARE:
        return str(value)
    return "a dozen" if value == 12 and rng.random() < 0.5 else WORDS[value]


def _sentences(clauses: list[str], rng: random.Random) -> list[str]:
    sentences: list[str] = []
    joined = True
    for clause in clauses:
        if not joined and rng.random() < JOIN_SHARE:
            sentences[-1] = f"{sentences[-1][:-1]}, and {clause}."
            joined = True
        else:
            link = rng.choice(LINKS) if sentences and rng.random() < LINK_SHARE else ""
            sentences.append(_capitalise(f"{link}{clause}."))
            joined = False
    return sentences


def _capitalise(text: str) -> str:
    return text[0].upper() + text[1:]
