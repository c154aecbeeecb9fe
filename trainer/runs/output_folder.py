"""Where a command writes: a folder that is nothing else's, and one writer's at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from latent.errors import InputError

__all__ = ["Kind", "claimed"]

Kind = Literal["a sampler's training", "a backbone's training", "an evaluation", "a comparison"]

# What tells that a folder holds something, which another command must not write over.
_MARKS: dict[str, str] = {
    "reasoner.json": "a reasoner",
    "checkpoint": "a sampler's training",
    "checkpoint.pt": "a backbone's training",
    "parts": "an evaluation",
}


@contextmanager
def claimed(out: Path, kind: Kind, *, is_first: bool = True) -> Iterator[None]:
    """Hold `out` for a run of this kind; of several ranks, the first one holds it for all.

    A folder that was made for a run which then wrote nothing goes away again.
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
            with suppress(OSError):  # it holds something now
                out.rmdir()


def _check(out: Path, kind: Kind) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file, and the results need a folder", param="out")
    for mark, held in _MARKS.items():
        if held != kind and (out / mark).exists():
            raise InputError(f"{out} holds {held}; use another --out", param="out")


def _lock(folder: int, out: Path) -> None:
    """Lock the folder until it is closed, or its process ends; some file systems have no locks."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"another run is writing into {out}; wait for it, or use another --out", param="out"
        ) from None
    except OSError:
        pass
