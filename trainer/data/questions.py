"""Questions of a sampler or verifier run: loading, splitting off validation, order and seeds.

Order and seeds are functions of (seed, step), so that resuming needs no saved random state.
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

__all__ = ["Draw", "Question", "QuestionSets", "digest", "draws_of", "load_questions"]

# Generator seed of the questions. The backbones learned from seed 0: on questions that a reasoner has
# memorised it makes few mistakes to learn from.
_FRESH = 1
_EMBEDDED_COUNT = 20_000


@dataclass(frozen=True)
class Question:
    """A question with its id and true answer."""

    id: str
    question: str
    answer: Decimal


@dataclass(frozen=True)
class Draw:
    """A question of a step, with the seed of its trajectories."""

    question: Question
    seed: int


@dataclass(frozen=True)
class QuestionSets:
    """Training questions, and those held out for validation."""

    train: list[Question]
    validation: list[Question]


def load_questions(source: str, count: int | None, validation_size: int, seed: int) -> QuestionSets:
    """Load training and validation questions; those of a file are split at random.

    A file with fewer than 2 × validation_size rows holds out a fifth of them instead.
    """
    if source == EMBEDDED:
        return QuestionSets(
            _named(embedded_rows("train", count or _EMBEDDED_COUNT, _FRESH), "embedded:train"),
            _named(embedded_rows("validation", validation_size, _FRESH), "embedded:validation"),
        )
    if source.startswith(f"{EMBEDDED}:"):
        raise InputError(
            f"samplers and verifiers do not learn from {source}: the reasoners have seen "
            "embedded:train, and the other splits are to measure on; use embedded, which draws "
            "questions of its own",
            param="data",
        )
    questions = _named(load_rows(source, count), "row")
    if len(questions) < 2:
        raise InputError(
            f"{source} has 1 row, and at least 2 are needed: one to train on, one for validation",
            param="data",
        )
    if len(questions) < 2 * validation_size:
        validation_size = max(1, len(questions) // 5)
    held = set(_permutation(len(questions), seed, "split")[:validation_size])
    return QuestionSets(
        [question for n, question in enumerate(questions) if n not in held],
        [questions[n] for n in sorted(held)],
    )


def draws_of(questions: Sequence[Question], step: int, prompts: int, seed: int) -> list[Draw]:
    """The `prompts` questions of a step: epoch after epoch over all, each in its own random order."""
    draws = []
    orders: dict[int, list[int]] = {}
    for position in range(step * prompts, (step + 1) * prompts):
        epoch, place = divmod(position, len(questions))
        if epoch not in orders:
            orders[epoch] = _permutation(len(questions), seed, "order", epoch)
        question = questions[orders[epoch][place]]
        draws.append(Draw(question, derive_seed(seed, epoch, question.id)))
    return draws


def digest(questions: Sequence[Question]) -> str:
    """SHA-256 of the questions, for a run's identity."""
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
