"""Screens the questions of a sampler run: finds those that the untrained sampler answers at times.

A group of trajectories that are all right or all wrong has no gradient. A reasoner that was trained
well answers most of its training questions always, and with them most of the rollouts teach nothing.
"""

from collections.abc import Sequence

from latent.errors import InputError
from latent.samplers import GaussianThoughtSampler
from trainer.data.questions import Question
from trainer.runs.progress import Progress
from trainer.runs.ranks import Ranks
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment, sample_in_order
from trainer.sampler.rewards import is_uniform

__all__ = ["screen"]


def screen(
    environment: Environment,
    heads: GaussianThoughtSampler,
    questions: Sequence[Question],
    config: SamplerConfig,
    ranks: Ranks,
    progress: Progress | None = None,
) -> list[int]:
    """Numbers of the questions of whose first `config.screen` trajectories some, not all, are right."""
    mixed: list[bool] = []
    share = ranks.share(questions)
    for episodes in sample_in_order(
        environment, heads, share, config.screen, config.seed, "screen"
    ):
        mixed += (~is_uniform(episodes.is_correct)).tolist()
        if progress is not None:
            progress.show(0, {"screened": float(len(mixed)), "kept": float(sum(mixed))})
    kept = [number for number, is_kept in enumerate(ranks.gather(mixed)) if is_kept]
    if not kept:
        raise InputError(
            f"of {len(questions)} questions, the untrained sampler answers each always or never in "
            f"{config.screen} trajectories; give more questions, a larger screen, or another "
            "log_std_bias",
            param="screen",
        )
    return kept
