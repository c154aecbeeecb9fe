"""Hashing of weights: the digest, and the memory that it takes."""

import hashlib
import json
import tracemalloc
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from latent.errors import FormatError
from latent.files import raw_tensors, tensors_digest
from latent.folders import fingerprint, read_sampler_card, sampler_folders, weights_digest
from latent.zoo import embedded_models

MIB = 2**20


def test_the_fingerprint_is_the_one_that_the_samplers_were_trained_for() -> None:
    cards = [
        (fingerprint(folder), read_sampler_card(sampler).reasoner_fingerprint)
        for folder in embedded_models().values()
        for sampler in sampler_folders(folder).values()
    ]
    assert cards, "there are embedded samplers"
    assert all(own == trained_for for own, trained_for in cards)


def test_the_digest_is_over_names_types_shapes_and_bytes_of_all_files(tmp_path: Path) -> None:
    first = torch.arange(3 * MIB, dtype=torch.uint8)  # in several chunks
    empty, last = torch.zeros(0, 4), torch.tensor([[1.5, -2.0]])
    save_file({"b": first, "d": empty}, tmp_path / "1.safetensors")
    save_file({"a": last}, tmp_path / "2.safetensors", metadata={"note": "not hashed"})
    expected = hashlib.sha256()
    for name, kind, tensor in (("a", "F32", last), ("b", "U8", first), ("d", "F32", empty)):
        expected.update(json.dumps([name, kind, list(tensor.shape)]).encode())
        expected.update(tensor.numpy().tobytes())
    assert weights_digest(tmp_path) == expected.hexdigest()


def test_hashing_holds_a_small_part_of_the_file_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    save_file({"x": torch.zeros(32 * MIB, dtype=torch.uint8)}, path)
    tensors_digest(raw_tensors(path))  # imports are not counted
    tracemalloc.start()
    try:
        tensors_digest(raw_tensors(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


@pytest.mark.parametrize("offsets", [[0, 9], [-8, 0], [8, 0], [0], "xy"])
def test_offsets_outside_the_file_are_refused(tmp_path: Path, offsets: object) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": offsets}}).encode()
    path = tmp_path / "bad.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(FormatError, match="truncated or not a safetensors file"):
        tensors_digest(raw_tensors(path))
