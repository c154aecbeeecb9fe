"""int8 on the CPU: linear layers as integer products, with a scale per output channel and per row.

Weights are rounded to int8 once, at load, by output channel; inputs at run time, row by row, so that a
row's batch-mates have no effect on it. The sums are int32 and exact, and what is left is multiplications
and additions of single numbers, so a layer gives the same bits with any rows, threads and CPU.

A few channels of a pretrained decoder's states are far larger than the others, and would take all the
steps of a row. So inputs and weights are rotated first, 32 channels at a time, by a Hadamard matrix,
which spreads what is large over its 32 channels (as in QuaRot) and changes no product.

`torch._int_mm` sums pairs of products in 16 bits where the CPU has no VNNI instructions, and saturates:
its results are then wrong, without a warning. So it is tried out before it is used.
"""

import logging
import math
import time
from collections.abc import Callable
from functools import cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

__all__ = [
    "HalfEmbedding",
    "Int8Linear",
    "RowQuantiser",
    "exact_product",
    "fp32_product",
    "is_int8_fast",
    "quantise_",
    "quantise_rows",
]

_log = logging.getLogger(__name__)

# Decoders narrower than this stay as they are but for layers of so many weights: rounding the inputs of
# small layers takes longer than int8 saves (docs/operations.md has the figures).
_MIN_WIDTH = 384
_MIN_WEIGHTS = 2**18

_LEVELS = 127  # −128 is not used, so that the range is symmetric
_SMALLEST = 1e-30  # rows and channels of zeros get a scale all the same
# fp32 holds every sum of so many products of two int8 numbers: 1024 · 127² < 2²⁴.
_EXACT_IN_FP32 = 1024
_TRIALS = 5
_ROTATED = 32  # channels that are mixed with each other
_EXACT_TERM = 2**19 - 1  # fp32 holds every sum of 32 whole numbers up to this

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class RowQuantiser:
    """Rounds inputs to int8 by rows; layers that read one input after each other share the result."""

    def __init__(self) -> None:
        self._last: tuple[torch.Tensor, int, torch.Tensor, torch.Tensor] | None = None

    def __call__(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Numbers (rows, in) and scales (rows, 1) of inputs (…, in)."""
        last = self._last
        if last is not None and last[0] is inputs and last[1] == inputs._version:
            return last[2], last[3]
        numbers, scales = quantise_rows(inputs.reshape(-1, inputs.shape[-1]))
        self._last = (inputs, inputs._version, numbers, scales)
        return numbers, scales


class Int8Linear(nn.Module):
    """A linear layer with int8 weights (out, in), in place of nn.Linear or GPT-2's Conv1D."""

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, quantiser: RowQuantiser
    ) -> None:
        super().__init__()
        numbers, scales = quantise_rows(weight)  # an output channel is a row
        self.weight = nn.Parameter(numbers, requires_grad=False)
        self.register_buffer("scale", scales[:, 0].contiguous())
        self.register_buffer("bias", None if bias is None else bias.detach())
        self._quantiser = quantiser
        self._product = exact_product()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute (…, in) → (…, out)."""
        numbers, scales = self._quantiser(inputs)
        sums = self._product(numbers, self.weight.t())  # (rows, out) int32
        out = sums.float().mul_(self.scale).mul_(scales)
        if self.bias is not None:
            out.add_(self.bias)
        return out.view(*inputs.shape[:-1], -1)


class HalfEmbedding(nn.Module):
    """Rows of an embedding in fp16, given out in fp32."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.half(), requires_grad=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look tokens up: (…) → (…, D)."""
        return F.embedding(ids, self.weight).float()


def quantise_rows(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate rows, then round each to 255 even steps of its own: int8 (rows, n), scales (rows, 1).

    Rows are rounded to 20 bits first: the sums of the rotation are exact then, whatever their order.
    """
    size = math.gcd(values.shape[-1], _ROTATED)
    fine, unit = _round_rows(values.detach(), _EXACT_TERM)
    rotated = (fine.reshape(-1, size) @ _hadamard(size)).view(values.shape)
    numbers, scales = _round_rows(rotated, _LEVELS)
    return numbers.to(torch.int8), scales.mul_(unit).mul_(size**-0.5)


def _round_rows(values: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers of at most ±levels (rows, n), and the scale of each row (rows, 1)."""
    largest = values.abs().amax(-1, keepdim=True).clamp_(min=_SMALLEST)
    return (values * (levels / largest)).round_(), largest / levels


@cache
def _hadamard(size: int) -> torch.Tensor:
    """Hadamard matrix of a power of two, of ±1: (size, size)."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix


def quantise_(model: PreTrainedModel) -> bool:
    """Turn a decoder's linear layers and its head to int8 and its token embedding to fp16, if large.

    Returns whether any was. In place, and one after the other, so that each fp32 weight is freed before
    the next is rounded.
    """
    quantiser = RowQuantiser()
    embedding = model.get_input_embeddings()
    is_wide = model.config.hidden_size >= _MIN_WIDTH
    is_changed = False
    for parent in list(model.modules()):
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
    if not is_changed:
        _log.warning(
            "a decoder of width %d stays fp32: int8 would be slower", model.config.hidden_size
        )
    elif not is_int8_fast():
        _log.warning(
            "int8 products are not faster than fp32 ones on this CPU (no VNNI instructions, or none "
            "that torch uses): results are the same as elsewhere, but --dtype fp32 takes less time"
        )
    return is_changed


@cache
def exact_product() -> Product:
    """Choose the product of int8 matrices (m, k) and (k, n) with int32 sums that is right here."""
    if _is_exact(torch._int_mm):
        return torch._int_mm
    return fp32_product


@cache
def is_int8_fast() -> bool:
    """Whether the product in int8 takes less time here than in fp32; a trial of milliseconds."""
    product = exact_product()
    if product is fp32_product:
        return False
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
    """Exact product of int8 matrices (m, k) and (k, n), int32, in fp32 pieces that do not round."""
    pieces = [slice(at, at + _EXACT_IN_FP32) for at in range(0, left.shape[1], _EXACT_IN_FP32)]
    sums = [(left[:, piece].float() @ right[piece].float()).int() for piece in pieces]
    return torch.stack(sums).sum(0, dtype=torch.int32) if len(sums) > 1 else sums[0]


def _is_exact(product: Product) -> bool:
    """Whether a product is right where sums in 16 bits, or kernels for few rows, would be wrong."""
    for rows, width in ((1, 40), (16, 512), (64, 1536)):
        left = torch.full((rows, width), _LEVELS, dtype=torch.int8)
        right = torch.full((96, width), _LEVELS, dtype=torch.int8)
        right[::3] = -_LEVELS
        left[::2, ::5] = -_LEVELS
        if not torch.equal(product(left, right.t()), fp32_product(left, right.t())):
            return False
    return True
