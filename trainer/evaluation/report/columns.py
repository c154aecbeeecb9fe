"""One sampler's results as columns of numbers, a row for each question."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latent.quality import pass_at
from latent.specs import SamplerSpec
from trainer.evaluation.config import GAIN_BUDGET
from trainer.evaluation.records import Record

__all__ = ["Columns", "Floats"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """One sampler's results as columns of numbers."""

    spec: str
    records: Sequence[Record]

    @property
    def kind(self) -> str:
        return SamplerSpec.parse(self.spec).kind

    @property
    def budget(self) -> int:
        return self.records[0].trajectories

    def pass_at(self, budget: int) -> Floats:
        """Give pass@budget of each question, without bias."""
        table = [pass_at(self.budget, right, budget) for right in range(self.budget + 1)]
        return np.array([table[len(record.correct)] for record in self.records])

    def first_n(self, budget: int) -> Floats:
        """Tell of each question whether one of its first trajectories is right."""
        return np.array([float(min(r.correct, default=budget) < budget) for r in self.records])

    def unique(self, budget: int) -> Floats:
        return np.array([float(record.unique[str(budget)]) for record in self.records])

    def vote(self, kind: str, budget: int, place: int = 0) -> Floats:
        """Give a vote's correctness (0), share (1) or confidence (2) of each question."""
        return np.array([record.votes[kind][str(budget)][place] for record in self.records])

    def numbers(self, field: str) -> Floats:
        """Give a measure of each question, NaN where it is null."""
        values = [getattr(record, field) for record in self.records]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    def compared(self) -> dict[str, Floats]:
        """Give the measures that samplers are compared by, of each question."""
        budgets = sorted({8, 32, self.budget} & set(range(self.budget + 1)))
        voting = min(GAIN_BUDGET, self.budget)
        return {
            **{f"pass@{budget}": self.pass_at(budget) for budget in budgets},
            f"majority@{voting}": self.vote("majority", voting),
            "gain": self.numbers("gain"),
        }
