"""Screens the questions of a sampler run: finds those that the untrained sampler answers at times.

A group of trajectories that are all right or all wrong has no gradient. A reasoner that was trained
well answers most of its training questions always, and with them most of the rollouts teach nothing.
"""

from collections.abc import Sequence

from latent.errors import InputError
from latent.noise import derive_seed
from latent.samplers import GaussianThoughtSampler
from trainer.data.questions import Draw, Question
from trainer.runs.progress import Progress
from trainer.runs.ranks import Ranks
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment
from trainer.sampler.rewards import is_uniform

__all__ = ["screen"]

_QUESTIONS_PER_ROLLOUT = 32


def screen(
    environment: Environment,
    heads: GaussianThoughtSampler,
    questions: Sequence[Question],
    config: SamplerConfig,
    ranks: Ranks,
    progress: Progress | None = None,
) -> list[int]:
    """Numbers of the questions of whose first `config.screen` trajectories some, not all, are right."""
    share = ranks.share(range(len(questions)))
    kept: list[int] = []
    for first in range(0, len(share), _QUESTIONS_PER_ROLLOUT):
        numbers = share[first : first + _QUESTIONS_PER_ROLLOUT]
        draws = [
            Draw(questions[n], derive_seed(config.seed, "screen", questions[n].id)) for n in numbers
        ]
        episodes = environment.sample(heads, draws, config.screen)
        mixed = (~is_uniform(episodes.is_correct)).tolist()
        kept += [number for number, keep in zip(numbers, mixed, strict=True) if keep]
        if progress is not None:
            progress.show(0, {"screened": float(first + len(numbers)), "kept": float(len(kept))})
    kept = ranks.gather(kept)
    if not kept:
        raise InputError(
            f"of {len(questions)} questions, the untrained sampler answers each always or never in "
            f"{config.screen} trajectories; give more questions, a larger screen, or another "
            "log_std_bias",
            param="screen",
        )
    return kept
