"""Weights of a panel's members, and the probability that its answer is right. Needs no torch.

A conditional logit over the candidates and "none of them is right": a candidate's log-odds are the
sum of what each member's votes say of it. Members that agree can all be wrong in the same way, which a
sum of log-odds does not allow for, so every probability is multiplied by a ceiling. Both are fitted in
`trainer.evaluation.panel_calibration`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from latent.calibration import log_odds
from latent.votes import Candidate, VoteKind

__all__ = ["MemberVotes", "MemberWeights", "PanelCalibration", "design"]


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
            return share, 0.0, 0.0, 0.0, 0.0
        confidence = log_odds(candidate.confidence)
        likelihood = 0.0 if candidate.likelihood is None else log_odds(candidate.likelihood)
        return share, confidence, 1.0, float(answer == self.unperturbed), likelihood


@dataclass(frozen=True)
class MemberWeights:
    """Weights of a member's features in the log-odds of a candidate.

    Those in `MONOTONE` are ≥ 0: more votes, a larger confidence or a likelier chain never speak against
    an answer.
    """

    share: float
    confidence: float
    named: float
    unperturbed: float
    likelihood: float = 0.0

    MONOTONE = ("share", "confidence", "likelihood")


@dataclass(frozen=True)
class PanelCalibration:
    """The fitted model of one vote, and its cross-validated calibration error."""

    vote: VoteKind
    weights: tuple[MemberWeights, ...]  # in the order of the panel's members
    none: float  # log-odds of "none of them is right", where an answer without evidence has 0
    novel: float  # what these log-odds gain if all word pairs of the question are new; ≥ 0
    ceiling: float  # share of the questions of which votes tell anything; bounds every probability
    budgets: tuple[int, int]  # of the panel: the smallest and the largest fitted
    ece: float  # on questions of the panel's own kind
    ece_outside: float | None  # on those of other kinds, if it was fitted on any
    share_ece: float  # of the added shares, on the same votes as `ece`
    questions: int
    data: str
    seed: int

    def probabilities(
        self, answers: Sequence[Decimal], votes: Mapping[int, MemberVotes], novelty: float
    ) -> list[float]:
        """Probability that each answer is right; they sum to less than 1.

        `votes` are by the number of the member; one that has not voted is left out. `novelty` is the
        question's, see latent.familiarity.
        """
        weights = [weight for member in self.weights for weight in astuple(member)]
        theta = np.array([*weights, self.none, self.novel])
        logits = design(answers, votes, len(self.weights), novelty) @ theta
        odds = np.exp(logits - logits.max())
        return (self.ceiling * odds / odds.sum())[:-1].tolist()  # type: ignore[no-any-return]


def design(
    answers: Sequence[Decimal], votes: Mapping[int, MemberVotes], members: int, novelty: float
) -> NDArray[np.float64]:
    """Features of each answer, and of "none of them" as the last row: (answers + 1, 5 · members + 2)."""
    width = len(MemberWeights.__annotations__)
    rows = np.zeros((len(answers) + 1, width * members + 2))
    for row, answer in enumerate(answers):
        for number, own in votes.items():
            rows[row, width * number : width * (number + 1)] = own.features(answer)
    rows *= 1.0 - novelty  # votes on a question of unknown words say less
    rows[-1, -2:] = 1.0, novelty
    return rows
