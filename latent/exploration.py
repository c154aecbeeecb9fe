"""Measures how the samples of one question differ from its deterministic trajectory (SG, JS, SNR)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from latent import quality
from latent.probing import Probe
from latent.samplers import LearnedSampler, Sampler

__all__ = ["Exploration", "Heads", "explore", "heads_of"]


@dataclass(frozen=True)
class Heads:
    """What a learned sampler said at each thought, for N trajectories."""

    mean: torch.Tensor  # (N, K, D)
    std: torch.Tensor  # (N, K, D)

    @property
    def snr(self) -> list[float]:
        """The signal-to-noise ratio of each thought."""
        ratios: list[float] = quality.signal_to_noise(self.mean, self.std).tolist()
        return ratios


@dataclass(frozen=True)
class Exploration:
    """How far the probed samples went from the deterministic trajectory, and whether to good end."""

    gain: float | None = None
    gain_whole: float | None = None  # of the whole answer rather than its first token
    gain_share: float | None = None
    js: float | None = None
    snr: Sequence[float] | None = None
    sigma: Sequence[float] | None = None
    gains: Sequence[float] | None = None  # of each sample


@torch.no_grad()
def heads_of(
    sampler: Sampler, contexts: torch.Tensor | None, indices: Sequence[int]
) -> Heads | None:
    """Mean and standard deviation of a learned sampler at contexts (N, K, D); None for others.

    `indices` are those of the N trajectories.
    """
    if not isinstance(sampler, LearnedSampler) or contexts is None:
        return None
    mean, log_std = sampler.heads(contexts.to(next(sampler.heads.parameters()).dtype))
    value = 1.0 if sampler.spec.value is None else sampler.spec.value
    scales = log_std.new_tensor(sampler.noise_scales(indices) or [value] * len(indices))
    return Heads(mean, log_std.exp() * scales[:, None, None])


@torch.no_grad()
def explore(probe: Probe, heads: Heads | None = None) -> Exploration:
    """Measure how samples explore; row 0 of the probe is the deterministic trajectory."""
    first = probe.first_logprobs  # (1 + N, V)
    js = float(quality.js_divergence(first[1:], first[0]).mean())
    snr = sigma = None
    if heads is not None:
        snr = heads.snr
        sigma = heads.std.square().mean(-1).sqrt().mean(0).tolist()
    if probe.target_logprobs is None or probe.target_complements is None:
        return Exploration(js=js, snr=snr, sigma=sigma)
    place = probe.target_start
    odds = probe.target_logprobs[:, place] - probe.target_complements[:, place]  # (1 + N,) of y₁*
    gains = odds[1:] - odds[0]
    whole = quality.answer_log_odds(probe.target_logprobs, probe.target_complements)
    return Exploration(
        gain=float(gains.max()),
        gain_whole=float(quality.sampling_gain(whole[1:], whole[0])),
        gain_share=quality.gain_rate(gains),
        js=js,
        snr=snr,
        sigma=sigma,
        gains=gains.tolist(),
    )
