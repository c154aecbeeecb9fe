"""The checkpoint format: complete or refused, never of another run, never with NaN."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from latent.errors import FormatError, MismatchError
from trainer.runs.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    RunLog,
    module_tensors,
    optimizer_tensors,
    read_log,
    restore_module,
    restore_optimizer,
)
from trainer.runs.divergence import DivergedError

IDENTITY = {"lr": 0.1, "stage_steps": (1, 2)}


def loaded(folder: CheckpointFolder) -> Checkpoint:
    found: list[Checkpoint] = []
    folder.resume(found.append)
    return found[0]


def checkpoint(step: int, value: float = 1.0) -> Checkpoint:
    return Checkpoint(step, 7, {"heads": {"weight": torch.tensor([value])}}, {"seconds": 2.5})


def test_a_checkpoint_comes_back_whole(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "sampler", IDENTITY)
    assert folder.resume(lambda saved: pytest.fail("there is none")) == 0
    folder.save(checkpoint(3))
    folder.save(checkpoint(4, value=2.0))
    again = loaded(CheckpointFolder(tmp_path, "sampler", IDENTITY))
    assert (again.step, again.log_bytes, again.values) == (4, 7, {"seconds": 2.5})
    assert again.tensors["heads"]["weight"].item() == 2.0
    names = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert names == {"sampler.json", "step-0000004.safetensors"}


def test_another_identity_is_refused_by_the_first_value_that_differs(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path, "backbone", IDENTITY).save(checkpoint(1))
    other = CheckpointFolder(tmp_path, "backbone", {**IDENTITY, "lr": 0.2})
    with pytest.raises(MismatchError, match=r"begun with lr = 0\.1, not 0\.2"):
        loaded(other)
    added = CheckpointFolder(tmp_path, "backbone", {**IDENTITY, "data": "abc"})
    with pytest.raises(MismatchError, match="begun with data = None, not 'abc'"):
        loaded(added)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_never_replace_a_checkpoint(
    tmp_path: Path, value: float
) -> None:
    folder = CheckpointFolder(tmp_path, "backbone", IDENTITY)
    folder.save(checkpoint(1))
    with pytest.raises(DivergedError, match="heads/weight is not finite at step 2"):
        folder.save(checkpoint(2, value))
    assert loaded(folder).step == 1


def test_a_state_that_does_not_fit_is_one_clear_error(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "backbone", IDENTITY)
    folder.save(checkpoint(1))
    with pytest.raises(FormatError, match=r"is not a checkpoint of this trainer .*'weight'"):
        folder.resume(lambda saved: restore_module(nn.Linear(1, 1), saved.tensors["weight"]))
    with pytest.raises(FormatError, match="weights are those of another model"):
        folder.resume(lambda saved: restore_module(nn.Linear(1, 1), saved.tensors["heads"]))


def test_tied_weights_are_saved_once_and_restored_tied(tmp_path: Path) -> None:
    def tied() -> nn.ModuleList:
        parts = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        parts[1].weight = parts[0].weight
        return parts

    model, fresh = tied(), tied()
    folder = CheckpointFolder(tmp_path, "backbone", IDENTITY)
    folder.save(Checkpoint(1, 0, {"model": module_tensors(model)}, {}))
    restore_module(fresh, loaded(folder).tensors["model"])
    assert torch.equal(fresh[1].weight, model[0].weight)
    assert fresh[1].weight is fresh[0].weight


def test_an_optimizer_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    def step(weight: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        weight.square().sum().backward()
        optimizer.step()

    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    step(weight, optimizer)
    copy = nn.Parameter(weight.detach().clone())
    restored = torch.optim.Adam([copy], lr=0.1)
    folder = CheckpointFolder(tmp_path, "sampler", IDENTITY)
    folder.save(Checkpoint(1, 0, {"optimizer": optimizer_tensors(optimizer)}, {}))
    restore_optimizer(restored, loaded(folder).tensors["optimizer"])
    step(weight, optimizer)
    step(copy, restored)
    assert torch.equal(weight, copy)


def test_a_log_is_cut_back_to_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with RunLog(path, 0) as log:
        log.write({"step": 1})
        size = log.sync()
        log.write({"step": 2})
    with path.open("a") as file:
        file.write('{"st')  # a line that a kill cut short
    assert [record["step"] for record in read_log(path)] == [1, 2]
    with RunLog(path, size) as log:
        log.write({"step": 2, "again": True})
    assert read_log(path) == [{"step": 1}, {"step": 2, "again": True}]
    path.write_text(json.dumps({"step": 1})[:3])
    with pytest.raises(FormatError, match="shorter than its checkpoint says"):
        RunLog(path, size)
