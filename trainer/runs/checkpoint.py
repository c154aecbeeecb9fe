"""The files of a backbone run: its checkpoint, and the log that a restart cuts back."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from latent.errors import FormatError
from latent.files import write_atomically, write_text


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically."""
    write_atomically(path, lambda temporary: torch.save(dict(state), temporary))


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint; None when there is none, FormatError when it is damaged."""
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, ValueError) as error:
        raise FormatError(
            f"{path} is damaged and can't be resumed; delete it to start anew"
        ) from error
    if not isinstance(state, dict) or "step" not in state:
        raise FormatError(f"{path} is not a checkpoint of this trainer; delete it to start anew")
    return state


class JsonLog:
    """A JSONL file in which a resumed run writes over what it repeats."""

    def __init__(self, path: Path, step: int) -> None:
        """Keep the records of steps up to `step`, drop the rest."""
        self._path = path
        kept = [record for record in read_log(path) if record["step"] <= step]
        lines = "".join(json.dumps(record) + "\n" for record in kept)
        write_text(path, lines)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the records; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]
