"""A sampler run's checkpoint: whole or not there, and refused by any other run.

`checkpoint.json` names its tensor file, so the pair changes in one rename. Safetensors and JSON only.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from latent.errors import FormatError, MismatchError
from latent.files import load_tensors, read_json, save_tensors, write_json
from latent.samplers import GaussianThoughtSampler
from trainer.sampler.watch import Validation

__all__ = ["Identity", "RunFolder", "RunState"]


@dataclass(frozen=True)
class Identity:
    """What a run must share with a checkpoint to go on from it."""

    config: dict[str, Any]
    reasoner: str
    data: str
    validation: str

    def check(self, saved: dict[str, Any], where: Path) -> None:
        """Refuse a checkpoint of another run, naming the first field that differs."""
        mine, theirs = _flat(asdict(self)), _flat(saved)
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                raise MismatchError(
                    f"{where} was begun with {name} = {theirs.get(name)!r}, not {mine.get(name)!r}; "
                    "use the same command to go on, or another --out",
                    param=name,
                )


@dataclass
class RunState:
    """All that changes while training, beside the log."""

    heads: GaussianThoughtSampler
    reference: GaussianThoughtSampler
    optimiser: torch.optim.Optimizer
    best: dict[str, torch.Tensor]  # the heads at the best validation
    step: int = 0
    seconds: float = 0.0
    deterministic: float = 0.0  # the unperturbed accuracy on the validation questions
    validations: list[Validation] = field(default_factory=list)


class RunFolder:
    """The checkpoint of a run; every rank reads it, the first one writes it."""

    def __init__(self, out: Path, identity: Identity) -> None:
        self._folder = out / "checkpoint"
        self._identity = identity

    @property
    def _index(self) -> Path:
        return self._folder / "checkpoint.json"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is one to go on from."""
        return self._index.is_file()

    def save(self, state: RunState, log_bytes: int) -> None:
        """Write the tensors, then the index that names them, then forget the previous ones."""
        path = self._folder / f"step-{state.step:07d}.safetensors"
        save_tensors(path, dict(_tensors(state)))
        index = {
            "format": 1,
            "tensors": path.name,
            "log_bytes": log_bytes,
            "step": state.step,
            "seconds": state.seconds,
            "deterministic": state.deterministic,
            "validations": [asdict(validation) for validation in state.validations],
            "identity": asdict(self._identity),
        }
        write_json(self._index, index)
        for old in self._folder.glob("step-*.safetensors"):
            if old != path:
                old.unlink()

    def load(self, state: RunState) -> int:
        """Put the checkpoint into a fresh state; give the length of the log it belongs to."""
        index = read_json(self._index)
        try:
            self._identity.check(index["identity"], self._folder.parent)
            _restore(state, load_tensors(self._folder / index["tensors"]))
            state.step, state.seconds = index["step"], index["seconds"]
            state.deterministic = index["deterministic"]
            state.validations = [Validation(**entry) for entry in index["validations"]]
            return int(index["log_bytes"])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise FormatError(
                f"{self._index} is not a sampler checkpoint ({error!r}); delete {self._folder} to "
                "start anew"
            ) from error


def _tensors(state: RunState) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in state.heads.state_dict().items():
        yield f"heads.{name}", tensor
    for name, tensor in state.reference.state_dict().items():
        yield f"reference.{name}", tensor
    for name, tensor in state.best.items():
        yield f"best.{name}", tensor
    for number, values in state.optimiser.state_dict()["state"].items():
        for name, tensor in values.items():
            yield f"optimiser.{number}.{name}", tensor


def _restore(state: RunState, tensors: dict[str, torch.Tensor]) -> None:
    parts: dict[str, dict[str, torch.Tensor]] = {"heads": {}, "reference": {}, "best": {}}
    slots: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part == "optimiser":
            number, _, slot = rest.partition(".")
            slots.setdefault(int(number), {})[slot] = tensor.clone()
        else:
            parts[part][rest] = tensor
    state.heads.load_state_dict(parts["heads"])
    state.reference.load_state_dict(parts["reference"])
    state.best = {name: tensor.clone() for name, tensor in parts["best"].items()}
    groups = state.optimiser.state_dict()["param_groups"]
    state.optimiser.load_state_dict({"state": slots, "param_groups": groups})


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Bring the configuration's fields up beside the others."""
    return {**{k: v for k, v in values.items() if k != "config"}, **values.get("config", {})}
