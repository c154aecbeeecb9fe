"""What a rollout reports of a trajectory, and which ones a budget asks for. Needs no torch."""

import math
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from latent.errors import InputError

__all__ = [
    "DETERMINISTIC",
    "IMPOSSIBLE",
    "MAX_BUDGET",
    "MAX_SEED",
    "Timing",
    "Trajectory",
    "budget_indices",
]

# The index of the trajectory that nothing perturbs.
DETERMINISTIC = -1
MAX_SEED = 2**63 - 1
MAX_BUDGET = 2**16
IMPOSSIBLE = -1e9  # a log-probability whose exponential is 0; JSON has no infinity


@dataclass(frozen=True)
class Trajectory:
    """One sampled chain of thoughts, by the answer decoded from it."""

    index: int
    text: str
    answer: Decimal | None
    logprob: float
    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    answer_start: int | None
    # (D,), for the centroid vote; None for a text reasoner. Not compared: arrays have no one equality.
    final_thought: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    score: float | None = None  # the verifier's, at least 0; None if none has judged it
    # Of the text before its answer, or of the signs that a calculator reads in its thoughts, without
    # those of results; None if its reasoning cannot be read.
    chain_logprob: float | None = None
    # Of a panel, whose trajectories are numbered in its own order: who drew it, and its index there.
    member: str | None = None
    member_index: int | None = None
    token_texts: tuple[str, ...] | None = None  # of `tokens`, where a request asks for them

    @property
    def confidence(self) -> float:
        """The geometric mean probability of the answer's tokens."""
        return math.exp(self.logprob)


@dataclass(frozen=True)
class Timing:
    """Seconds spent in the passes that a question took part in."""

    prefill: float = 0.0
    thoughts: float = 0.0
    decode: float = 0.0

    def __add__(self, other: "Timing") -> "Timing":
        return Timing(
            self.prefill + other.prefill, self.thoughts + other.thoughts, self.decode + other.decode
        )


def budget_indices(budget: int, *, include_deterministic: bool = False) -> tuple[int, ...]:
    """Trajectory indices of a budget: (−1,), the deterministic one, for 1; else 0 … budget − 1."""
    if not 1 <= budget <= MAX_BUDGET:
        raise InputError(f"budget must be 1 to {MAX_BUDGET}, got {budget}", param="budget")
    if budget == 1:
        return (DETERMINISTIC,)
    first = DETERMINISTIC if include_deterministic else 0
    return tuple(range(first, first + budget))
