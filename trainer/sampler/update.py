"""One update of a sampler from a batch of trajectories: gradient, clip, Adam, reference."""

import math

import torch

from trainer.runs.errors import DivergedError
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Episodes
from trainer.sampler.objective import loss, trajectory_log_prob
from trainer.sampler.resume import RunState

__all__ = ["learning_rate", "update"]


def learning_rate(step: int, total: int, config: SamplerConfig) -> float:
    """Give the rate of a step: a linear warm-up, then constant or down a cosine to zero."""
    rate = config.lr * min(1.0, (step + 1) / max(config.warmup, 1))
    if config.decay == "cosine":
        rate *= 0.5 * (1.0 + math.cos(math.pi * step / total))
    return rate


def update(
    state: RunState,
    episodes: Episodes,
    advantages: torch.Tensor,  # (R, N)
    config: SamplerConfig,
    rate: float,
) -> dict[str, float | list[float]]:
    """Move the heads, then the reference after them; give the diagnostics."""
    contexts = episodes.contexts.flatten(0, 1)  # (M, K, D)
    perturbations = episodes.perturbations.flatten(0, 1)
    flat = advantages.flatten().to(contexts)  # (M,)
    for group in state.optimiser.param_groups:
        group["lr"] = rate
    denominator = None
    if config.ratio == "ema" or config.updates > 1:
        with torch.no_grad():
            policy = state.heads if config.ratio == "old" else state.reference
            denominator = trajectory_log_prob(policy, contexts, perturbations)
    for _ in range(config.updates):
        state.optimiser.zero_grad()
        value, metrics = loss(
            state.heads,
            state.reference,
            contexts,
            perturbations,
            flat,
            denominator,
            config,
        )
        value.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(state.heads.parameters(), config.gradient_clip)
        if not (value.isfinite() and norm.isfinite()):
            raise DivergedError(
                f"the loss at step {state.step} is not a number (loss {value.item()}, gradient norm "
                f"{norm.item()}); the last checkpoint stands: try a lower lr"
            )
        state.optimiser.step()
    with torch.no_grad():
        for kept, new in zip(state.reference.parameters(), state.heads.parameters(), strict=True):
            kept.lerp_(new, 1.0 - config.ema_decay)
    measured = {name: tensor.tolist() for name, tensor in vars(metrics).items()}
    return {"loss": value.item(), **measured, "grad_norm": norm.item(), "lr": rate}
