"""Fits the probability that a vote is right, and measures it out of fold. Pure numpy.

The features were chosen by out-of-fold log-loss on an embedded text reasoner: slopes that change with
the budget, and a term in 1/N, each helped; a linear or capped confidence did not.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from latent.calibration import Coefficients, Evidence, features
from trainer.evaluation.statistics import BINS, bin_places

__all__ = ["Judged", "expected_calibration_error", "fit", "out_of_fold", "question_weights"]

FOLDS = 5
# A standard normal prior on every weight, of features with variance 1: as strong as one question is
# beside hundreds, enough that a few questions which are all right don't drive the weights away.
_PRIOR = 1.0
_ITERATIONS = 100
_SMALLEST_STEP = 1e-9
_IS_MONOTONE = np.array([field.name in Coefficients.MONOTONE for field in fields(Coefficients)])

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """A vote on a held-out question, and whether its winner was right."""

    question: int
    evidence: Evidence
    is_right: bool


def fit(judged: Sequence[Judged], budgets: tuple[int, int]) -> Coefficients:
    """Find the most probable weights, every question counting the same however often it voted."""
    design = np.stack([features(one.evidence, budgets) for one in judged])  # (rows, F)
    is_right = np.array([one.is_right for one in judged], dtype=np.float64)
    weights = question_weights(judged)
    return Coefficients(*_solve(design, is_right, weights).tolist())


def out_of_fold(judged: Sequence[Judged], budgets: tuple[int, int]) -> Vector:
    """Give each vote's probability from a fit to other questions, every fifth being left out in turn."""
    design = np.stack([features(one.evidence, budgets) for one in judged])
    _, place = np.unique([one.question for one in judged], return_inverse=True)
    fold = place % FOLDS
    found = np.zeros(len(judged))
    for number in range(FOLDS):
        rest = [one for one, of in zip(judged, fold, strict=True) if of != number]
        coefficients = np.array(astuple(fit(rest, budgets)))
        found[fold == number] = _sigmoid(design[fold == number] @ coefficients)
    return found


def question_weights(judged: Sequence[Judged]) -> Vector:
    """Give each vote its part of its question's weight of 1."""
    questions = np.array([one.question for one in judged])
    _, place, counts = np.unique(questions, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[place], dtype=np.float64)


def expected_calibration_error(probabilities: Vector, is_right: Vector, weights: Vector) -> float:
    """Give |mean probability − share right|, weighted over ten bins of equal width."""
    gaps = np.bincount(
        bin_places(probabilities), weights * (probabilities - is_right), minlength=BINS
    )
    return float(np.abs(gaps).sum() / weights.sum())


def _solve(design: Vector, is_right: Vector, weights: Vector) -> Vector:
    """Minimise log-loss and prior, the monotone weights kept ≥ 0, by Newton steps projected on that."""
    total = weights.sum()
    centre = weights @ design / total
    scale = np.sqrt(weights @ (design - centre) ** 2 / total)
    is_constant = scale < _SMALLEST_STEP
    centre[0], scale[is_constant] = 0.0, 1.0
    scaled = (design - centre) / scale

    def loss(theta: Vector) -> float:
        logits = scaled @ theta
        losses = np.logaddexp(0.0, logits) - is_right * logits
        return float(weights @ losses + 0.5 * _PRIOR * theta @ theta)

    theta = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        p = _sigmoid(scaled @ theta)
        gradient = scaled.T @ (weights * (p - is_right)) + _PRIOR * theta
        hessian = (scaled.T * (weights * p * (1 - p))) @ scaled + _PRIOR * np.eye(len(theta))
        # A weight at its bound that wants to go below it is left out of the step.
        free = np.flatnonzero(~(_IS_MONOTONE & (theta <= 0) & (gradient > 0)))
        step = np.zeros_like(theta)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        rate, before = 1.0, loss(theta)
        while loss(_projected(theta - rate * step)) >= before and rate > _SMALLEST_STEP:
            rate /= 2
        if np.abs(rate * step).max() < _SMALLEST_STEP:
            break
        theta = _projected(theta - rate * step)
    theta = theta / scale
    theta[0] -= centre[1:] @ theta[1:]
    return np.asarray(theta)


def _projected(theta: Vector) -> Vector:
    return np.where(_IS_MONOTONE, np.maximum(theta, 0.0), theta)


def _sigmoid(logits: Vector) -> Vector:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)))
