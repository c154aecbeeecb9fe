"""A calibration with round numbers, for tests."""

from dataclasses import replace
from typing import Any

from latent.calibration import Calibration, Coefficients

COEFFICIENTS = Coefficients(
    intercept=-1.0,
    budget=0.5,
    one_over_budget=-0.25,
    unperturbed=0.75,
    share_few=1.0,
    share_many=2.0,
    confidence_few=0.25,
    confidence_many=0.5,
    novel=-3.0,
    share_novel=0.5,
    confidence_novel=0.125,
)


def make_calibration(**changes: Any) -> Calibration:
    """Make a calibration of budgets 1 to 16."""
    plain = Calibration(
        sampler="gaussian:1.0",
        vote="majority",
        sampler_fingerprint=None,
        coefficients=COEFFICIENTS,
        budgets=(1, 16),
        ece=0.02,
        ece_outside=0.03,
        share_ece=0.2,
        questions=100,
        data="embedded:validation",
        seed=0,
    )
    return replace(plain, **changes)
