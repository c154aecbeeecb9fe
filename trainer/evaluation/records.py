"""One result: what one sampler did on one question. Its line in results.jsonl, and how it is judged."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import get_args

from latent.answers import format_answer, same_answer, show_answer
from latent.exploration import Exploration
from latent.quality import unique_answers
from latent.votes import Ballot, VoteKind, tally
from trainer.evaluation.config import budgets_of

__all__ = ["Question", "Record", "judge"]

_DECIMALS = 6


@dataclass(frozen=True)
class Question:
    """A row that is ready to be asked."""

    index: int
    prompt: tuple[int, ...]
    truth: Decimal
    target: tuple[int, ...] | None  # the true answer's tokens; None where it can't be written
    operations: int | None
    seed: int


@dataclass(frozen=True)
class Record:
    """A line of results.jsonl; dictionaries are keyed by the budget."""

    sampler: str
    index: int
    truth: str
    operations: int | None
    deterministic: str | None
    deterministic_correct: bool
    correct: list[int]  # the trajectories that are right
    unique: dict[str, int]
    votes: dict[str, dict[str, list[float]]]  # vote → budget → (is right, share, confidence)
    gain: float | None
    gain_whole: float | None
    gain_share: float | None
    js: float | None
    snr: list[float] | None
    sigma: list[float] | None
    tokens: int
    prompt_tokens: int
    trajectories: int
    seconds: float

    @property
    def key(self) -> tuple[str, int]:
        """What no two results of a run share."""
        return self.sampler, self.index

    def to_line(self) -> str:
        """Give the line, with its end."""
        return json.dumps(vars(self), separators=(",", ":"), allow_nan=False) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Record":
        """Read a line; raise ValueError where it is none."""
        data = json.loads(line)
        names = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or data.keys() != names:
            raise ValueError("its fields are not those of a result")
        return cls(**data)


def judge(
    question: Question,
    sampler: str,
    deterministic: Ballot,
    samples: Sequence[Ballot],
    explored: Exploration,
    *,
    tokens: int,
    seconds: float,
) -> Record:
    """Compare a question's trajectories with the truth, at every budget."""
    budgets = budgets_of(len(samples))
    answers = [ballot.answer for ballot in samples]
    return Record(
        sampler=sampler,
        index=question.index,
        truth=format_answer(question.truth),
        operations=question.operations,
        deterministic=show_answer(deterministic.answer),
        deterministic_correct=same_answer(deterministic.answer, question.truth),
        correct=[n for n, answer in enumerate(answers) if same_answer(answer, question.truth)],
        unique={str(budget): unique_answers(answers[:budget]) for budget in budgets},
        votes={
            kind: {str(budget): _vote(samples[:budget], kind, question.truth) for budget in budgets}
            for kind in _votes_of(samples)
        },
        gain=_finite(explored.gain),
        gain_whole=_finite(explored.gain_whole),
        gain_share=_finite(explored.gain_share),
        js=_finite(explored.js),
        snr=_rounded(explored.snr),
        sigma=_rounded(explored.sigma),
        tokens=tokens,
        prompt_tokens=len(question.prompt),
        trajectories=len(samples),
        seconds=seconds,
    )


def _vote(cast: Sequence[Ballot], kind: VoteKind, truth: Decimal) -> list[float]:
    winner = tally(cast, kind).winner
    is_right = int(same_answer(winner.answer, truth))
    return [is_right, round(winner.share, _DECIMALS), round(winner.confidence, _DECIMALS)]


def _votes_of(samples: Sequence[Ballot]) -> list[VoteKind]:
    """Give the votes that can be held: the centroid needs thoughts."""
    has_thoughts = samples[0].final_thought is not None
    kinds: tuple[VoteKind, ...] = get_args(VoteKind)
    return [kind for kind in kinds if kind != "centroid" or has_thoughts]


def _finite(value: float | None) -> float | None:
    return round(value, _DECIMALS) if value is not None and math.isfinite(value) else None


def _rounded(values: Sequence[float] | None) -> list[float] | None:
    return None if values is None else [round(value, _DECIMALS) for value in values]
