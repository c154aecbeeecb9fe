"""Validation of a sampler during training: measures it, picks the best step, decides when to stop."""

from collections.abc import Sequence
from dataclasses import dataclass

from latent.quality import pass_at
from latent.samplers import GaussianThoughtSampler
from trainer.data.questions import Question
from trainer.runs.ranks import Ranks
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment, sample_in_order
from trainer.sampler.rewards import is_uniform

__all__ = ["Validation", "best_of", "describe", "stop_reason", "validate"]

# A run is stopped as collapsed when it has lost this much of what the untrained sampler had.
_CONFIDENCE_SHARE = 0.5
_PASS_DROP = 0.1  # in two validations in a row
_UNIFORM_LIMIT = 0.95


@dataclass(frozen=True)
class Validation:
    """Means over the validation questions, for the sampler at one step."""

    step: int
    pass_at_n: float  # unbiased, N is the validation budget
    pass_at_k: float  # unbiased, k of the objective
    mean_at_1: float
    confidence: float
    uniform_share: float


@dataclass(frozen=True)
class _Group:
    right: int
    confidence: float
    is_uniform: bool


def validate(
    environment: Environment,
    heads: GaussianThoughtSampler,
    questions: Sequence[Question],
    step: int,
    config: SamplerConfig,
    ranks: Ranks,
) -> Validation:
    """Measure the heads on the validation questions, with the same noise at every step."""
    share, lanes = ranks.share(questions), config.validation_lanes
    groups: list[_Group] = []
    for episodes in sample_in_order(environment, heads, share, lanes, config.seed, "validation"):
        rows = zip(
            episodes.is_correct.sum(-1).tolist(),
            episodes.logprobs.exp().mean(-1).tolist(),
            is_uniform(episodes.is_correct).tolist(),
            strict=True,
        )
        groups += [_Group(*row) for row in rows]
    groups = ranks.gather(groups)
    count = len(groups)
    return Validation(
        step=step,
        pass_at_n=sum(pass_at(lanes, g.right, config.validation_budget) for g in groups) / count,
        pass_at_k=sum(pass_at(lanes, g.right, min(config.k, lanes)) for g in groups) / count,
        mean_at_1=sum(g.right for g in groups) / (lanes * count),
        confidence=sum(g.confidence for g in groups) / count,
        uniform_share=sum(g.is_uniform for g in groups) / count,
    )


def best_of(validations: Sequence[Validation]) -> Validation:
    """The validation with the highest pass@N; ties go to mean@1, then to pass@k, then to the earlier.

    Few validation questions often tie in pass@N: mean@1 then shows whether the sampler has learned.
    """
    return max(validations, key=lambda v: (v.pass_at_n, v.mean_at_1, v.pass_at_k, -v.step))


def stop_reason(validations: Sequence[Validation], config: SamplerConfig) -> str | None:
    """Why training should end now, or None."""
    if len(validations) < 2:
        return None
    first, last, best = validations[0], validations[-1], best_of(validations)
    if last.confidence < _CONFIDENCE_SHARE * first.confidence:
        return (
            f"collapse: mean confidence fell from {first.confidence:.3f} to {last.confidence:.3f}"
        )
    if all(v.pass_at_n < best.pass_at_n - _PASS_DROP for v in validations[-2:]):
        return (
            f"collapse: validation pass@{config.validation_budget} fell from {best.pass_at_n:.3f} "
            f"(step {best.step}) to {last.pass_at_n:.3f}"
        )
    if first.uniform_share < _UNIFORM_LIMIT <= last.uniform_share:
        return f"no signal: {last.uniform_share:.0%} of the groups are all right or all wrong"
    stale = sum(v.step > best.step for v in validations)
    if stale >= config.patience:
        return (
            f"no better validation pass@{config.validation_budget} than {best.pass_at_n:.3f} "
            f"(step {best.step}) in {stale} validations"
        )
    return None


def describe(validation: Validation, budget: int) -> str:
    """The main figures in one line."""
    return (
        f"pass@{budget} {validation.pass_at_n:.4f}, mean@1 {validation.mean_at_1:.4f}, "
        f"confidence {validation.confidence:.4f}, uniform groups {validation.uniform_share:.0%}"
    )
