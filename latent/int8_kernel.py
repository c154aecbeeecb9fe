"""Compiled rounding and products of int8 layers (`int8.c`), for CPUs with AVX512-VNNI.

`latent.int8` has the same in torch, with the same bits, for other CPUs and where no C compiler was there
when the package was installed.
"""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

__all__ = ["ROTATED", "Kernel", "Rows", "load_kernel"]

_PANEL = 16  # output channels that are packed together
ROTATED = 32  # channels that are mixed with each other
_MIN_PART = 2**20  # weights that are worth a thread of their own


@dataclass(frozen=True)
class Rows:
    """Inputs rounded by rows: whole numbers, and what one step of each row is."""

    numbers: torch.Tensor  # (rows, k): int8, or fp32 where there is no product of int8 numbers
    scales: torch.Tensor  # fp32 (rows, 1)
    sums: torch.Tensor | None = (
        None  # int32 (rows,), of each row's numbers; only the kernel's have it
    )


class Kernel:
    """The functions of the compiled library, on tensors."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float
        self._pack = _typed(library.gts_int8_pack, pointer, size, size, pointer)
        self._quantise = _typed(
            library.gts_int8_quantise, pointer, size, size, *[number] * 4, *[pointer] * 4
        )
        self._linear = _typed(
            library.gts_int8_linear,
            *[pointer] * 3,  # rows
            *[size] * 2,
            *[pointer] * 3,  # weights, scales and bias
            *(size, pointer, size),  # the result
        )

    @staticmethod
    def fits(width: int) -> bool:
        """Whether layers with so many inputs can be computed."""
        return width % ROTATED == 0

    def pack(self, weights: torch.Tensor) -> torch.Tensor:
        """Pack int8 weights (n, k): uint8 (panels, k / 4, 16, 4)."""
        n, k = weights.shape
        weights = weights.contiguous()
        packed = torch.empty(-(-n // _PANEL), k // 4, _PANEL, 4, dtype=torch.uint8)
        self._pack(weights.data_ptr(), n, k, packed.data_ptr())
        return packed

    def quantise(
        self, values: torch.Tensor, smallest: float, fine_levels: int, levels: int
    ) -> Rows:
        """Rotate and round rows (rows, k) of fp32; `latent.int8` says how."""
        values = values.contiguous()
        rows, k = values.shape
        fine = torch.empty(k)
        numbers, scales = torch.empty(rows, k, dtype=torch.int8), torch.empty(rows, 1)
        sums = torch.empty(rows, dtype=torch.int32)
        self._quantise(
            *(values.data_ptr(), rows, k, smallest, fine_levels, levels, ROTATED**-0.5),
            *(fine.data_ptr(), numbers.data_ptr(), sums.data_ptr(), scales.data_ptr()),
        )
        return Rows(numbers, scales, sums)

    def linear(
        self, rows: Rows, packed: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Multiply rows by packed weights with a scale (n) and perhaps a bias (n): fp32 (rows, n)."""
        assert rows.sums is not None
        count, k = rows.numbers.shape
        n = len(scale)
        out = torch.empty(count, n)
        inputs = rows.numbers.data_ptr(), rows.sums.data_ptr(), rows.scales.data_ptr(), count, k

        def columns(first: int, last: int) -> None:
            self._linear(
                *inputs,
                packed.data_ptr() + first * k,
                scale.data_ptr() + 4 * first,
                None if bias is None else bias.data_ptr() + 4 * first,
                last - first,
                out.data_ptr() + 4 * first,
                n,
            )

        parts = min(torch.get_num_threads(), max(1, n * k // _MIN_PART))
        if parts == 1:
            columns(0, n)
        else:
            step = -(-n // (parts * _PANEL)) * _PANEL
            edges = [*range(0, n, step), n]
            list(_threads(parts).map(columns, edges[:-1], edges[1:]))
        return out


@cache
def load_kernel() -> Kernel | None:
    """The kernel, if it was compiled and this CPU can run it."""
    spec = find_spec("latent._int8")
    if spec is None or spec.origin is None:
        return None
    library = ctypes.CDLL(spec.origin)
    return Kernel(library) if library.gts_int8_is_supported() else None


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Threads for the products of large layers; a call leaves Python's lock to the others."""
    return ThreadPoolExecutor(count, thread_name_prefix="int8")


def _typed(function: Any, *types: Any) -> Callable[..., None]:
    function.argtypes, function.restype = list(types), None
    return function  # type: ignore[no-any-return]
