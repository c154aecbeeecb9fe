"""Probability that a voted answer is right: a monotone logistic model of the vote. Needs no torch.

It is fitted in `trainer.evaluation.calibration` and stored by `latent.calibration_file`.
"""

import math
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latent.familiarity import Familiarity, Reference
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
    "log_odds",
]

# Probabilities are clamped to this distance from 0 and 1, which bounds their log-odds to ±13.8.
_EDGE = 1e-6


@dataclass(frozen=True)
class Evidence:
    """Properties of a vote and its winner from which the probability is computed."""

    share: float
    confidence: float
    budget: int  # trajectories that voted
    is_unperturbed: bool  # only the deterministic trajectory voted
    novelty: float = 0.0  # of the question, see latent.familiarity
    likelihood: float | None = None  # of the winner's likeliest chain, if the reasoner gives one


@dataclass(frozen=True)
class Coefficients:
    """Weights of `features` in the log-odds of being right.

    `_few` is the weight at the smallest fitted budget, `_many` at the largest; in between it is
    interpolated linearly in log₂ of the budget. These hold for a question without new word pairs,
    those called `novel` for one that has no other; in between, by its novelty. The weights in
    `MONOTONE` are ≥ 0, so a larger share, confidence or likelihood never lowers the probability.
    """

    intercept: float
    budget: float
    one_over_budget: float
    unperturbed: float
    share_few: float
    share_many: float
    confidence_few: float
    confidence_many: float
    novel: float
    share_novel: float
    confidence_novel: float
    likelihood: float = 0.0
    likelihood_novel: float = 0.0

    MONOTONE = (
        "share_few",
        "share_many",
        "confidence_few",
        "confidence_many",
        "share_novel",
        "confidence_novel",
        "likelihood",
        "likelihood_novel",
    )


@dataclass(frozen=True)
class Calibration:
    """The fitted model of one (sampler, vote), and its cross-validated calibration error."""

    sampler: str
    vote: VoteKind
    sampler_fingerprint: str | None  # of a learned sampler's weights
    coefficients: Coefficients
    budgets: tuple[int, int]  # the smallest and the largest fitted; others are clamped
    ece: float  # on questions of the reasoner's own kind
    ece_outside: float | None  # on those of other kinds, if it was fitted on any
    share_ece: float  # of the vote share, on the same votes as `ece`
    questions: int
    data: str
    seed: int
    verifier_fingerprint: str | None = None  # of the verifier's weights, for its vote

    def probability(self, evidence: Evidence) -> float:
        """Probability that the voted answer is right."""
        logit = float(self._weights @ features(evidence, self.budgets))
        odds = math.exp(-abs(logit))  # at most 1, so that exp does not overflow
        return (1.0 if logit >= 0 else odds) / (1 + odds)

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        return np.array(astuple(self.coefficients))  # which takes longer than all of the rest


@dataclass(frozen=True)
class Calibrations:
    """The content of `calibration.json`."""

    reasoner_fingerprint: str
    fitted: tuple[Calibration, ...] = ()
    reference: Reference | None = None  # what novelty is measured against; of all that are fitted

    def find(self, spec: SamplerSpec, vote: VoteKind) -> Calibration | None:
        """The calibration of a sampler and a vote; None if it was not fitted."""
        key = (calibrated_name(spec), vote)
        return next((one for one in self.fitted if (one.sampler, one.vote) == key), None)

    def familiarity(self, question: str) -> Familiarity | None:
        """How like the question is to those of the calibration; None if there is none."""
        return None if self.reference is None else self.reference.familiarity(question)


@dataclass(frozen=True)
class Confidence:
    """Confidence in an answer, and how it was computed."""

    value: float
    kind: Literal["share", "calibrated"]


def confidence_of(
    tally: Tally, calibration: Calibration | None, familiarity: Familiarity | None = None
) -> Confidence:
    """Calibrated probability that the winner is right; its vote share without a calibration.

    The tally of a calibrated panel has the probability already.
    """
    if tally.winner.answer is None:  # an unparsable answer is not right
        return Confidence(0.0, "share" if calibration is None else "calibrated")
    if tally.probability is not None:
        return Confidence(tally.probability, "calibrated")
    if calibration is None:
        return Confidence(tally.winner.share, "share")
    novelty = 0.0 if familiarity is None else familiarity.novelty
    return Confidence(calibration.probability(evidence_of(tally, novelty)), "calibrated")


def evidence_of(tally: Tally, novelty: float = 0.0) -> Evidence:
    """Evidence for the winner of a vote on a question of this novelty."""
    winner = tally.winner
    return Evidence(
        share=winner.share,
        confidence=winner.confidence,
        budget=sum(candidate.votes for candidate in tally.candidates),
        is_unperturbed=len(tally.candidates) == 1 and winner.trajectories == (DETERMINISTIC,),
        novelty=novelty,
        likelihood=winner.likelihood,
    )


def features(evidence: Evidence, budgets: tuple[int, int]) -> NDArray[np.float64]:
    """Features of a vote, in the order of `Coefficients`: (13,)."""
    low, high = budgets
    budget = min(max(evidence.budget, low), high)
    late = math.log2(budget / low) / math.log2(high / low) if high > low else 0.0
    # Add-one smoothing: a share of 1 is weaker evidence when there are few votes.
    share = log_odds((budget * evidence.share + 1) / (budget + 2))
    confidence = log_odds(evidence.confidence)
    likelihood = 0.0 if evidence.likelihood is None else log_odds(evidence.likelihood)
    known = [
        1.0,
        late,
        1 / budget,
        float(evidence.is_unperturbed),
        share * (1 - late),
        share * late,
        confidence * (1 - late),
        confidence * late,
    ]
    novel = [1.0, share, confidence]
    new = evidence.novelty
    return np.array(
        [
            *((1 - new) * each for each in known),
            *(new * each for each in novel),
            (1 - new) * likelihood,
            new * likelihood,
        ]
    )


def log_odds(probability: float) -> float:
    """Log-odds of a probability, which is clamped away from 0 and 1."""
    clamped = min(max(probability, _EDGE), 1 - _EDGE)
    return math.log(clamped) - math.log1p(-clamped)


def calibrated_name(spec: SamplerSpec) -> str:
    """Name of a sampler in calibration.json; gts:default is called gts."""
    is_default = spec.kind == "gts" and spec.name == DEFAULT_SAMPLER
    return str(replace(spec, name=None) if is_default else spec)
