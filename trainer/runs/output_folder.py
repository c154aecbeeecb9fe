"""The output folder of a command: refuses one that holds something else, locks it, writes into it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from latent.errors import InputError
from latent.files import write_atomically

__all__ = ["Kind", "claimed", "write_file"]

Kind = Literal[
    "a sampler's training",
    "a backbone's training",
    "a verifier's training",
    "an evaluation",
    "a comparison",
]

# Files that show what a folder holds, so that no other command writes into it.
_MARKERS: dict[str, str] = {
    "reasoner.json": "a reasoner",
    "checkpoint/sampler.json": "a sampler's training",
    "checkpoint/backbone.json": "a backbone's training",
    "verifier.json": "a verifier's training",
    "parts": "an evaluation",
    # Of earlier versions:
    "checkpoint/checkpoint.json": "a sampler's training",
    "checkpoint.pt": "a backbone's training",
}


@contextmanager
def claimed(out: Path, kind: Kind, *, is_first: bool = True) -> Iterator[None]:
    """Create and lock `out` for a run of this kind; of several ranks only the first locks it.

    A folder that was created here and is still empty at the end is removed.
    """
    _check(out, kind)
    if not is_first:
        yield
        return
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{out} can't be written: {error.strerror}", param="out") from error
    if not os.access(out, os.W_OK):
        os.close(folder)
        raise InputError(f"{out} can't be written: permission denied", param="out")
    try:
        _lock(folder, out)
        yield
    finally:
        os.close(folder)
        if is_new:
            with suppress(OSError):  # not empty
                out.rmdir()


def _check(out: Path, kind: Kind) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file, and the results need a folder", param="out")
    for marker, held in _MARKERS.items():
        if held != kind and (out / marker).exists():
            raise InputError(f"{out} holds {held}; use another --out", param="out")


def _lock(folder: int, out: Path) -> None:
    """Lock an open folder; closing it, or the end of the process, releases the lock."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"another run is writing into {out}; wait for it, or use another --out", param="out"
        ) from None
    except OSError:
        pass  # a file system without locks


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically; an OSError becomes an error that names the file."""

    def fill(temporary: Path) -> None:
        temporary.write_bytes(content)

    try:
        write_atomically(path, fill)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}", param="out") from error
