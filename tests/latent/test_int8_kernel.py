"""The compiled int8 kernel: the bits of the torch version, for any rows, widths and threads."""

from pathlib import Path

import pytest
import torch

from latent import int8
from latent.int8 import Int8Linear, RowQuantiser
from latent.int8_kernel import Kernel, load_kernel


@pytest.fixture
def kernel() -> Kernel:
    found = load_kernel()
    if found is None:
        flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
        assert "avx512_vnni" not in flags, "`make install` compiles latent/int8.c"
        pytest.skip("this CPU has no AVX512-VNNI: torch computes the same")
    return found


def _torch_layer(monkeypatch: pytest.MonkeyPatch, layer: tuple[torch.Tensor, ...]) -> Int8Linear:
    with monkeypatch.context() as patch:
        patch.setattr(int8, "load_kernel", lambda: None)
        weight, *bias = layer
        return Int8Linear(weight, bias[0] if bias else None, RowQuantiser())


@pytest.mark.parametrize("rows", [1, 15, 16, 33])
@pytest.mark.parametrize(("width", "out"), [(32, 1), (64, 16), (576, 50), (1536, 33)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_layer_has_the_bits_of_the_torch_version(
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    width: int,
    out: int,
    biased: bool,
) -> None:
    torch.manual_seed(rows)
    layer = (torch.randn(out, width), torch.randn(out))[: 1 + biased]
    inputs = torch.randn(rows, width) * torch.logspace(-30, 20, rows)[:, None]
    inputs[0] = 0.0
    plain = _torch_layer(monkeypatch, layer)
    assert plain.weight.dtype != torch.uint8, "not the kernel's packed weights"
    own = Int8Linear(layer[0], layer[1] if biased else None, RowQuantiser())
    assert (own._quantiser(inputs).sums is not None) == int8.has_int8_product()
    assert torch.equal(own(inputs), plain(inputs))


def test_a_row_that_has_overflowed_gives_no_numbers_and_changes_no_other(kernel: Kernel) -> None:
    weight, inputs = torch.randn(24, 96), torch.randn(20, 96)
    layer = Int8Linear(weight, None, RowQuantiser())
    whole = layer(inputs)
    for bad in (float("nan"), float("inf")):
        spoilt = inputs.clone()
        spoilt[3, 7] = bad
        out = layer(spoilt)
        assert out[3].isnan().all()
        kept = [row for row in range(20) if row != 3]
        assert torch.equal(out[kept], whole[kept])


def test_threads_change_no_bit(kernel: Kernel) -> None:
    torch.manual_seed(0)
    layer = Int8Linear(torch.randn(2**16 + 5, 64), torch.randn(2**16 + 5), RowQuantiser())
    inputs, before = torch.randn(17, 64), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(layer(inputs))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_layers_of_odd_width_are_computed_by_torch(kernel: Kernel) -> None:
    layer = Int8Linear(torch.randn(8, 40), None, RowQuantiser())
    assert layer.weight.shape == (8, 40)
    assert layer(torch.randn(3, 40)).shape == (3, 8)
