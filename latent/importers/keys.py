"""Whether a checkpoint holds exactly the tensors it should: every difference, in one error."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from latent.errors import MismatchError

__all__ = ["Shapes", "check_keys", "few"]

Shapes = dict[str, tuple[int, ...]]
_NAMES_SHOWN = 8


def check_keys(
    source: Path,
    expected: Mapping[str, tuple[int, ...]],
    found: Mapping[str, torch.Tensor],
    *,
    differences: Sequence[str] = (),
) -> None:
    """Refuse missing, unexpected and misshapen tensors, together with `differences` known already."""
    wrong = [
        f"{name} is {tuple(tensor.shape)}, not {expected[name]}"
        for name, tensor in found.items()
        if name in expected and tuple(tensor.shape) != expected[name]
    ]
    integers = [
        f"{name} is {str(tensor.dtype).removeprefix('torch.')}, not a floating type"
        for name, tensor in found.items()
        if name in expected and not tensor.is_floating_point()
    ]
    parts = (
        ("missing ", [name for name in expected if name not in found]),
        ("unexpected ", [name for name in found if name not in expected]),
        ("", [*wrong, *integers, *differences]),
    )
    problems = [f"{what}{few(names)}" for what, names in parts if names]
    if problems:
        raise MismatchError(
            f"{source} does not fit the base's config.json: {'; '.join(problems)}",
            param="checkpoint",
        )


def few(names: Sequence[str]) -> str:
    """List the first names, and say how many more there are."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
