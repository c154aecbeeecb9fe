"""The samplers: what is added to a thought, and how likely that was.

One small interface: `perturb` for what is added to a context; `dropout` and `temperature` for the
two samplers that act inside the decoder instead.

Choices where the paper is ambiguous:
1. The log-density is the mean over dimensions, not the sum (the paper's appendix).
2. The last layer of each head starts at zero, so an untrained sampler is StandardG (μ = 0, σ = 1);
   `log_std_bias` starts it at another scale. The paper's floor of log σ, −2, is a default: thoughts
   of a pretrained decoder may be as small as its embeddings (0.1), and σ must be smaller still.

Beyond the paper: with `directions` the Gaussian is diagonal along the principal directions of the
reasoner's thoughts instead of along their numbers. Where thoughts differ in few directions of many
dimensions, noise in all dimensions is either too small to change a thought or drowns it.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from latent.errors import SpecError
from latent.folders import LOG_STD_FLOOR
from latent.specs import SamplerSpec

__all__ = ["GaussianThoughtSampler", "LearnedSampler", "Sampler", "scale_at"]

_HALF_LOG_2PI = 0.9189385332046727


class Sampler:
    """A sampler without learned weights; the deterministic one adds nothing."""

    def __init__(self, spec: SamplerSpec) -> None:
        self.spec = spec

    @property
    def dropout(self) -> float:
        """The share of activations dropped during thoughts."""
        return (self.spec.value or 0.0) if self.spec.kind == "dropout" else 0.0

    @property
    def temperature(self) -> float:
        """The temperature at which reasoning text is sampled; 0 is greedy."""
        return (self.spec.value or 0.0) if self.spec.kind == "token" else 0.0

    @property
    def is_additive(self) -> bool:
        """Whether the sampler adds a perturbation to thoughts."""
        return self.spec.kind in ("gaussian", "gts")

    def noise_scales(self, indices: Sequence[int]) -> list[float] | None:
        """What the normals of each trajectory are multiplied by; None if all stay as they are."""
        return None

    def perturb(self, context: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
        """Compute z, which is added to contexts (…, D), from standard normals of the same shape."""
        if self.spec.kind == "gaussian":
            return epsilon * (self.spec.value or 1.0)
        return torch.zeros_like(context)


class GaussianThoughtSampler(nn.Module):
    """A context-dependent Gaussian over perturbations: two heads, 4D² + 4D parameters.

    It is diagonal in the D numbers of a thought, or, with `directions` = R > 0, in R coordinates u of
    which z = u · directions; then the heads put out R numbers each.
    """

    directions: torch.Tensor | None  # (R, D): orthogonal rows, as long as the thoughts' spread

    def __init__(
        self,
        width: int,
        *,
        log_std_bias: float = 0.0,
        log_std_floor: float = LOG_STD_FLOOR,
        directions: int = 0,
    ) -> None:
        super().__init__()
        self.width, self.log_std_floor = width, log_std_floor
        self.mean = _head(width, directions or width, 0.0)
        self.log_std = _head(width, directions or width, log_std_bias)
        self.register_buffer("directions", torch.eye(directions, width) if directions else None)

    def forward(self, context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute μ and log σ, each (…, D) or (…, R)."""
        return self.mean(context), self.log_std(context).clamp(min=self.log_std_floor)

    def sample(self, context: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
        """Draw z = μ + σ ⊙ ε, or (μ + σ ⊙ ε) · directions with the first R of ε: (…, D)."""
        mean, log_std = self(context)
        drawn = mean + log_std.exp() * epsilon[..., : mean.shape[-1]]
        return torch.as_tensor(drawn if self.directions is None else drawn @ self.directions)

    def log_prob(self, context: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Log-density of z (of its coordinates u), mean over dimensions: (…,)."""
        mean, log_std = self(context)
        if self.directions is not None:
            lengths = self.directions.square().sum(-1)  # (R,), squared
            z = z @ self.directions.T / lengths  # u: (…, R)
        scaled = (z - mean) / log_std.exp()
        return torch.as_tensor((-0.5 * scaled.square() - log_std - _HALF_LOG_2PI).mean(-1))


class LearnedSampler(Sampler):
    """Adapts trained heads to the `Sampler` interface.

    `schedule` has the scales of gts@auto, each by the first trajectory index that it holds for.
    """

    def __init__(
        self,
        spec: SamplerSpec,
        heads: GaussianThoughtSampler,
        schedule: Mapping[int, float] | None = None,
    ) -> None:
        super().__init__(spec)
        self.heads = heads
        self.schedule = dict(schedule or {})
        if spec.is_auto and not self.schedule:
            raise SpecError(
                f"sampler {str(spec)!r} needs scales in its card, and there are none; measure them "
                "(docs/samplers.md), or give one, as in gts@0.5",
                param="sampler",
            )

    def noise_scales(self, indices: Sequence[int]) -> list[float] | None:
        """The scale of each trajectory by the schedule, if this is gts@auto."""
        if not self.spec.is_auto:
            return None
        return [scale_at(self.schedule, index) for index in indices]

    def perturb(self, context: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
        """Draw z ~ N(μ(c), (s σ(c))²), (…, D), where s is the spec's scale."""
        scale = self.spec.value
        return self.heads.sample(context, epsilon if scale is None else epsilon * scale)


def scale_at(schedule: Mapping[int, float], index: int) -> float:
    """The scale of a trajectory: that of the last start up to its index, else of the first."""
    return schedule[max((start for start in schedule if start <= index), default=min(schedule))]


def _head(width: int, outputs: int, bias: float) -> nn.Sequential:
    first, last = nn.Linear(width, width), nn.Linear(width, outputs)
    nn.init.zeros_(last.weight)
    nn.init.constant_(last.bias, bias)
    return nn.Sequential(first, nn.SiLU(), last)
