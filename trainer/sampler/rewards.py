"""GRPO rewards and advantages, (R, N) for R questions with N trajectories each. Pure functions.

σ within a group is the population σ.
"""

import math
from dataclasses import dataclass

import torch

from trainer.sampler.config import SamplerConfig

__all__ = [
    "Scores",
    "batch_scaled",
    "centred",
    "is_uniform",
    "pass_at_k_scores",
    "score",
    "shaping",
    "standardised",
]

_EPSILON = 1e-8  # a smaller spread is rounding
_MIN_RANKED = 3


@dataclass(frozen=True)
class Scores:
    """Reward and advantage of each trajectory."""

    rewards: torch.Tensor  # (R, N)
    advantages: torch.Tensor  # (R, N)


def score(is_correct: torch.Tensor, logprobs: torch.Tensor, config: SamplerConfig) -> Scores:
    """GRPO rewards and advantages from correctness (R, N) and answer log-probabilities (R, N)."""
    bonus = config.alpha * shaping(is_correct, logprobs, config.tau)  # (R, N)
    if config.objective == "mean":
        rewards = config.r0 * (2.0 * is_correct.double() - 1.0) + bonus
        advantages = standardised(rewards, config.sigma_floor)
    else:
        rewards = pass_at_k_scores(is_correct, config.k) + bonus
        advantages = centred(rewards)
    if config.skip_uniform_groups:
        advantages = advantages.masked_fill(is_uniform(is_correct)[:, None], 0.0)
    if config.objective == "pass@k":
        advantages = batch_scaled(advantages)
    return Scores(rewards, advantages)


def shaping(is_correct: torch.Tensor, logprobs: torch.Tensor, tau: float) -> torch.Tensor:
    """Confidence shaping ±tanh(z/τ), (R, N): + for right trajectories, − for wrong ones.

    z is the z-score of the log-probability among the group's right or wrong trajectories; 0 for fewer
    than 3 of them, or if they do not differ.
    """
    total = torch.zeros(is_correct.shape, dtype=torch.float64)
    for members, sign in ((is_correct, 1.0), (~is_correct, -1.0)):
        weight = members.double()
        count = weight.sum(-1, keepdim=True)  # (R, 1)
        mean = (logprobs.double() * weight).sum(-1, keepdim=True) / count.clamp(min=1.0)
        off = (logprobs.double() - mean) * weight
        std = (off.square().sum(-1, keepdim=True) / count.clamp(min=1.0)).sqrt()
        is_ranked = (count >= _MIN_RANKED) & (std > _EPSILON)
        z = torch.where(is_ranked, off / std.clamp(min=_EPSILON), 0.0)
        total += sign * torch.tanh(z / tau)
    return total


def pass_at_k_scores(is_correct: torch.Tensor, k: int) -> torch.Tensor:
    """Scores of the unbiased pass@k policy gradient: 1 if right, else ρ(n−1, c, k−1); (R, N).

    ρ is the probability that k−1 others of the group, drawn at random, include a right one.
    """
    n = is_correct.shape[-1]
    subsets = math.comb(n - 1, k - 1)
    rho = [1.0 - math.comb(max(n - 1 - c, 0), k - 1) / subsets for c in range(n + 1)]
    wrong = torch.tensor(rho, dtype=torch.float64)[is_correct.sum(-1)]  # (R,)
    return torch.where(is_correct, 1.0, wrong[:, None])


def centred(scores: torch.Tensor) -> torch.Tensor:
    """Subtract each group's mean: (R, N)."""
    return scores - scores.mean(-1, keepdim=True)


def standardised(rewards: torch.Tensor, sigma_floor: float) -> torch.Tensor:
    """Centre each group and divide by max(σ, floor): (R, N). A group without spread gets 0."""
    off = centred(rewards)
    std = off.square().mean(-1, keepdim=True).sqrt()
    return torch.where(std > _EPSILON, off / std.clamp(min=max(sigma_floor, _EPSILON)), 0.0)


def batch_scaled(advantages: torch.Tensor) -> torch.Tensor:
    """Divide by the root mean square over all groups with any spread: (R, N).

    Groups without spread are left out, or the rarer the others were, the more they would weigh.
    """
    spread = advantages[(advantages.abs() > _EPSILON).any(-1)]  # (groups, N)
    if not spread.numel():
        return torch.zeros_like(advantages)
    return advantages / spread.square().mean().sqrt()


def is_uniform(is_correct: torch.Tensor) -> torch.Tensor:
    """Whether a group is all right or all wrong: (R,)."""
    return is_correct.all(-1) | ~is_correct.any(-1)
