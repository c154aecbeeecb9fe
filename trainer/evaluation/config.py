"""Settings of one evaluation, checked before anything is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from latent.errors import InputError, SpecError
from latent.specs import SamplerSpec
from latent.trajectory import MAX_SEED

__all__ = ["GAIN_BUDGET", "EvaluationConfig", "budgets_of", "check_distinct", "parse_samplers"]

# SG and JS are measured on this many samples, whatever the budget, so that runs can be compared.
GAIN_BUDGET = 32


@dataclass(frozen=True)
class EvaluationConfig:
    """Settings of `gts evaluate`."""

    model: str
    data: str
    samplers: tuple[SamplerSpec, ...]
    budget: int = 128
    limit: int | None = None
    seed: int = 0
    device: str = "cpu"
    dtype: str = "auto"
    threads: int | None = None
    lanes: int = 512
    timed: int = 200  # questions of a panel that are drawn again under each split, for its time

    def __post_init__(self) -> None:
        if self.budget < 2:
            raise InputError(
                f"budget must be at least 2, got {self.budget}; one trajectory is the sampler "
                "deterministic",
                param="budget",
            )
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"seed must be between 0 and {MAX_SEED}", param="seed")
        for name, value in (("lanes", self.lanes), ("limit", self.limit), ("timed", self.timed)):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}", param=name)

    @property
    def gain_budget(self) -> int:
        """Number of samples on which SG and JS are measured."""
        return min(GAIN_BUDGET, self.budget)

    @property
    def chunk_size(self) -> int:
        """Number of questions per rollout: as many as fill `lanes` with measured trajectories."""
        return max(1, self.lanes // (1 + self.gain_budget))

    def to_json(self) -> dict[str, Any]:
        """Settings as summary.json stores them."""
        return {
            **vars(self),
            "samplers": [str(spec) for spec in self.samplers],
            "budgets": budgets_of(self.budget),
            "gain_budget": self.gain_budget,
        }


def budgets_of(budget: int) -> list[int]:
    """Budgets to report: the powers of 2 below `budget`, and `budget` itself."""
    return [*(2**k for k in range(budget.bit_length()) if 2**k < budget), budget]


def parse_samplers(text: str) -> tuple[SamplerSpec, ...]:
    """Parse comma-separated sampler specs; refuse an empty list and duplicates."""
    specs = tuple(SamplerSpec.parse(part) for part in text.split(",") if part.strip())
    if not specs:
        raise SpecError("no sampler is named; use deterministic,gaussian,gts", param="samplers")
    check_distinct([str(spec) for spec in specs])
    return specs


def check_distinct(names: Sequence[str]) -> None:
    """Refuse duplicate names."""
    duplicate = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if duplicate is not None:
        raise SpecError(f"sampler {duplicate!r} is named twice", param="samplers")
