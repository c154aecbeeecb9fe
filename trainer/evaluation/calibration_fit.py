"""Fits the model of `latent.calibration` to judged votes, and predicts each from the others."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from latent.calibration import Coefficients, Evidence, features
from trainer.evaluation.statistics import Floats, expected_calibration_error

__all__ = [
    "Judged",
    "Transfer",
    "fit",
    "out_of_fold",
    "question_weights",
    "targets",
    "transfers",
]

_FOLDS = 5
# Variance of the normal prior on every weight of a feature of unit scale. It weighs as much as one
# question, enough to keep the weights finite when all of a few questions are right.
_PRIOR = 1.0
_ITERATIONS = 100
_SMALLEST_STEP = 1e-9
_IS_MONOTONE = np.array([field.name in Coefficients.MONOTONE for field in fields(Coefficients)])


@dataclass(frozen=True)
class Judged:
    """A vote on a held-out question, and whether its winner is right."""

    question: int
    evidence: Evidence
    is_right: bool
    kind: int = 0  # which data the question is of; the first is the reasoner's own kind

    @property
    def is_inside(self) -> bool:
        """Whether the question is of the reasoner's own kind."""
        return self.kind == 0


@dataclass(frozen=True)
class Transfer:
    """How well a fit on the other kinds of questions predicts one kind."""

    kind: int
    ece: float
    excess: float  # mean probability less the share that is right; above 0 it is too sure


def fit(judged: Sequence[Judged], budgets: tuple[int, int]) -> Coefficients:
    """Maximum a posteriori coefficients; each question has weight 1, however often it was voted on.

    The features were selected by out-of-fold log-loss on an embedded text reasoner: slopes that
    change with the budget, and a term in 1/N, helped; a linear or capped confidence did not.
    """
    solution = _solve(_design(judged, budgets), targets(judged), question_weights(judged))
    return Coefficients(*solution.tolist())


def out_of_fold(judged: Sequence[Judged], budgets: tuple[int, int]) -> Floats:
    """Cross-validated probability of each vote, with whole questions in a fold."""
    _, place = np.unique([one.question for one in judged], return_inverse=True)
    return _out_of_group(judged, budgets, place % _FOLDS)


def transfers(judged: Sequence[Judged], budgets: tuple[int, int]) -> tuple[Transfer, ...]:
    """Predict each kind of questions by a fit on the others; none if there is only one kind."""
    kinds = np.array([one.kind for one in judged])
    if (kinds == kinds[0]).all():
        return ()
    found = _out_of_group(judged, budgets, kinds)
    is_right, weights = targets(judged), question_weights(judged)
    each = []
    for kind in np.unique(kinds).tolist():
        own = kinds == kind
        excess = float(np.average(found[own] - is_right[own], weights=weights[own]))
        error = expected_calibration_error(found[own], is_right[own], weights[own])
        each.append(Transfer(kind, error, excess))
    return tuple(each)


def _out_of_group(
    judged: Sequence[Judged], budgets: tuple[int, int], groups: NDArray[np.int64]
) -> Floats:
    """Probability of each vote by a fit on the votes of the other groups."""
    design, found = _design(judged, budgets), np.zeros(len(judged))
    for group in np.unique(groups):
        rest = [one for one, of in zip(judged, groups, strict=True) if of != group]
        coefficients = np.array(astuple(fit(rest, budgets)))
        found[groups == group] = _sigmoid(design[groups == group] @ coefficients)
    return found


class Voted(Protocol):
    """A vote on a question, of one reasoner or of a panel."""

    @property
    def question(self) -> int:
        """Number of the question."""


def question_weights(votes: Sequence[Voted]) -> Floats:
    """Weight of each vote: 1 over the number of votes on its question."""
    questions = np.array([one.question for one in votes])
    _, place, counts = np.unique(questions, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[place], dtype=np.float64)


def _design(judged: Sequence[Judged], budgets: tuple[int, int]) -> Floats:
    return np.stack([features(one.evidence, budgets) for one in judged])  # (votes, features)


def targets(judged: Sequence[Judged]) -> Floats:
    """1 for each vote whose winner is right, else 0."""
    return np.array([one.is_right for one in judged], dtype=np.float64)


def _solve(design: Floats, is_right: Floats, weights: Floats) -> Floats:
    """Minimise log-loss plus prior by projected Newton steps; the monotone weights stay ≥ 0."""
    scale = np.sqrt(weights @ design**2 / weights.sum())
    scale[scale < _SMALLEST_STEP] = 1.0  # a feature that is always 0
    scaled = design / scale

    def loss(theta: Floats) -> float:
        logits = scaled @ theta
        losses = np.logaddexp(0.0, logits) - is_right * logits
        return float(weights @ losses + 0.5 * _PRIOR * theta @ theta)

    theta = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        p = _sigmoid(scaled @ theta)
        gradient = scaled.T @ (weights * (p - is_right)) + _PRIOR * theta
        hessian = (scaled.T * (weights * p * (1 - p))) @ scaled + _PRIOR * np.eye(len(theta))
        # A weight at its bound whose step would go below the bound is fixed in this iteration.
        free = np.flatnonzero(~(_IS_MONOTONE & (theta <= 0) & (gradient > 0)))
        step = np.zeros_like(theta)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        rate, before = 1.0, loss(theta)
        while loss(_projected(theta - rate * step)) >= before and rate > _SMALLEST_STEP:
            rate /= 2
        if np.abs(rate * step).max() < _SMALLEST_STEP:
            break
        theta = _projected(theta - rate * step)
    return np.asarray(theta / scale)


def _projected(theta: Floats) -> Floats:
    return np.where(_IS_MONOTONE, np.maximum(theta, 0.0), theta)


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)))
