"""The questions of a sampler run: where they come from, in which order, and the seed of each draw.

Everything here is a function of (seed, step), so that resuming needs no saved state.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import torch

from latent.errors import InputError
from latent.noise import derive_seed
from trainer.data.sources import EMBEDDED, Row, embedded_rows, load_rows
from trainer.sampler.config import SamplerConfig

__all__ = ["Draw", "Question", "QuestionSets", "digest", "draws_of", "load_questions"]

# A generator seed of its own: the backbones learned from seed 0, and a sampler that trains on what
# its reasoner has memorised sees few mistakes to learn from.
_FRESH = 1


@dataclass(frozen=True)
class Question:
    """A problem by its name, text and answer."""

    id: str
    question: str
    answer: Decimal


@dataclass(frozen=True)
class Draw:
    """One question of a step, and the seed of its trajectories."""

    question: Question
    seed: int


@dataclass(frozen=True)
class QuestionSets:
    """What is trained on, and what is held out to choose by."""

    train: list[Question]
    validation: list[Question]


def load_questions(source: str, count: int | None, config: SamplerConfig) -> QuestionSets:
    """Load training and validation questions; of a file, validation is taken out at random."""
    if source == EMBEDDED:
        validation = embedded_rows("validation", config.validation_size, _FRESH)
        return QuestionSets(
            _named(embedded_rows("train", count or 20_000, _FRESH), "embedded:train"),
            _named(validation, "embedded:validation"),
        )
    if source.startswith(f"{EMBEDDED}:"):
        raise InputError(
            f"a sampler does not learn from {source}: the reasoners have seen embedded:train, and "
            "the other splits are to measure on; use embedded, which draws questions of its own",
            param="data",
        )
    questions = _named(load_rows(source, count), "row")
    if len(questions) <= config.validation_size:
        raise InputError(
            f"{source} has {len(questions)} rows, and validation_size = {config.validation_size} "
            "of them are held out; give more rows or a smaller validation_size",
            param="data",
        )
    order = _permutation(len(questions), config.seed, "split")
    held = set(order[: config.validation_size])
    return QuestionSets(
        [question for n, question in enumerate(questions) if n not in held],
        [questions[n] for n in sorted(held)],
    )


def draws_of(questions: Sequence[Question], step: int, config: SamplerConfig) -> list[Draw]:
    """Give a step's questions: pass after pass over all of them, each pass in its own order."""
    draws = []
    orders: dict[int, list[int]] = {}
    for position in range(step * config.prompts, (step + 1) * config.prompts):
        number, place = divmod(position, len(questions))
        if number not in orders:
            orders[number] = _permutation(len(questions), config.seed, "order", number)
        question = questions[orders[number][place]]
        draws.append(Draw(question, derive_seed(config.seed, number, question.id)))
    return draws


def digest(questions: Sequence[Question]) -> str:
    """Hash what a run learns from, to know it again."""
    rows = [(question.id, question.question, str(question.answer)) for question in questions]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _named(rows: Sequence[Row], name: str) -> list[Question]:
    return [
        Question(f"{name}:{number}", row.question, Decimal(row.answer))
        for number, row in enumerate(rows)
    ]


def _permutation(size: int, *parts: int | str) -> list[int]:
    generator = torch.Generator().manual_seed(derive_seed(*parts))
    return torch.randperm(size, generator=generator).tolist()
