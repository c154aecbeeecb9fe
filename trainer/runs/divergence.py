"""Stops a training whose loss, gradient or weights are no longer finite, before anything is saved."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from latent.errors import GtsError

__all__ = ["DivergedError", "check_finite", "clip_gradients"]


class DivergedError(GtsError):
    """Training has produced a value that is not finite; the last checkpoint stands."""


def clip_gradients(
    parameters: Iterable[nn.Parameter], max_norm: float, loss: Tensor, step: int
) -> float:
    """Clip the total gradient norm and return it; call between `backward` and the optimizer's step.

    A finite loss can have a gradient that is not, and one step with it makes every weight NaN.
    """
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    if not (loss.isfinite() and norm.isfinite()):
        raise DivergedError(
            f"training diverged at step {step} (loss {loss.item():g}, gradient norm {norm.item():g}); "
            "the last checkpoint stands: lower lr"
        )
    return norm.item()


def check_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    """Refuse tensors that hold NaN or infinity, naming the first."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise DivergedError(
                f"{name} is not finite at step {step}; the last checkpoint stands: lower lr"
            )
