"""The risk–coverage curve: how many questions are answered, and how many of those rightly."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.evaluation.statistics import Floats

__all__ = ["RiskCurve", "RiskPoint", "risk_curve"]

_THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class RiskPoint:
    """What is answered with at least this confidence, of one kind of questions."""

    threshold: float
    coverage: float  # share of the questions
    accuracy: float | None  # of their answers; None if there are none


@dataclass(frozen=True)
class RiskCurve:
    """Points for questions of the model's own kind, and of other kinds if there were any."""

    inside: tuple[RiskPoint, ...]
    outside: tuple[RiskPoint, ...]


def risk_curve(confidence: Floats, is_right: Floats, is_inside: NDArray[np.bool_]) -> RiskCurve:
    """Compute the curve from one vote of each question."""
    inside = _points(confidence[is_inside], is_right[is_inside])
    return RiskCurve(inside, _points(confidence[~is_inside], is_right[~is_inside]))


def _points(confidence: Floats, is_right: Floats) -> tuple[RiskPoint, ...]:
    if not len(confidence):
        return ()
    found = []
    for threshold in (0.0, *_THRESHOLDS):
        answered = confidence >= threshold
        accuracy = float(is_right[answered].mean()) if answered.any() else None
        found.append(RiskPoint(threshold, float(answered.mean()), accuracy))
    return tuple(found)
