"""Checkpoints on disk, whole or sharded, safetensors or pickled. Knows no key by name.

Pickles from elsewhere are read here only, with `weights_only=True`; the trainer reads back its own
in the same way.
"""

import hashlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from latent.errors import FormatError, NotFoundError
from latent.files import load_tensors, read_weight_map
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
        """Compute the name and SHA-256 of each file."""
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
    weight_map = read_weight_map(index)
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


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    read: Callable[[Path], dict[str, torch.Tensor]] = (
        load_tensors if path.suffix == ".safetensors" else _load_pickle
    )
    return read(path)


def _load_pickle(path: Path) -> dict[str, torch.Tensor]:
    """Read what torch.save wrote, if it is names and tensors and nothing else."""
    if not path.is_file():
        raise NotFoundError(f"{path} does not exist")
    _check_archive(path)
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
    size = path.stat().st_size
    others = [
        key if isinstance(key, str) else f"a key of type {type(key).__name__}"
        for key, value in data.items()
        if not isinstance(key, str) or not _is_plain(value, size)
    ]
    if others or not data:
        found = f"{few(others)} in it is no named tensor" if others else "it is empty"
        raise FormatError(f"{path} is not a state_dict of tensors: {found}")
    return data


def _check_archive(path: Path) -> None:
    """Refuse a zip archive that unpacks to more than its size: torch.save compresses nothing."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except Exception as error:  # a damaged archive fails in any way there is
        raise FormatError(
            f"{path} is truncated or not a torch.save file ({type(error).__name__})"
        ) from error
    if unpacked > path.stat().st_size:
        raise FormatError(f"{path} is not a torch.save file: it unpacks to {unpacked} bytes")


def _is_plain(value: object, file_size: int) -> bool:
    """Whether this is a dense tensor with no more bytes than its file: a stride of 0 repeats them."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.is_quantized or value.is_nested)
        and value.nbytes <= file_size
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
