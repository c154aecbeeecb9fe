"""The clipped GRPO loss of a thought sampler: a pure function of stored contexts and perturbations.

Never differentiates through the reasoner: log q needs the heads alone.
"""

from dataclasses import dataclass

import torch

from latent.quality import signal_to_noise
from latent.samplers import GaussianThoughtSampler
from trainer.sampler.config import SamplerConfig

__all__ = ["Metrics", "gaussian_kl", "loss", "trajectory_log_prob"]

_LOG_RATIO_LIMIT = 20.0
_HALF_LOG_2PI_E = 1.4189385332046727


@dataclass(frozen=True)
class Metrics:
    """Means over the batch's trajectories."""

    approx_kl: torch.Tensor  # to the ratio's denominator, by Schulman's low-variance estimator
    clipfrac: torch.Tensor
    ratio: torch.Tensor
    entropy: torch.Tensor  # nats per dimension
    kl: torch.Tensor  # closed form, to the EMA reference
    sigma: torch.Tensor  # (K,) mean σ of each thought
    snr: torch.Tensor  # (K,) rms(μ)/rms(σ) of each thought


def trajectory_log_prob(
    heads: GaussianThoughtSampler, contexts: torch.Tensor, perturbations: torch.Tensor
) -> torch.Tensor:
    """Give log q(τ), the sum over thoughts of the mean over dimensions: (M, K, D) → (M,)."""
    return heads.log_prob(contexts, perturbations).sum(-1)


def gaussian_kl(
    mean: torch.Tensor,
    log_std: torch.Tensor,
    reference_mean: torch.Tensor,
    reference_log_std: torch.Tensor,
) -> torch.Tensor:
    """Give KL(q‖q_ref) of diagonal Gaussians, element by element."""
    distance = (mean - reference_mean).square()
    spread = ((2.0 * log_std).exp() + distance) * (-2.0 * reference_log_std).exp()
    return reference_log_std - log_std + 0.5 * (spread - 1.0)


def loss(
    heads: GaussianThoughtSampler,
    reference: GaussianThoughtSampler,
    contexts: torch.Tensor,  # (M, K, D)
    perturbations: torch.Tensor,  # (M, K, D)
    advantages: torch.Tensor,  # (M,)
    denominator: torch.Tensor | None,  # (M,) log q to divide by; None: the heads' own, as they are
    config: SamplerConfig,
) -> tuple[torch.Tensor, Metrics]:
    """Give the loss, a mean over trajectories, and its diagnostics."""
    log_prob = trajectory_log_prob(heads, contexts, perturbations)  # (M,)
    raw = log_prob - (log_prob.detach() if denominator is None else denominator)
    log_ratio = raw.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    if config.clip == "ppo":
        low, high = 1.0 - config.epsilon_c, 1.0 + config.epsilon_c
        surrogate = torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
        is_clipped = (ratio < low) | (ratio > high)
    else:
        surrogate = ratio * advantages
        is_clipped = raw.abs() > _LOG_RATIO_LIMIT
    mean, log_std = heads(contexts)  # (M, K, D) each
    with torch.no_grad():
        reference_mean, reference_log_std = reference(contexts)
    kl = gaussian_kl(mean, log_std, reference_mean, reference_log_std).mean((-1, -2))  # (M,)
    value = (config.beta * kl - surrogate).mean()
    with torch.no_grad():
        metrics = Metrics(
            approx_kl=(ratio - 1.0 - log_ratio).mean(),
            clipfrac=is_clipped.to(ratio).mean(),
            ratio=ratio.mean(),
            entropy=(log_std + _HALF_LOG_2PI_E).mean(),
            kl=kl.mean(),
            sigma=log_std.exp().mean((0, -1)),
            snr=signal_to_noise(mean, log_std.exp()),
        )
    return value, metrics
