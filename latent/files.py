"""Files on disk: atomic writes, and JSON and safetensors headers read without trusting them."""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from latent.errors import FormatError, NotFoundError

__all__ = [
    "cache_folder",
    "checked_fields",
    "checked_number",
    "checked_type",
    "load_tensors",
    "raw_tensors",
    "read_json",
    "read_weight_map",
    "save_tensors",
    "tensor_dtypes",
    "tensors_digest",
    "user_place",
    "write_atomically",
    "write_json",
    "write_text",
]

_HEADER_LIMIT = 100 * 2**20
_CHUNK_BYTES = 2**20


def cache_folder() -> Path | None:
    """Where what was computed is kept for the next start; None if GTS_CACHE is set and empty."""
    given = os.environ.get("GTS_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "gts" if given is None else Path(given) if given else None


def user_place(kind: str, name: str, key: str) -> Path:
    """Where the user's own file or folder for what is installed is: only pip writes into the package.

    `key` is the fingerprint of the reasoner, or of a panel's members: what was made for another
    version of them has another name, and is not found.
    """
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(data) / "gts" / kind / f"{name}-{key[:12]}"


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Call `write` on a temporary file in the same folder, sync it, and rename it over `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_text(path: Path, text: str) -> None:
    """Write text, atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, data: Any) -> None:
    """Write JSON, atomically."""
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    write_text(path, text)


def read_json(path: Path) -> Any:
    """Read JSON, or say which file is missing or broken."""
    if not path.is_file():  # nor is a device, which may have no end
        raise NotFoundError(f"{path} does not exist")
    try:
        if path.stat().st_size > _HEADER_LIMIT:
            raise ValueError(f"it has more than {_HEADER_LIMIT} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not readable JSON: {error}") from error


def checked_fields(data: Any, names: Sequence[str], at: str) -> dict[str, Any]:
    """The fields of a JSON object that must have exactly these; a ValueError names the wrong one."""
    if not isinstance(data, dict):
        raise ValueError(f"{at.rstrip('.') or 'the file'} must be an object")
    missing, unknown = [n for n in names if n not in data], sorted(set(data) - set(names))
    if missing or unknown:
        what = f"{at}{missing[0]} is missing" if missing else f"{at}{unknown[0]} is unknown"
        raise ValueError(what)
    return dict(data)


def checked_type(value: Any, kind: type, at: str) -> Any:
    """A JSON value of this type, or a ValueError."""
    if type(value) is not kind:
        names = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}
        raise ValueError(f"{at} must be {names[kind]}")
    return value


def checked_number(value: Any, at: str) -> float:
    """A finite number, or a ValueError."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{at} must be a finite number")
    return float(value)


def read_weight_map(index: Path) -> dict[str, str]:
    """Read which shard holds which tensor; refuse names that are not of files beside the index."""
    data = read_json(index)
    weight_map = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(f"{index} has no weight_map from tensor names to files")
    for name in weight_map.values():
        if not isinstance(name, str) or name != Path(name).name or name.endswith(".json"):
            raise FormatError(f"{index}: weight_map names {name!r}, which is not a file beside it")
    return weight_map


def save_tensors(path: Path, tensors: dict[str, Any]) -> None:
    """Write a safetensors file that knows its own digest, atomically."""
    from safetensors.torch import save_file  # brings torch, which listing folders does not need

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    def write(temporary: Path) -> None:
        save_file(contiguous, temporary)
        digest = tensors_digest(raw_tensors(temporary))
        save_file(contiguous, temporary, metadata={"sha256": digest})

    write_atomically(path, write)


def load_tensors(path: Path) -> dict[str, Any]:
    """Read a safetensors file, or say that it is missing, truncated, corrupt or damaged."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    if not path.is_file():
        raise NotFoundError(f"{path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            recorded = (file.metadata() or {}).get("sha256")
        tensors: dict[str, Any] = load_file(path)
    except Exception as error:  # the header is data from elsewhere, and fails in many ways
        raise FormatError(f"{path} is truncated or not a safetensors file: {error}") from error
    if recorded is not None and recorded != tensors_digest(raw_tensors(path)):
        raise FormatError(f"{path} is damaged: its tensors are not those that were saved")
    return tensors


def tensor_dtypes(path: Path) -> dict[str, str]:
    """Read the name and type of each tensor from a safetensors header, as "F32" or "I8"."""
    from safetensors import safe_open

    if not path.is_file():
        raise NotFoundError(f"{path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # the header is data from elsewhere, and fails in many ways
        raise FormatError(f"{path} is truncated or not a safetensors file: {error}") from error


RawTensor = tuple[str, str, list[int], Iterator[bytes]]


def tensors_digest(tensors: Iterable[RawTensor]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, dtype, shape, chunks in sorted(tensors, key=lambda tensor: tensor[0]):
        digest.update(json.dumps([name, dtype, shape]).encode())
        for chunk in chunks:
            digest.update(chunk)
    return digest.hexdigest()


def raw_tensors(path: Path) -> Iterator[RawTensor]:
    """Name, dtype, shape and bytes of each tensor in a safetensors file; the bytes are read lazily."""
    if not path.is_file():
        raise NotFoundError(f"{path} does not exist")
    total = path.stat().st_size
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= min(_HEADER_LIMIT, total - 8):
                raise ValueError("its header does not fit")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        for name in sorted(header):
            entry = header[name]
            first, last = (8 + size + offset for offset in entry["data_offsets"])
            if not 8 + size <= first <= last <= total:
                raise ValueError(f"tensor {name} is cut off")
            yield name, entry["dtype"], entry["shape"], _chunks(path, first, last)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise FormatError(f"{path} is truncated or not a safetensors file: {error}") from error


def _chunks(path: Path, first: int, last: int) -> Iterator[bytes]:
    """Read the bytes from `first` to `last` in pieces, so that no whole file is held in memory."""
    with path.open("rb") as file:
        file.seek(first)
        for position in range(first, last, _CHUNK_BYTES):
            yield file.read(min(_CHUNK_BYTES, last - position))
