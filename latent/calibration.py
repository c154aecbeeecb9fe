"""How likely a voted answer is right: a small monotone model of the vote. Pure, needs no torch.

Fitting is `trainer.evaluation.calibrate`, keeping it `latent.calibration_file`.
"""

import math
from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latent.folders import DEFAULT_SAMPLER
from latent.specs import SamplerSpec
from latent.trajectory import DETERMINISTIC
from latent.votes import Tally, VoteKind

__all__ = [
    "Calibration",
    "Calibrations",
    "Coefficients",
    "Confidence",
    "Evidence",
    "calibrated_name",
    "confidence_of",
    "evidence_of",
    "features",
]

# Confidences this near to 0 or 1 count as equal: float32 tells no more of them.
_EDGE = 1e-6


@dataclass(frozen=True)
class Evidence:
    """What a vote shows of its winner."""

    share: float
    confidence: float
    budget: int  # trajectories that voted
    is_unperturbed: bool  # the deterministic trajectory, alone


@dataclass(frozen=True)
class Coefficients:
    """The log-odds of being right, one weight for each of `features`; those of `MONOTONE` are ≥ 0.

    `_few` is the weight at the smallest budget fitted, `_many` at the largest; in between it is
    linear in log₂ of the budget. So share and confidence can only raise the probability.
    """

    intercept: float
    budget: float
    one_over_budget: float
    unperturbed: float
    share_few: float
    share_many: float
    confidence_few: float
    confidence_many: float

    MONOTONE = ("share_few", "share_many", "confidence_few", "confidence_many")


@dataclass(frozen=True)
class Calibration:
    """The fitted model of one (sampler, vote), and how well it does out of fold."""

    sampler: str
    vote: VoteKind
    sampler_fingerprint: str | None  # of a learned sampler's weights
    coefficients: Coefficients
    budgets: tuple[int, int]  # the smallest and the largest fitted; others are clamped to them
    ece: float
    share_ece: float  # what the share itself would have, on the same votes
    questions: int
    data: str
    seed: int

    def probability(self, evidence: Evidence) -> float:
        """Give the probability that the voted answer is right."""
        weights = np.array(astuple(self.coefficients))
        logit = float(weights @ features(evidence, self.budgets))
        odds = math.exp(-abs(logit))  # of the rarer side, so that nothing overflows
        return (1.0 if logit >= 0 else odds) / (1 + odds)


@dataclass(frozen=True)
class Calibrations:
    """All that `calibration.json` holds."""

    reasoner_fingerprint: str
    fitted: tuple[Calibration, ...] = ()

    def find(self, spec: SamplerSpec, vote: VoteKind) -> Calibration | None:
        """Give the calibration of a sampler and a vote, if there is one."""
        key = (calibrated_name(spec), vote)
        return next((one for one in self.fitted if (one.sampler, one.vote) == key), None)


@dataclass(frozen=True)
class Confidence:
    """How far to trust an answer, and what that number is."""

    value: float
    kind: Literal["share", "calibrated"]


def confidence_of(tally: Tally, calibration: Calibration | None) -> Confidence:
    """Give the probability that the winner is right, or its share where none was fitted."""
    if tally.winner.answer is None:  # what cannot be read is not right
        return Confidence(0.0, "share" if calibration is None else "calibrated")
    if calibration is None:
        return Confidence(tally.winner.share, "share")
    return Confidence(calibration.probability(evidence_of(tally)), "calibrated")


def evidence_of(tally: Tally) -> Evidence:
    """Give what a vote shows of its winner."""
    winner = tally.winner
    return Evidence(
        share=winner.share,
        confidence=winner.confidence,
        budget=sum(candidate.votes for candidate in tally.candidates),
        is_unperturbed=len(tally.candidates) == 1 and winner.trajectories == (DETERMINISTIC,),
    )


def features(evidence: Evidence, budgets: tuple[int, int]) -> NDArray[np.float64]:
    """Give what each of the coefficients weighs: (8,)."""
    low, high = budgets
    budget = min(max(evidence.budget, low), high)
    late = math.log2(budget / low) / math.log2(high / low) if high > low else 0.0
    # One vote more for either side: a share of 1 says less when few have voted.
    share = _logit((budget * evidence.share + 1) / (budget + 2))
    confidence = _logit(min(max(evidence.confidence, _EDGE), 1 - _EDGE))
    return np.array(
        [
            1.0,
            late,
            1 / budget,
            float(evidence.is_unperturbed),
            share * (1 - late),
            share * late,
            confidence * (1 - late),
            confidence * late,
        ]
    )


def _logit(probability: float) -> float:
    return math.log(probability) - math.log1p(-probability)


def calibrated_name(spec: SamplerSpec) -> str:
    """Give the one name under which a sampler's calibration is kept."""
    is_default = spec.kind == "gts" and spec.name == DEFAULT_SAMPLER
    return "gts" if is_default else str(spec)
