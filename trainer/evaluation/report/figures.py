"""All figures of one evaluation, in the order of its page."""

from collections.abc import Mapping, Sequence

from trainer.evaluation.report.budget_figures import pass_at_figure, unique_figure, votes_figure
from trainer.evaluation.report.drawing import Absent, Drawing
from trainer.evaluation.report.findings import Run
from trainer.evaluation.report.quality_figures import (
    ablation_figure,
    calibration_figure,
    snr_figure,
)

__all__ = ["draw_figures"]


def draw_figures(run: Run, snr: Mapping[str, Sequence[Sequence[float]]]) -> list[Drawing | Absent]:
    """Draw all that the run has data for; `snr` is (questions, thoughts) of each learned sampler."""
    run = run.without_repeats()
    return [
        pass_at_figure(run),
        unique_figure(run),
        votes_figure(run),
        snr_figure(run, snr),
        ablation_figure(run),
        calibration_figure(run),
    ]
