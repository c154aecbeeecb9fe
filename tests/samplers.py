"""Samplers for tests: any spec, with a random GTS behind `gts`."""

import torch

from latent.samplers import GaussianThoughtSampler, LearnedSampler, Sampler
from latent.specs import SamplerSpec


def make_sampler(text: str, width: int = 32, dtype: torch.dtype = torch.float64) -> Sampler:
    """Build a sampler from its spec."""
    spec = SamplerSpec.parse(text)
    if spec.kind != "gts":
        return Sampler(spec)
    torch.manual_seed(7)
    heads = GaussianThoughtSampler(width)
    for parameter in heads.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return LearnedSampler(spec, heads.to(dtype).requires_grad_(False))
