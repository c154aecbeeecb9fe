"""The clipped GRPO loss of a thought sampler, and the update that minimises it.

Never differentiates through the reasoner: log q needs only the heads and the stored contexts and
perturbations.
"""

import math
from dataclasses import dataclass

import torch

from latent.quality import signal_to_noise
from latent.samplers import GaussianThoughtSampler
from trainer.runs.divergence import clip_gradients
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Episodes

__all__ = [
    "Metrics",
    "Policy",
    "gaussian_kl",
    "learning_rate",
    "loss",
    "trajectory_log_prob",
    "update",
]

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
    """Log q(τ), the sum over thoughts of the mean over dimensions: (M, K, D) → (M,)."""
    return heads.log_prob(contexts, perturbations).sum(-1)


def gaussian_kl(
    mean: torch.Tensor,
    log_std: torch.Tensor,
    reference_mean: torch.Tensor,
    reference_log_std: torch.Tensor,
) -> torch.Tensor:
    """KL(q‖q_ref) of diagonal Gaussians, elementwise."""
    distance = (mean - reference_mean).square()
    spread = ((2.0 * log_std).exp() + distance) * (-2.0 * reference_log_std).exp()
    return reference_log_std - log_std + 0.5 * (spread - 1.0)


def loss(
    heads: GaussianThoughtSampler,
    reference: GaussianThoughtSampler,
    contexts: torch.Tensor,  # (M, K, D)
    perturbations: torch.Tensor,  # (M, K, D)
    advantages: torch.Tensor,  # (M,)
    denominator: torch.Tensor | None,  # (M,) log q of the ratio's denominator; None: of the heads
    config: SamplerConfig,
) -> tuple[torch.Tensor, Metrics]:
    """Mean clipped surrogate loss with the KL penalty over M trajectories, and its diagnostics."""
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


@dataclass(frozen=True)
class Policy:
    """The heads that are trained, their EMA reference, and the optimizer of the heads."""

    heads: GaussianThoughtSampler
    reference: GaussianThoughtSampler
    optimizer: torch.optim.Optimizer


def learning_rate(step: int, total: int, config: SamplerConfig) -> float:
    """Learning rate of a step: linear warm-up, then constant or cosine decay to zero."""
    rate = config.lr * min(1.0, (step + 1) / max(config.warmup, 1))
    if config.decay == "cosine":
        rate *= 0.5 * (1.0 + math.cos(math.pi * step / total))
    return rate


def update(
    policy: Policy,
    episodes: Episodes,
    advantages: torch.Tensor,  # (R, N)
    config: SamplerConfig,
    rate: float,
    step: int,
) -> dict[str, float | list[float]]:
    """Update heads and reference from a batch of trajectories; return the metrics of the last pass."""
    contexts = episodes.contexts.flatten(0, 1)  # (M, K, D)
    perturbations = episodes.perturbations.flatten(0, 1)
    flat = advantages.flatten().to(contexts)  # (M,)
    heads, reference, optimizer = policy.heads, policy.reference, policy.optimizer
    for group in optimizer.param_groups:
        group["lr"] = rate
    denominator = None
    if config.ratio == "ema" or config.updates > 1:
        with torch.no_grad():
            old = heads if config.ratio == "old" else reference
            denominator = trajectory_log_prob(old, contexts, perturbations)
    for _ in range(config.updates):
        optimizer.zero_grad()
        value, metrics = loss(heads, reference, contexts, perturbations, flat, denominator, config)
        value.backward()  # type: ignore[no-untyped-call]
        norm = clip_gradients(heads.parameters(), config.gradient_clip, value, step)
        optimizer.step()
    with torch.no_grad():
        for kept, new in zip(reference.parameters(), heads.parameters(), strict=True):
            kept.lerp_(new, 1.0 - config.ema_decay)
    measured = {name: tensor.tolist() for name, tensor in vars(metrics).items()}
    return {"loss": value.item(), **measured, "grad_norm": norm, "lr": rate}
