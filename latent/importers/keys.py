"""The keys of a checkpoint: which command reads it, which tensors it should hold, which are ignored."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch

from latent.errors import MismatchError
from latent.store import check_finite

__all__ = ["Shapes", "check_keys", "check_kind", "few", "without"]

Shapes = dict[str, tuple[int, ...]]
_NAMES_SHOWN = 8
# What keys begin with, by the command that reads them; the first that occurs decides.
_KINDS = {
    "coconut": ("base_causallm.",),
    "codi": ("codi.", "prj.", "projector."),
    "cot": ("transformer.", "model.", "lm_head."),
}


def check_kind(source: Path, names: Collection[str], kind: str) -> None:
    """Refuse a checkpoint that another command reads, and name that command."""
    for other, starts in _KINDS.items():
        found = next((name for name in names if name.startswith(starts)), None)
        if found is not None and other != kind:
            raise MismatchError(
                f"{source} holds {found}: import it with gts import {other}", param="checkpoint"
            )
        if found is not None:
            return


def without(
    tensors: Mapping[str, torch.Tensor], parts: Sequence[str]
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Leave out the modules `parts`, which no answer needs; say which of them were there."""
    counts = {part: sum(name.startswith(f"{part}.") for name in tensors) for part in parts}
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if not name.startswith(tuple(f"{part}." for part in parts))
    }
    notes = [f"ignored {part}.*, used in training only" for part in parts if counts[part]]
    return kept, notes


def check_keys(
    source: Path,
    expected: Mapping[str, tuple[int, ...]],
    found: Mapping[str, torch.Tensor],
    *,
    differences: Sequence[str] = (),
) -> None:
    """Refuse missing, unexpected, misshapen and non-finite tensors, and `differences` known already."""
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
    check_finite(found, source)


def few(names: Sequence[str]) -> str:
    """List the first names, and say how many more there are."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
