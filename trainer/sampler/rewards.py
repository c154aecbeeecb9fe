"""From who was right, and how sure they were, to advantages. Pure, on (R, N) groups: R questions × N.

σ within groups is the population σ.
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

# Log-probabilities closer than this differ by rounding only: there is nothing to rank.
_SAME = 1e-8
_FEWEST_TO_RANK = 3


@dataclass(frozen=True)
class Scores:
    """What each trajectory earned, and how much better that was than its group."""

    rewards: torch.Tensor  # (R, N)
    advantages: torch.Tensor  # (R, N)


def score(is_correct: torch.Tensor, logprobs: torch.Tensor, config: SamplerConfig) -> Scores:
    """Turn correctness (R, N) and answer log-probabilities (R, N) of a whole batch into advantages."""
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
    """Rank by confidence inside the right (+) and the wrong (−) of each group: ±tanh(z/τ), (R, N).

    A subset of fewer than 3 members, or without spread, is not ranked.
    """
    total = torch.zeros(is_correct.shape, dtype=torch.float64)
    for members, sign in ((is_correct, 1.0), (~is_correct, -1.0)):
        weight = members.double()
        count = weight.sum(-1, keepdim=True)  # (R, 1)
        mean = (logprobs.double() * weight).sum(-1, keepdim=True) / count.clamp(min=1.0)
        off = (logprobs.double() - mean) * weight
        std = (off.square().sum(-1, keepdim=True) / count.clamp(min=1.0)).sqrt()
        is_ranked = (count >= _FEWEST_TO_RANK) & (std > _SAME)
        z = torch.where(is_ranked, off / std.clamp(min=_SAME), 0.0)
        total += sign * torch.tanh(z / tau)
    return total


def pass_at_k_scores(is_correct: torch.Tensor, k: int) -> torch.Tensor:
    """Score 1 for a right trajectory, ρ(n−1, c, k−1) for a wrong one: (R, N).

    ρ is the chance that k−1 others of the group hold a right one: what a wrong trajectory's set of k
    earns anyway.
    """
    n = is_correct.shape[-1]
    others = math.comb(n - 1, k - 1)
    rho = [1.0 - math.comb(max(n - 1 - c, 0), k - 1) / others for c in range(n + 1)]
    anyway = torch.tensor(rho, dtype=torch.float64)[is_correct.sum(-1)]  # (R,)
    return torch.where(is_correct, 1.0, anyway[:, None])


def centred(scores: torch.Tensor) -> torch.Tensor:
    """Take each group's mean away: (R, N)."""
    return scores - scores.mean(-1, keepdim=True)


def standardised(rewards: torch.Tensor, sigma_floor: float) -> torch.Tensor:
    """Standardise each group by its σ, or by the floor if that is larger; no spread gives 0: (R, N)."""
    off = centred(rewards)
    std = off.square().mean(-1, keepdim=True).sqrt()
    return torch.where(std > _SAME, off / std.clamp(min=max(sigma_floor, _SAME)), 0.0)


def batch_scaled(advantages: torch.Tensor) -> torch.Tensor:
    """Divide by the rms over all groups with any spread: (R, N).

    Groups without spread do not count: else the few others would weigh more, the rarer they are.
    """
    spread = advantages[(advantages.abs() > _SAME).any(-1)]  # (groups, N)
    if not spread.numel():
        return torch.zeros_like(advantages)
    return advantages / spread.square().mean().sqrt()


def is_uniform(is_correct: torch.Tensor) -> torch.Tensor:
    """Tell which groups are all right or all wrong: (R,)."""
    return is_correct.all(-1) | ~is_correct.any(-1)
