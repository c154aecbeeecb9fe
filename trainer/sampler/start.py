"""Where the training of a sampler starts: its directions, and the σ that the vocabulary head suggests.

Thoughts that are nearly embeddings of tokens (spelled thoughts) come with a distribution: what the
vocabulary head expects at the hidden state from which a thought is made. Its covariance says how
uncertain the reasoner is there, and in which directions. With `start=vocabulary` the log-std head is
fitted to it before the first step, as a function of the context, which is all that a sampler sees.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from latent.errors import InputError
from latent.noise import derive_seed
from latent.samplers import GaussianThoughtSampler
from trainer.data.questions import Question
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment

__all__ = ["fit_spread", "principal_directions", "start_heads"]

_DIRECTION_QUESTIONS = 256  # whose thoughts tell the principal directions
_SMALLEST_SPREAD = 1e-4  # relative to the largest; below it a direction is rounding
_FIT_QUESTIONS = 768
_FIT_STEPS = 2500
_FIT_BATCH = 512
_FIT_RATE = 3e-3


def start_heads(
    heads: GaussianThoughtSampler,
    environment: Environment,
    questions: Sequence[Question],
    config: SamplerConfig,
) -> None:
    """Set the heads as `directions` and `start` ask for."""
    if not config.directions:
        return
    assert heads.directions is not None
    contexts = environment.contexts(questions[:_DIRECTION_QUESTIONS])
    heads.directions.copy_(principal_directions(contexts, config.directions))
    if config.start == "vocabulary":
        spread = environment.token_spread(questions[:_FIT_QUESTIONS], heads.directions)
        fit_spread(heads, spread.contexts, spread.variances, derive_seed(config.seed, "start"))
        with torch.no_grad():
            _layer(heads.log_std, -1).bias.add_(config.log_std_bias)


def principal_directions(contexts: Tensor, count: int) -> Tensor:
    """The directions in which contexts (…, D) differ most, each as long as their spread: (R, D)."""
    flat = contexts.flatten(0, -2).double()
    covariance = torch.cov(flat.T, correction=0)  # (D, D)
    variances, vectors = torch.linalg.eigh(covariance)  # ascending
    spread = variances[-count:].clamp(min=0).sqrt().flip(0)  # (R,)
    if len(spread) < count or not spread[-1] > _SMALLEST_SPREAD * spread[0]:
        raise InputError(
            f"the thoughts differ in fewer than {count} directions; give fewer", param="directions"
        )
    directions: Tensor = (vectors[:, -count:].flip(1) * spread).T
    return directions.to(contexts.dtype)


def fit_spread(
    heads: GaussianThoughtSampler, contexts: Tensor, variances: Tensor, seed: int
) -> None:
    """Fit σ² of the contexts (M, D) to the variances (M, R), by the likelihood of a Gaussian; μ stays 0.

    The likelihood weighs the states where the variance is large, which a fit of log σ would leave at
    the mean of the others.
    """
    with torch.no_grad():
        # Contexts may be small, and the first layers are made for inputs of unit spread.
        for head in (heads.mean, heads.log_std):
            _layer(head, 0).weight.div_(contexts.std())
        _layer(heads.log_std, -1).bias.zero_()
    floor = torch.tensor(2.0 * heads.log_std_floor).exp()
    variances = variances + floor.to(variances)
    optimizer = torch.optim.Adam(heads.log_std.parameters(), lr=_FIT_RATE)
    generator = torch.Generator().manual_seed(seed)
    for step in range(_FIT_STEPS):
        rows = torch.randint(len(contexts), (_FIT_BATCH,), generator=generator).to(contexts.device)
        for group in optimizer.param_groups:
            group["lr"] = _FIT_RATE * (1.0 - step / _FIT_STEPS)
        log_std = heads.log_std(contexts[rows])  # (512, R), without the floor: it has no gradient
        loss = (log_std + 0.5 * variances[rows] * (-2.0 * log_std).exp()).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(heads.log_std.parameters(), 1.0)
        optimizer.step()
    heads.zero_grad()


def _layer(head: nn.Sequential, index: int) -> nn.Linear:
    layer = head[index]
    assert isinstance(layer, nn.Linear)
    return layer
