"""The stop rule of an adaptive budget: a pure function of the votes at fixed checkpoints."""

import math
from collections.abc import Iterator
from typing import Protocol

__all__ = ["FIRST_CHECKPOINT", "certainty_of", "checkpoints"]

FIRST_CHECKPOINT = 4


class _Voted(Protocol):
    @property
    def answer(self) -> object | None: ...
    @property
    def votes(self) -> int: ...


def checkpoints(budget: int) -> Iterator[int]:
    """Give the counts at which the rule is asked: 4, 8, 16 … below the budget."""
    count = FIRST_CHECKPOINT
    while count < budget:
        yield count
        count *= 2


def certainty_of(candidates: tuple[_Voted, ...]) -> float:
    """Give the posterior probability that the leader beats the runner-up, from a flat prior.

    With a and b votes that is P(p > ½) for p ~ Beta(a + 1, b + 1), which for whole numbers is the
    binomial tail P(X ≤ a), X ~ Binomial(a + b + 1, ½). Unreadable answers are no candidates.
    """
    votes = sorted((c.votes for c in candidates if c.answer is not None), reverse=True)
    if not votes:
        return 0.0
    leader, runner_up = votes[0], votes[1] if len(votes) > 1 else 0
    n = leader + runner_up + 1
    below = sum(math.comb(n, i) for i in range(leader + 1))
    return below / (1 << n)
