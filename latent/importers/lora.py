"""LoRA adapters: the keys that they split a weight into, and the merge back into one."""

import re
from collections.abc import Collection, Mapping

import torch

from latent.importers.keys import Shapes
from latent.merging import add_low_rank

__all__ = ["lora_ranks", "lora_shapes", "merge_lora"]

BASE, LORA_A, LORA_B = "base_layer", "lora_A.default.weight", "lora_B.default.weight"
_ADAPTED = re.compile(rf"(.+)\.(?:{BASE}\.(?:weight|bias)|lora_[AB]\.default\.weight)")


def lora_shapes(
    shapes: Shapes, found: Mapping[str, torch.Tensor], transposed: Collection[str]
) -> Shapes:
    """Compute the shapes of the keys that stand for these weights where modules are adapted."""
    adapted = _adapted_modules(found)
    split: Shapes = {}
    for name, shape in shapes.items():
        module, _, kind = name.rpartition(".")
        if module not in adapted:
            split[name] = shape
            continue
        split[f"{module}.{BASE}.{kind}"] = shape
        if kind == "weight":
            size_out, size_in = reversed(shape) if module in transposed else shape
            rank = _rank(found, module)
            split[f"{module}.{LORA_A}"] = (rank, size_in)
            split[f"{module}.{LORA_B}"] = (size_out, rank)
    return split


def merge_lora(
    weights: Mapping[str, torch.Tensor],
    alpha: float,
    transposed: Collection[str],
    dtype: torch.dtype,
) -> dict[str, torch.Tensor]:
    """Compute W + (α/r)·B·A of every adapted module in float64, then round it to `dtype`."""
    adapted = _adapted_modules(weights)
    merged = {}
    for name, tensor in weights.items():
        match = _ADAPTED.fullmatch(name)
        if match is None:
            merged[name] = tensor
        elif name.startswith(f"{match[1]}.{BASE}."):
            merged[name.replace(f".{BASE}.", ".")] = tensor
    for module in adapted:
        a, b = weights[f"{module}.{LORA_A}"], weights[f"{module}.{LORA_B}"]
        base, scale = merged[f"{module}.weight"], alpha / len(a)
        whole = add_low_rank(base, a, b, scale, is_transposed=module in transposed)
        merged[f"{module}.weight"] = whole.to(dtype).contiguous()
    return merged


def lora_ranks(weights: Mapping[str, torch.Tensor]) -> list[int]:
    """List the different ranks of the adapters, in order."""
    return sorted({_rank(weights, module) for module in _adapted_modules(weights)})


def _adapted_modules(names: Collection[str]) -> list[str]:
    matches = (_ADAPTED.fullmatch(name) for name in names)
    return list(dict.fromkeys(match[1] for match in matches if match))


def _rank(found: Mapping[str, torch.Tensor], module: str) -> int:
    """Read r from A, or from B where A is missing; at least 1, so that an empty A is misshapen."""
    a, b = found.get(f"{module}.{LORA_A}"), found.get(f"{module}.{LORA_B}")
    if a is not None and a.ndim == 2:
        return max(1, a.shape[0])
    return max(1, b.shape[1]) if b is not None and b.ndim == 2 else 1
