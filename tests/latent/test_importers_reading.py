import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from latent.errors import FormatError, NotFoundError
from latent.importers.checkpoints import read_checkpoint

STATE = {f"layer.{n}.weight": torch.randn(3, 4, dtype=torch.bfloat16) for n in range(12)}


class Runner:
    """A pickle of this runs a command when it is loaded without care."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (self.command,))


def same(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors.keys() == STATE.keys() and all(
        torch.equal(tensors[name], tensor) for name, tensor in STATE.items()
    )


def shard(folder: Path, stem: str, ending: str) -> Path:
    """Write STATE in two files and an index; give the index."""
    folder.mkdir()
    names = sorted(STATE)
    files = {f"{stem}-0000{n}-of-00002.{ending}": names[n - 1 :: 2] for n in (1, 2)}
    for file, keys in files.items():
        part = {key: STATE[key] for key in keys}
        save_file(part, folder / file) if ending == "safetensors" else torch.save(
            part, folder / file
        )
    weight_map = {key: file for file, keys in files.items() for key in keys}
    index = folder / f"{stem}.{ending}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


def test_a_file_or_the_folder_that_holds_it_is_read(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "checkpoint_33")
    save_file(STATE, tmp_path / "model.safetensors")
    assert same(read_checkpoint(tmp_path / "checkpoint_33").tensors)
    assert same(read_checkpoint(tmp_path / "model.safetensors").tensors)
    assert read_checkpoint(tmp_path).files == (tmp_path / "model.safetensors",)
    (tmp_path / "model.safetensors").unlink()
    torch.save(STATE, tmp_path / "pytorch_model.bin")
    assert same(read_checkpoint(tmp_path).tensors)


@pytest.mark.parametrize(("stem", "ending"), [("model", "safetensors"), ("pytorch_model", "bin")])
def test_a_sharded_folder_is_read_whole(tmp_path: Path, stem: str, ending: str) -> None:
    index = shard(tmp_path / "sharded", stem, ending)
    checkpoint = read_checkpoint(index.parent)
    assert same(checkpoint.tensors)
    assert same(read_checkpoint(index).tensors)
    digests = checkpoint.digests()
    assert digests[0]["file"] == index.name
    assert len({entry["sha256"] for entry in digests}) == 3


def test_a_shard_that_is_missing_or_disagrees_with_its_index_is_refused(tmp_path: Path) -> None:
    index = shard(tmp_path / "sharded", "model", "safetensors")
    first, second = sorted(index.parent.glob("*.safetensors"))
    content = second.read_bytes()
    second.unlink()
    with pytest.raises(NotFoundError, match="model-00002-of-00002"):
        read_checkpoint(index.parent)
    second.write_bytes(first.read_bytes())
    with pytest.raises(FormatError, match=r"disagree about layer\.\d+\.weight, .* and 4 more"):
        read_checkpoint(index.parent)
    second.write_bytes(content[:-10])
    with pytest.raises(FormatError, match=r"model-00002-of-00002\.safetensors is truncated"):
        read_checkpoint(index.parent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable JSON"),
        ("{}", "no weight_map"),
        ('{"weight_map": {"a": "../elsewhere.safetensors"}}', "not a file beside it"),
        ('{"weight_map": {"a": 3}}', "not a file beside it"),
    ],
)
def test_a_broken_index_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(FormatError, match=message):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("kind", ["archive", "legacy", "protocol 4", "bare"])
def test_a_pickle_that_tries_to_run_code_is_refused_and_does_not_run(
    tmp_path: Path, kind: str
) -> None:
    path, trace = tmp_path / "checkpoint_1", tmp_path / "it-ran"
    bad = {"a": torch.ones(2), "b": Runner(f"touch {trace}")}
    if kind == "bare":
        path.write_bytes(pickle.dumps({"b": bad["b"]}))
    else:
        torch.save(
            bad,
            path,
            pickle_protocol=4 if kind == "protocol 4" else 2,
            _use_new_zipfile_serialization=kind != "legacy",
        )
    with pytest.raises(FormatError, match="holds more than tensors") as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not trace.exists()


def test_a_pickle_of_something_else_is_refused(tmp_path: Path) -> None:
    for content, message in (
        ([torch.ones(2)], "holds a list"),
        ({"model": STATE, "step": 3}, "model, step in it is no named tensor"),
        ({3: torch.ones(2)}, "a key of type int in it is no named tensor"),
        ({}, "it is empty"),
    ):
        torch.save(content, tmp_path / "checkpoint_1")
        with pytest.raises(FormatError, match=message):
            read_checkpoint(tmp_path / "checkpoint_1")


def test_tensors_larger_than_their_file_and_packed_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint_1"
    torch.save({"a": torch.ones(1).expand(10**9), "b": torch.eye(2).to_sparse()}, path)
    with pytest.raises(FormatError, match="a, b in it is no named tensor"):
        read_checkpoint(path)
    torch.save({"a": torch.zeros(10**6)}, tmp_path / "plain")
    with (
        zipfile.ZipFile(tmp_path / "plain") as plain,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(FormatError, match=r"it unpacks to 40\d+ bytes"):
        read_checkpoint(path)


@pytest.mark.parametrize("name", ["checkpoint_1", "model.safetensors"])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    save_file(STATE, path) if path.suffix else torch.save(STATE, path)
    content = path.read_bytes()
    for size in (0, 5, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:size])
        with pytest.raises(FormatError, match=r"truncated or not a|holds more than tensors"):
            read_checkpoint(path)


def test_a_missing_checkpoint_is_refused_with_what_would_be_right(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="checkpoint_7 does not exist"):
        read_checkpoint(tmp_path / "checkpoint_7")
    with pytest.raises(NotFoundError, match=r"none of model\.safetensors, .*give the checkpoint"):
        read_checkpoint(tmp_path)
