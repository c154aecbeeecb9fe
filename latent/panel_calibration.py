"""Weights of a panel's members, and the probability that its answer is right. Needs no torch.

A conditional logit over the candidates and "none of them is right": a candidate's log-odds are the
sum of what each member's votes say of it. It is fitted in `trainer.evaluation.panel_calibration`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from latent.votes import Candidate, VoteKind

__all__ = ["MemberVotes", "MemberWeights", "PanelCalibration", "design"]

# Confidences are clamped to this distance from 0 and 1, which is the precision of float32.
_EDGE = 1e-6


@dataclass(frozen=True)
class MemberVotes:
    """The vote inside one member of a panel."""

    count: int
    candidates: Mapping[Decimal, Candidate]
    unperturbed: Decimal | None  # the answer of its deterministic trajectory

    def features(self, answer: Decimal) -> tuple[float, ...]:
        """What these votes say of an answer, in the order of `MemberWeights`."""
        candidate = self.candidates.get(answer)
        votes = 0.0 if candidate is None else self.count * candidate.share
        # Add-one smoothing: a share of 1, or of 0, says less when there are few votes.
        share = math.log((votes + 1) / (self.count - votes + 1))
        if candidate is None:
            return share, 0.0, 0.0, 0.0
        confidence = min(max(candidate.confidence, _EDGE), 1 - _EDGE)
        log_odds = math.log(confidence) - math.log1p(-confidence)
        return share, log_odds, 1.0, float(answer == self.unperturbed)


@dataclass(frozen=True)
class MemberWeights:
    """Weights of a member's features in the log-odds of a candidate.

    Those in `MONOTONE` are ≥ 0: more votes or a larger confidence never speak against an answer.
    """

    share: float
    confidence: float
    named: float
    unperturbed: float

    MONOTONE = ("share", "confidence")


@dataclass(frozen=True)
class PanelCalibration:
    """The fitted model of one vote, and its cross-validated calibration error."""

    vote: VoteKind
    weights: tuple[MemberWeights, ...]  # in the order of the panel's members
    none: float  # log-odds of "none of them is right", where an answer without evidence has 0
    budgets: tuple[int, int]  # of the panel: the smallest and the largest fitted
    ece: float
    share_ece: float  # of the added shares, on the same votes
    questions: int
    data: str
    seed: int

    def probabilities(
        self, answers: Sequence[Decimal], votes: Mapping[int, MemberVotes]
    ) -> list[float]:
        """Probability that each answer is right; they sum to less than 1.

        `votes` are by the number of the member; one that has not voted is left out.
        """
        weights = [weight for member in self.weights for weight in astuple(member)]
        logits = design(answers, votes, len(self.weights)) @ np.array([*weights, self.none])
        odds = np.exp(logits - logits.max())
        return (odds / odds.sum())[:-1].tolist()  # type: ignore[no-any-return]


def design(
    answers: Sequence[Decimal], votes: Mapping[int, MemberVotes], members: int
) -> NDArray[np.float64]:
    """Features of each answer, and of "none of them" as the last row: (answers + 1, 4 · members + 1)."""
    width = len(MemberWeights.__annotations__)
    rows = np.zeros((len(answers) + 1, width * members + 1))
    for row, answer in enumerate(answers):
        for number, own in votes.items():
            rows[row, width * number : width * (number + 1)] = own.features(answer)
    rows[-1, -1] = 1.0
    return rows
