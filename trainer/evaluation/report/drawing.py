"""A drawn figure with its words, and what the figures of one run share."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.evaluation.report.findings import Run, SamplerResult
from trainer.evaluation.report.style import Look, Picture, looks

__all__ = ["DETERMINISTIC", "WIDTH", "Absent", "Drawing", "final_values", "run_looks"]

WIDTH = 8.6  # inches
DETERMINISTIC = "deterministic"


@dataclass(frozen=True)
class Drawing:
    """A figure and the words that go with it."""

    title: str
    caption: str
    alt: str
    picture: Picture


@dataclass(frozen=True)
class Absent:
    """A figure that could not be drawn from this run's data."""

    title: str
    reason: str


def run_looks(run: Run) -> dict[str, Look]:
    """Give each sampler of a run its look."""
    return looks([one.spec for one in run.sampling], [one.spec for one in run.learned])


def final_values(samplers: Sequence[SamplerResult]) -> str:
    """Say each sampler's pass@N at its largest N, for readers who do not see the curves."""
    ends = ((one.spec, max(one.pass_at), one.pass_at) for one in samplers)
    return "; ".join(f"{spec} pass@{n} {series[n].value:.1%}" for spec, n, series in ends) + "."
