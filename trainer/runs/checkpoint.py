"""The one checkpoint format of all trainings, and the log that belongs to it.

A checkpoint is `checkpoint/<kind>.json`, which names a safetensors file beside it: the JSON file is
replaced last and atomically, so a killed run finds the old checkpoint or the new one, whole. It holds
the run's identity: a run with other settings, data or reasoner is refused.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from latent.errors import FormatError, MismatchError
from latent.files import load_tensors, read_json, save_tensors, write_json
from trainer.runs.divergence import check_finite

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "RunLog",
    "check_identity",
    "module_tensors",
    "optimizer_tensors",
    "read_log",
    "restore_module",
    "restore_optimizer",
]

_FORMAT = 2
# Checkpoints of earlier versions, which this one can't resume.
_OUTDATED = ("checkpoint.pt", "checkpoint/checkpoint.json")


def check_identity(saved: Mapping[str, Any], current: Mapping[str, Any], out: Path) -> None:
    """Refuse to continue a run that was begun differently, naming the first value that differs.

    An identity is all that must be equal: settings, digests of the data, the reasoner's fingerprint.
    """
    for name in (*current, *saved):
        if saved.get(name) != current.get(name):
            raise MismatchError(
                f"{out} was begun with {name} = {saved.get(name)!r}, not {current.get(name)!r}; "
                "use the same command to go on, or another --out",
                param="out",
            )


@dataclass(frozen=True)
class Checkpoint:
    """State of a training after `step` steps."""

    step: int
    log_bytes: int  # length of the log at that step
    tensors: dict[str, dict[str, Tensor]]  # by part (model, optimizer, …) and name
    values: dict[str, Any]  # whatever else is needed, as JSON


class CheckpointFolder:
    """Saves and loads the checkpoint of the run in `out`; of several ranks only the first saves."""

    def __init__(
        self, out: Path, kind: Literal["sampler", "backbone"], identity: Mapping[str, Any]
    ) -> None:
        self._out = out
        self._folder = out / "checkpoint"
        self._index = self._folder / f"{kind}.json"
        # As JSON gives it back: tuples become lists.
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return self._index.is_file()

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint and remove the previous tensors; refuse tensors that are not finite."""
        tensors = {
            f"{part}/{name}": tensor
            for part, named in checkpoint.tensors.items()
            for name, tensor in named.items()
        }
        check_finite(tensors, checkpoint.step)
        path = self._folder / f"step-{checkpoint.step:07d}.safetensors"
        save_tensors(path, tensors)
        index = {
            "format": _FORMAT,
            "tensors": path.name,
            "step": checkpoint.step,
            "log_bytes": checkpoint.log_bytes,
            "values": checkpoint.values,
            "identity": self._identity,
        }
        write_json(self._index, index)
        for old in self._folder.glob("step-*.safetensors"):
            if old != path:
                old.unlink()

    def resume(self, restore: Callable[[Checkpoint], None]) -> int:
        """Hand the checkpoint to `restore` and return the length of its log; 0 if there is none.

        A checkpoint of another run, of an earlier version, or damaged, is refused and left alone.
        """
        for name in _OUTDATED:
            if (self._out / name).exists():
                raise FormatError(
                    f"{self._out / name} was written by an earlier version and can't be resumed; "
                    "delete it to start anew, or use another --out",
                    param="out",
                )
        if not self.exists:
            return 0
        index = read_json(self._index)
        try:
            if index["format"] != _FORMAT:
                raise ValueError(f"format {index['format']}, not {_FORMAT}")
            check_identity(index["identity"], self._identity, self._out)
            parts: dict[str, dict[str, Tensor]] = {}
            for key, tensor in load_tensors(self._folder / index["tensors"]).items():
                part, _, name = key.partition("/")
                parts.setdefault(part, {})[name] = tensor
            saved = Checkpoint(index["step"], index["log_bytes"], parts, index["values"])
            restore(saved)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise FormatError(
                f"{self._index} is not a checkpoint of this trainer ({error!r}); delete "
                f"{self._folder} to start anew"
            ) from error
        return saved.log_bytes


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """State of a module without frozen weights; tied ones once: safetensors refuses shared memory."""
    every = dict(module.named_parameters(remove_duplicate=False))
    trained = {name for name, each in module.named_parameters() if each.requires_grad}
    omitted = every.keys() - trained
    return {name: tensor for name, tensor in module.state_dict().items() if name not in omitted}


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `module_tensors` returned."""
    if tensors.keys() != module_tensors(module).keys():
        raise ValueError("its weights are those of another model")
    module.load_state_dict(tensors, strict=False)  # not strict: the second names of tied weights


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Per-parameter state of an optimizer; its hyperparameters come from the settings."""
    return {
        f"{index}/{name}": value
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, _, name = key.partition("/")
        state.setdefault(int(index), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


class RunLog:
    """The JSON-lines log of a run, cut back to its checkpoint: a resumed run repeats the rest."""

    def __init__(self, path: Path, size: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        if self._file.tell() < size:
            self._file.close()
            raise FormatError(f"{path} is shorter than its checkpoint says: it was changed")
        self._file.truncate(size)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record."""
        self._file.write(json.dumps(record).encode() + b"\n")
        self._file.flush()

    def sync(self) -> int:
        """Force the log to disk and return its length, for a checkpoint."""
        os.fsync(self._file.fileno())
        return self._file.tell()


def read_log(path: Path) -> list[dict[str, Any]]:
    """All records; a last line that was cut short by a kill is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]
