"""int8 on the CPU: linear layers as integer products, with a scale per output channel and per row.

Weights are rounded to int8 once, at load, by output channel; inputs at run time, row by row, so that a
row's batch-mates have no effect on it. The sums are int32 and exact, and what is left is multiplications
and additions of single numbers, so a layer gives the same bits with any rows, threads and CPU.

A few channels of a pretrained decoder's states are far larger than the others, and would take all the
steps of a row. So inputs and weights are rotated first, 32 channels at a time, by a Hadamard matrix,
which spreads what is large over its 32 channels (as in QuaRot) and changes no product.

`torch._int_mm` sums pairs of products in 16 bits where the CPU has no VNNI instructions, and saturates:
its results are then wrong, without a warning. So it is tried out before it is used. Where it is wrong,
or slower than fp32, the same whole numbers are held and multiplied in fp32, in pieces so short that no
sum is rounded: the same bits.

With AVX512-VNNI and a C compiler at installation, `latent.int8_kernel` takes the place of torch.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from latent.int8_kernel import ROTATED, Kernel, Rows, load_kernel

__all__ = [
    "HalfEmbedding",
    "Int8Linear",
    "Int8Part",
    "RowQuantiser",
    "fp32_product",
    "has_int8_product",
    "quantise_",
    "quantise_rows",
]

# Decoders narrower than this stay as they are but for layers of so many weights: rounding the inputs of
# small layers takes longer than int8 saves (docs/operations.md has the figures).
_MIN_WIDTH = 384
_MIN_WEIGHTS = 2**18

_LEVELS = 127  # −128 is not used, so that the range is symmetric
_SMALLEST = 1e-30  # rows and channels of zeros get a scale all the same
# fp32 holds every sum of so many products of two int8 numbers: 1024 · 127² < 2²⁴.
_EXACT_IN_FP32 = 1024
_TRIALS = 5
_EXACT_TERM = 2**19 - 1  # fp32 holds every sum of 32 whole numbers up to this

# Layers beside each other that read the same input, by the names that decoders give them: one product.
_STACKS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class RowQuantiser:
    """Rounds inputs to int8 by rows; layers that read one input after each other share the result.

    Without a product of int8 numbers the same whole numbers are given out in fp32.
    """

    def __init__(self) -> None:
        self.has_product = has_int8_product()
        self._kernel = load_kernel() if self.has_product else None
        self._last: tuple[torch.Tensor, int, Rows] | None = None

    def kernel(self, width: int) -> Kernel | None:
        """The compiled kernel, if it is there and takes so many inputs."""
        return self._kernel if self._kernel is not None and self._kernel.fits(width) else None

    def __call__(self, inputs: torch.Tensor) -> Rows:
        """Round inputs (…, in)."""
        last = self._last
        if last is not None and last[0] is inputs and last[1] == inputs._version:
            return last[2]
        width = inputs.shape[-1]
        values, kernel = inputs.reshape(-1, width), self.kernel(width)
        if kernel is not None:
            rounded = kernel.quantise(values, _SMALLEST, _EXACT_TERM, _LEVELS)
        else:
            numbers, scales = _whole_rows(values)
            rounded = Rows(numbers.to(torch.int8) if self.has_product else numbers, scales)
        self._last = (inputs, inputs._version, rounded)
        return rounded


class Int8Linear(nn.Module):
    """A linear layer of whole numbers (out, in), in place of nn.Linear or GPT-2's Conv1D.

    The weights of several layers that read one input may be stacked: each output channel has a scale of
    its own, so the bits are those of the layers by themselves.
    """

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, quantiser: RowQuantiser
    ) -> None:
        super().__init__()
        numbers, scales = quantise_rows(weight)  # an output channel is a row
        self._has_product = quantiser.has_product
        self._kernel = quantiser.kernel(weight.shape[1])
        if self._kernel is not None:
            held = self._kernel.pack(numbers)
        else:
            held = numbers if self._has_product else numbers.float()
        self.weight = nn.Parameter(held, requires_grad=False)
        self.register_buffer("scale", scales[:, 0].contiguous())
        self.register_buffer("bias", None if bias is None else bias.detach().contiguous())
        self._quantiser = quantiser

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute (…, in) → (…, out)."""
        rows = self._quantiser(inputs)
        if self._kernel is not None:
            out = self._kernel.linear(rows, self.weight, self.scale, self.bias)
            return out.view(*inputs.shape[:-1], -1)
        if self._has_product:
            out = torch._int_mm(rows.numbers, self.weight.t()).float()  # (rows, out), from int32
        else:
            out = fp32_product(rows.numbers, self.weight)
        out.mul_(self.scale).mul_(rows.scales)
        if self.bias is not None:
            out.add_(self.bias)
        return out.view(*inputs.shape[:-1], -1)


class _Stack:
    """A stacked layer and its last results, until the last of its parts has been asked for."""

    def __init__(self, layer: Int8Linear) -> None:
        self.layer = layer
        self._last: tuple[torch.Tensor, int, torch.Tensor] | None = None

    def __call__(self, inputs: torch.Tensor, *, is_last: bool) -> torch.Tensor:
        last = self._last
        if last is not None and last[0] is inputs and last[1] == inputs._version:
            out = last[2]
        else:
            out = self.layer(inputs)
        self._last = None if is_last else (inputs, inputs._version, out)
        return out


class Int8Part(nn.Module):
    """Some output channels of stacked layers, in the place of one of them."""

    def __init__(self, stack: _Stack, channels: slice, *, is_last: bool) -> None:
        super().__init__()
        if is_last:  # one of the parts has the weights in the list of its own
            self.whole = stack.layer
        self._stack = stack
        self._channels = channels
        self._is_last = is_last

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute (…, in) → (…, own channels)."""
        return self._stack(inputs, is_last=self._is_last)[..., self._channels]


class HalfEmbedding(nn.Module):
    """Rows of an embedding in fp16, given out in fp32."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.half(), requires_grad=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look tokens up: (…) → (…, D)."""
        return F.embedding(ids, self.weight).float()


def quantise_rows(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate rows, then round each to 255 even steps of its own: int8 (rows, n), scales (rows, 1)."""
    numbers, scales = _whole_rows(values.detach())
    return numbers.to(torch.int8), scales


def _whole_rows(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate and round rows: whole numbers of at most ±127 in fp32 (rows, n), scales (rows, 1).

    Rows are rounded to 20 bits first: the sums of the rotation are exact then, whatever their order.
    """
    size = math.gcd(values.shape[-1], ROTATED)
    fine, unit = _round_rows(values, _EXACT_TERM)
    rotated = (fine.reshape(-1, size) @ _hadamard(size)).view(values.shape)
    numbers, scales = _round_rows(rotated, _LEVELS)
    return numbers, scales.mul_(unit).mul_(size**-0.5)


def _round_rows(values: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers of at most ±levels (rows, n), and the scale of each row (rows, 1)."""
    largest = values.abs().amax(-1, keepdim=True).clamp_(min=_SMALLEST)
    steps = largest.reciprocal().mul_(levels)
    return (values * steps).round_(), largest.div_(levels)


@cache
def _hadamard(size: int) -> torch.Tensor:
    """Hadamard matrix of a power of two, of ±1: (size, size)."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix


def quantise_(model: PreTrainedModel) -> bool:
    """Turn a decoder's linear layers and its head to int8 and its token embedding to fp16, if large.

    Returns whether any was: a small decoder stays as it is. In place, and one after the other, so that
    each fp32 weight is freed before the next is rounded.
    """
    quantiser = RowQuantiser()
    embedding = model.get_input_embeddings()
    is_wide = model.config.hidden_size >= _MIN_WIDTH
    is_changed = False
    # Not the layers themselves: a list of them would keep their weights.
    parents = [
        module
        for module in model.modules()
        if not isinstance(module, nn.Linear | Conv1D) and module is not embedding
    ]
    for parent in parents:
        for names in _STACKS:
            if is_wide and _stack(parent, names, quantiser):
                is_changed = True
        for name, layer in list(parent.named_children()):
            if not isinstance(layer, nn.Linear | Conv1D) and layer is not embedding:
                continue
            weight = cast(torch.Tensor, layer.weight)
            if not is_wide and weight.numel() < _MIN_WEIGHTS:
                continue
            if layer is embedding:
                if weight.abs().amax() <= torch.finfo(torch.float16).max:
                    setattr(parent, name, HalfEmbedding(weight))
                continue
            rows = weight.t() if isinstance(layer, Conv1D) else weight
            bias = cast(torch.Tensor | None, layer.bias)
            setattr(parent, name, Int8Linear(rows, bias, quantiser))
            is_changed = True
    return is_changed


def _stack(parent: nn.Module, names: Sequence[str], quantiser: RowQuantiser) -> bool:
    """Put one product in the place of layers that read the same input, if all of them are there."""
    layers = [getattr(parent, name, None) for name in names]
    found = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if len(found) < len(names) or len({layer.bias is None for layer in found}) > 1:
        return False
    biases: list[torch.Tensor] = [layer.bias for layer in found if layer.bias is not None]
    whole = Int8Linear(
        torch.cat([layer.weight for layer in found]),
        torch.cat(biases) if biases else None,
        quantiser,
    )
    stack, first = _Stack(whole), 0
    for name, layer in zip(names, found, strict=True):
        channels = slice(first, first + layer.out_features)
        first = channels.stop
        setattr(parent, name, Int8Part(stack, channels, is_last=name == names[-1]))
    return True


@cache
def has_int8_product() -> bool:
    """Whether `torch._int_mm` is right here and takes less time than fp32; a trial of milliseconds.

    Results are the same without it.
    """
    return _is_exact(torch._int_mm) and _is_faster(torch._int_mm)


def _is_faster(product: Product) -> bool:
    numbers = torch.ones(32, 512, dtype=torch.int8), torch.ones(1024, 512, dtype=torch.int8).t()
    plain = numbers[0].float(), numbers[1].float()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_TRIALS):
        for own, run, (left, right) in zip(
            times, (product, torch.matmul), (numbers, plain), strict=True
        ):
            started = time.perf_counter()
            run(left, right)
            own.append(time.perf_counter() - started)
    return min(times[0]) < min(times[1])


def fp32_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Product of whole numbers in fp32, at most ±127, (m, k) and (n, k): sums rounded once, to fp32.

    That is what int32 sums are after their conversion. A piece of so few terms is exact in any order.
    """
    if left.shape[1] <= _EXACT_IN_FP32:
        return F.linear(left, right)
    pieces = [
        F.linear(left[:, at : at + _EXACT_IN_FP32], right[:, at : at + _EXACT_IN_FP32])
        for at in range(0, left.shape[1], _EXACT_IN_FP32)
    ]
    if len(pieces) == 2:  # one addition rounds once
        return pieces[0].add_(pieces[1])
    sums = pieces[0].double()
    for piece in pieces[1:]:
        sums += piece
    return sums.float()


def _is_exact(product: Product) -> bool:
    """Whether a product is right where sums in 16 bits, or kernels for few rows, would be wrong."""
    for rows, width in ((1, 40), (16, 512), (64, 1536)):
        left = torch.full((rows, width), _LEVELS, dtype=torch.int8)
        right = torch.full((96, width), _LEVELS, dtype=torch.int8)
        right[::3] = -_LEVELS
        left[::2, ::5] = -_LEVELS
        if not torch.equal(product(left, right.t()).long(), left.long() @ right.t().long()):
            return False
    return True
