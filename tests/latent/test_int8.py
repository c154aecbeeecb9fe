"""int8 layers: exact products, bounded rounding, no effect of batch-mates, less memory."""

import copy
import gc
import logging
import os
import subprocess
import sys
import weakref
from decimal import Decimal
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import GPT2Config, LlamaConfig

import latent
from cli.import_ import _stored_dtype
from latent import int8
from latent.attention import ATTENTION_NAME
from latent.device import resolve_dtype
from latent.errors import InputError
from latent.int8 import Int8Linear, Int8Part, RowQuantiser, fp32_product, quantise_rows
from latent.store import save_reasoner
from tests.reasoners import (
    QUESTIONS,
    gpt2_config,
    llama_config,
    make_reasoner,
    random_model,
)
from trainer.data.questions import Draw, Question
from trainer.sampler.episodes import ReasonerEnvironment, rollout_dtype

# A layer on numbers that any CPU makes alike; the first row and channel are extreme: 127 everywhere.
_LAYER = """
import hashlib, torch
from latent.int8 import Int8Linear, RowQuantiser
def values(*shape):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7919 % 1009).float() / 1009 - 0.5).view(shape)
weight, bias, inputs = values(96, 1504), values(96), values(33, 1504)
inputs[0] = weight[0] = 1.0
out = Int8Linear(weight, bias, RowQuantiser())(inputs)
digest = hashlib.sha256(out.numpy().tobytes()).hexdigest()
"""


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator)


@pytest.fixture
def without_int8_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave as on a CPU whose int8 products are wrong or slow."""
    monkeypatch.setattr(int8, "has_int8_product", lambda: False)


@pytest.mark.parametrize("rows", [1, 7, 16, 33])
@pytest.mark.parametrize(("width", "out"), [(37, 13), (128, 384), (1536, 40), (3072, 50)])
def test_products_are_exact_but_for_one_rounding_of_the_sum(
    rows: int, width: int, out: int
) -> None:
    extreme = torch.full((rows, width), 127, dtype=torch.int8)
    weights = torch.full((out, width), 127, dtype=torch.int8)
    weights[::2] = -127
    weights[:, ::7] = 126
    pairs = ((numbers(rows, width), numbers(out, width, seed=1)), (extreme, weights))
    for left, right in pairs:
        exact = (left.long() @ right.t().long()).float()
        assert torch.equal(fp32_product(left.float(), right.float()), exact)
        if int8.has_int8_product():
            assert torch.equal(torch._int_mm(left, right.t()).float(), exact)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_cpu_without_int8_products_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    here = make_reasoner("cot", architecture, dtype=torch.float32, is_int8=True)
    monkeypatch.setattr(int8, "has_int8_product", lambda: False)
    there = make_reasoner("cot", architecture, dtype=torch.float32, is_int8=True)
    prompts = [(1, 2, 3, 4, 5), (7, 8)]
    for one, other in zip(here.prefill(prompts), there.prefill(prompts), strict=True):
        assert torch.equal(one.kv, other.kv)
        assert torch.equal(here.logits(one.hidden[None]), there.logits(other.hidden[None]))


@pytest.mark.usefixtures("without_int8_product")
def test_without_int8_products_whole_numbers_are_held_in_fp32() -> None:
    layer = Int8Linear(torch.randn(6, 64), None, RowQuantiser())
    assert layer.weight.dtype == torch.float32, "converted once, not in every call"
    assert torch.equal(layer.weight, layer.weight.round())


def test_a_product_with_sums_of_16_bits_is_found_out() -> None:
    def saturating(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Sum pairs in 16 bits, as a CPU without VNNI does with torch._int_mm."""
        one = left.int().reshape(len(left), -1, 2, 1) + 128 * (left.int() * 0 + 1).reshape(
            len(left), -1, 2, 1
        )
        pairs = (one * right.int().reshape(-1, 2, right.shape[1])).sum(2).clamp(-32768, 32767)
        return pairs.sum(1, dtype=torch.int32) - 128 * right.sum(0, dtype=torch.int32)

    small = numbers(4, 40) // 4, numbers(40, 6, seed=1) // 4
    exact = small[0].int() @ small[1].int()
    assert torch.equal(saturating(*small), exact), "right where nothing saturates"
    assert not int8._is_exact(saturating)
    assert int8._is_exact(lambda left, right: left.int() @ right.int())


@pytest.mark.parametrize(
    "setting",
    ["ONEDNN_MAX_CPU_ISA=AVX2", "ATEN_CPU_CAPABILITY=default", "MKL_ENABLE_INSTRUCTIONS=AVX2"],
)
def test_a_layer_gives_the_same_bits_with_fewer_instructions(setting: str) -> None:
    here: dict[str, str] = {}
    exec(_LAYER, here)
    name, _, value = setting.partition("=")
    done = subprocess.run(
        [sys.executable, "-c", f"{_LAYER}\nprint(digest)"],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == here["digest"]


@pytest.mark.parametrize("biased", [False, True])
def test_stacked_layers_give_the_bits_of_each_by_itself(biased: bool) -> None:
    torch.manual_seed(0)
    parent = nn.Module()
    for name, out in (("q_proj", 40), ("k_proj", 8), ("v_proj", 24)):
        setattr(parent, name, nn.Linear(96, out, bias=biased))
    quantiser = RowQuantiser()
    alone = {
        name: Int8Linear(
            layer.weight.detach(), None if layer.bias is None else layer.bias.detach(), quantiser
        )
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear)
    }
    assert int8._stack(parent, tuple(alone), quantiser)
    for inputs in (torch.randn(1, 5, 96), torch.randn(1, 5, 96)):
        for name, part in parent.named_children():
            assert isinstance(part, Int8Part)
            assert torch.equal(part(inputs), alone[name](inputs))
        assert part._stack._last is None, "nothing is held once the last part has been given out"
    first = parent.q_proj(inputs)
    inputs.mul_(-1.0)
    assert torch.equal(parent.q_proj(inputs), alone["q_proj"](inputs))
    assert not torch.equal(parent.q_proj(inputs), first), "an input that has changed is another"


def test_rounding_is_within_half_a_step_of_each_rotated_row() -> None:
    values = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(
        -6, 6, 50
    ).view(-1, 1)
    values[0] = 0.0
    rounded, scales = quantise_rows(values)
    assert rounded.dtype == torch.int8
    assert rounded.abs().amax(-1).tolist() == [0, *[127] * 49]
    error = (rounded.double() * scales.double()).square().sum(-1).sqrt() - values.double().norm(
        dim=-1
    )
    assert (error.abs() <= 0.5001 * 8 * scales[:, 0]).all(), "a rotation keeps lengths"


def test_a_few_large_channels_do_not_take_the_steps_of_the_others() -> None:
    torch.manual_seed(0)
    inputs, weight = torch.randn(16, 512), torch.randn(96, 512)
    inputs[:, [3, 200]] *= 60
    weight[:, [3, 200]] *= 0.02
    exact = inputs @ weight.t()
    out = Int8Linear(weight, None, RowQuantiser())(inputs)
    # 0.14 without the rotation: two channels would take nearly all the steps of a row.
    assert ((out - exact).norm() / exact.norm()).item() < 0.05


def test_a_layer_is_near_its_fp32_one() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(512, 96)
    layer = Int8Linear(plain.weight.detach(), plain.bias.detach(), RowQuantiser())
    inputs = torch.randn(2, 5, 512)
    out, exact = layer(inputs), plain(inputs).detach()
    assert out.shape == exact.shape
    assert ((out - exact).norm() / exact.norm()).item() < 0.02


def test_rows_of_a_layer_know_nothing_of_each_other() -> None:
    torch.manual_seed(0)
    layer = Int8Linear(torch.randn(70, 130), torch.randn(70), RowQuantiser())
    rows = torch.randn(37, 130) * torch.logspace(-3, 3, 37)[:, None]
    together = layer(rows)
    for n in range(len(rows)):
        assert torch.equal(layer(rows[n : n + 1]), together[n : n + 1])


def test_layers_share_the_rounding_of_one_input_until_it_changes() -> None:
    quantiser = RowQuantiser()
    inputs = torch.randn(3, 8)
    first = quantiser(inputs)
    assert quantiser(inputs).numbers is first.numbers
    inputs.mul_(-1.0)
    assert torch.equal(quantiser(inputs).numbers, -first.numbers)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_wide_decoder_takes_less_memory_and_frees_its_fp32_weights(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "has_int8_product", lambda: True)
    config: GPT2Config | LlamaConfig
    if architecture == "gpt2":
        config = gpt2_config(n_embd=384)
    else:
        config = llama_config(hidden_size=384, intermediate_size=1024)
    model = random_model(config, torch.float32)
    linear = [p for name, p in model.named_parameters() if p.dim() == 2 and "wpe" not in name]
    freed = [weakref.ref(p) for p in linear]
    count, before = model.num_parameters(), _bytes(model)
    del linear
    reasoner = make_reasoner(architecture=architecture, config=config, dtype=torch.float32)
    assert reasoner.precision == "float32"
    assert int8.quantise_(model)
    gc.collect()
    assert all(ref() is None for ref in freed)
    assert _bytes(model) < 0.4 * before
    assert count == reasoner.parameter_count


def _bytes(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def test_an_int8_reasoner_says_so_and_counts_its_parameters_as_before() -> None:
    plain = make_reasoner(dtype=torch.float32)
    rounded = make_reasoner(dtype=torch.float32, is_int8=True)
    assert (plain.precision, rounded.precision) == ("float32", "int8")
    assert plain.dtype == rounded.dtype == rounded.compute_dtype == torch.float32
    assert plain.parameter_count == rounded.parameter_count
    hidden = torch.randn(4, plain.width)
    exact, near = plain.logits(hidden), rounded.logits(hidden)
    assert not torch.equal(exact, near)
    assert ((exact - near).norm() / exact.norm()).item() < 0.05


def test_a_narrow_decoder_stays_fp32() -> None:
    model = random_model(gpt2_config(), torch.float32)
    before = copy.deepcopy(model.state_dict())
    assert not int8.quantise_(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.config._attn_implementation == ATTENTION_NAME


@pytest.mark.parametrize(("dtype", "says"), [("auto", 0), ("int8", 1), ("fp32", 0)])
def test_only_who_asks_for_int8_is_told_that_a_narrow_decoder_stays_fp32(
    dtype: str, says: int, caplog: pytest.LogCaptureFixture
) -> None:
    reasoner = latent.load("coconut-tiny", device="cpu", dtype=dtype)
    assert reasoner.precision == "float32"
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * says
    assert ("stays fp32" in caplog.text) == bool(says)


@pytest.mark.parametrize(("dtype", "precision"), [("auto", "int8"), ("fp32", "float32")])
def test_a_wide_decoder_is_int8_on_a_cpu_unless_another_type_is_asked_for(
    tmp_path: Path, dtype: str, precision: str
) -> None:
    made = make_reasoner(config=gpt2_config(n_embd=384), dtype=torch.float32)
    save_reasoner(tmp_path / "wide", made.format, made._model, made.tokenizer)
    assert latent.load(str(tmp_path / "wide"), device="cpu", dtype=dtype).precision == precision


def test_int8_is_for_cpus() -> None:
    assert resolve_dtype("int8", torch.device("cpu")) == torch.int8
    with pytest.raises(InputError, match="int8 is for CPUs; use bf16 on cuda"):
        resolve_dtype("int8", torch.device("cuda"))


def test_nothing_is_stored_in_int8() -> None:
    with pytest.raises(InputError, match="import them in fp32 and serve them with --dtype int8"):
        _stored_dtype("int8")


def test_samplers_are_trained_on_what_serves() -> None:
    assert rollout_dtype(torch.device("cpu")) == "auto"
    reasoner = make_reasoner(dtype=torch.float32, is_int8=True)
    environment = ReasonerEnvironment(reasoner)
    question = Question("q", QUESTIONS[0], Decimal(5))
    drawn = environment.sample(environment.new_heads(-1.0), [Draw(question, 3)], lanes=4)
    assert drawn.contexts.dtype == torch.float32
    assert drawn.contexts.shape == (1, 4, 3, reasoner.width)
