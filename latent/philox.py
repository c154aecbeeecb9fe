"""The counter-based generator Philox4x32-10: compiled, in NumPy and in tensors, with the same integers.

`philox.c` is compiled when the package is installed and a C compiler is there. It draws ten times as
fast as NumPy, which takes its place where it is missing.
"""

import ctypes
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["draw_words", "is_compiled", "philox"]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
# Counters that NumPy encrypts at a time, so that what a round of Philox writes stays in the cache.
_CHUNK = 2**15

# Integers of 64 bits, as a tensor or as an array; both wrap, which the generator makes use of.
Words = TypeVar("Words", torch.Tensor, NDArray[np.int64])


def philox(
    counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]
) -> tuple[Words, Words, Words, Words]:
    """Encrypt 4×32-bit counters under 2×32-bit keys (all held in int64, broadcast together).

    Parts of a counter that have fewer dimensions keep them for the first rounds, which saves work.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for number in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        h0, h1 = p0 >> 32, p1 >> 32
        # The mask removes the sign that the shift draws in and the upper half of the last product.
        if number < 2:  # not yet of full size
            c0, c2 = (h1 ^ (c1 ^ k0)) & _MASK, (h0 ^ (c3 ^ k1)) & _MASK
        else:  # in place, which is faster
            for high, last, own in ((h1, c1, k0), (h0, c3, k1)):
                high ^= last
                high ^= own
                high &= _MASK
            c0, c2 = h1, h0
        c1, c3 = p1, p0
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1 & _MASK, c2, c3 & _MASK


def draw_words(
    lanes: torch.Tensor, block: torch.Tensor, step: int, place: torch.Tensor
) -> torch.Tensor | NDArray[np.uint32]:
    """Draw the words of lanes (T, 3: key, key, index) at M counters (block, index, step, place).

    (T, M, 4): an array on a CPU, else a tensor where the lanes are.
    """
    if lanes.device.type == "cpu":
        arrays = lanes.numpy(), block.numpy(), place.numpy()
        compiled = _compiled()
        return _draw_numpy(*arrays, step) if compiled is None else compiled(*arrays, step)
    low, high, index = lanes[:, :, None].unbind(1)  # (T, 1) each
    at = torch.full_like(block[:1], step)
    return torch.stack(philox((block, index, at, place), (low, high)), dim=-1)


def is_compiled() -> bool:
    """Whether the compiled generator was found."""
    return _compiled() is not None


def _draw_numpy(
    lanes: NDArray[np.int64], block: NDArray[np.int64], place: NDArray[np.int64], step: int
) -> NDArray[np.uint32]:
    words = np.empty((len(lanes), len(block), 4), dtype=np.uint32)
    at = np.array([step], dtype=np.int64)
    size = max(1, _CHUNK // max(len(block), 1))
    for first in range(0, len(lanes), size):
        low, high, index = lanes[first : first + size, :, None].swapaxes(0, 1)
        for number, word in enumerate(philox((block, index, at, place), (low, high))):
            words[first : first + size, :, number] = word
    return words


@cache
def _compiled() -> Any:
    """`_draw_numpy`, compiled; None if the library is missing."""
    spec = find_spec("latent._philox")
    if spec is None or spec.origin is None:
        return None
    encrypt = ctypes.CDLL(spec.origin).gts_philox
    int64 = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
    uint32 = np.ctypeslib.ndpointer(np.uint32, flags="C_CONTIGUOUS")
    size = ctypes.c_size_t
    encrypt.argtypes = [int64, size, int64, int64, size, ctypes.c_uint32, uint32]
    encrypt.restype = None

    def draw(
        lanes: NDArray[np.int64], block: NDArray[np.int64], place: NDArray[np.int64], step: int
    ) -> NDArray[np.uint32]:
        words = np.empty((len(lanes), len(block), 4), dtype=np.uint32)
        encrypt(lanes, len(lanes), block, place, len(block), step, words)
        return words

    return draw
