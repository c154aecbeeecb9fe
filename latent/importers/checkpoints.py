"""Checkpoints on disk, whole or sharded, safetensors or pickled. Knows no key by name.

This is the only place that reads pickles, and only with `weights_only=True`.
"""

import hashlib
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from latent.errors import FormatError, NotFoundError
from latent.files import load_tensors, read_json
from latent.importers.keys import few

__all__ = ["Checkpoint", "read_checkpoint"]

# What a folder may hold, in the order in which it is looked for.
_FILES_OF_A_FOLDER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_INDEX_SUFFIX = ".index.json"


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint, and the files that they came from."""

    path: Path
    tensors: dict[str, torch.Tensor]
    files: tuple[Path, ...]

    def digests(self) -> list[dict[str, str]]:
        """Give the name and SHA-256 of each file."""
        return [{"file": path.name, "sha256": _sha256(path)} for path in self.files]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint file, or the one that a folder holds."""
    file = _find(path)
    if not file.name.endswith(_INDEX_SUFFIX):
        return Checkpoint(path, _read_file(file), (file,))
    tensors, shards = _read_shards(file)
    return Checkpoint(path, tensors, (file, *shards))


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise NotFoundError(f"checkpoint {path} does not exist", param="checkpoint")
    found = next((path / name for name in _FILES_OF_A_FOLDER if (path / name).is_file()), None)
    if found is None:
        raise NotFoundError(
            f"{path} holds none of {', '.join(_FILES_OF_A_FOLDER)}; give the checkpoint file itself",
            param="checkpoint",
        )
    return found


def _read_shards(index: Path) -> tuple[dict[str, torch.Tensor], tuple[Path, ...]]:
    """Read every shard of an index; each must hold exactly the tensors that the index puts there."""
    weight_map = _weight_map(index)
    shards = tuple(index.parent / name for name in sorted(set(weight_map.values())))
    tensors: dict[str, torch.Tensor] = {}
    for shard in shards:
        held = _read_file(shard)
        listed = {key for key, name in weight_map.items() if name == shard.name}
        if held.keys() != listed:
            wrong = sorted(held.keys() ^ listed)
            raise FormatError(f"{shard} and {index.name} disagree about {few(wrong)}")
        tensors.update(held)
    return tensors, shards


def _weight_map(index: Path) -> dict[str, str]:
    data = read_json(index)
    weight_map = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(f"{index} has no weight_map from tensor names to files")
    for name in weight_map.values():
        # An index is data from elsewhere: it must not point outside its own folder.
        if not isinstance(name, str) or name != Path(name).name or name.endswith(_INDEX_SUFFIX):
            raise FormatError(f"{index}: weight_map names {name!r}, which is not a file beside it")
    return weight_map


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    read: Callable[[Path], dict[str, torch.Tensor]] = (
        load_tensors if path.suffix == ".safetensors" else _load_pickle
    )
    return read(path)


def _load_pickle(path: Path) -> dict[str, torch.Tensor]:
    """Read what torch.save wrote, if it is names and tensors and nothing else."""
    if not path.is_file():
        raise NotFoundError(f"{path} does not exist")
    try:
        with warnings.catch_warnings(action="ignore"):  # of pickle protocols; a failure says so
            data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        called = re.search(r"GLOBAL (\S+)", str(error))
        what = f"it refers to {called[1]}" if called else "or is damaged"
        raise FormatError(
            f"{path} holds more than tensors ({what}) and was not loaded; "
            "a checkpoint is torch.save of a state_dict"
        ) from error
    except Exception as error:  # a damaged pickle or archive fails in any way there is
        raise FormatError(
            f"{path} is truncated or not a torch.save file ({type(error).__name__})"
        ) from error
    if not isinstance(data, dict):
        raise FormatError(f"{path} holds a {type(data).__name__}, not a state_dict of tensors")
    others = [str(key) for key, value in data.items() if not isinstance(value, torch.Tensor)]
    others += [str(key) for key in data if not isinstance(key, str)]
    if others or not data:
        found = f"{few(others)} in it is no named tensor" if others else "it is empty"
        raise FormatError(f"{path} is not a state_dict of tensors: {found}")
    return data


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
