"""Random numbers addressed by trajectory, never streamed.

Every number is a pure function of (seed, trajectory index, step, site, layer, row, column), computed
by the counter-based generator Philox4x32-10 in integer operations where the lanes are. So a
trajectory draws the same integers whatever its budget, its batch and its device; normals made of
them differ between devices by the rounding of their logarithm and cosine.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from latent.errors import InputError
from latent.trajectory import MAX_SEED

__all__ = ["Address", "LaneNoise", "Site", "derive_seed", "philox"]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
# Counters that a CPU encrypts at a time, so that what a round of Philox writes stays in the cache.
_CPU_CHUNK = 2**15

# Integers of 64 bits, as a tensor or as an array; both wrap, which the generator makes use of.
Words = TypeVar("Words", torch.Tensor, NDArray[np.int64])


class Site(IntEnum):
    """What a random number is for; part of its address, so the values are fixed for ever."""

    THOUGHT = 0
    EMBEDDING = 1
    ATTENTION = 2
    ATTENTION_RESIDUAL = 3
    MLP_RESIDUAL = 4
    PROJECTION = 5
    TOKEN = 6


@dataclass(frozen=True)
class Address:
    """Where a lane's numbers of one step are: `rows` of `columns` numbers of a site in a layer."""

    site: Site
    columns: int
    layer: int = 0
    rows: int = 1

    @property
    def blocks(self) -> int:
        """Counters that a row takes, of four numbers each."""
        return -(-self.columns // 4)


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


def derive_seed(*parts: int | str) -> int:
    """Hash (run seed, pass, question id, …) to a seed, the same on any machine and rank."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


class LaneNoise:
    """The random numbers of T lanes, each with its own seed and trajectory index."""

    def __init__(
        self,
        seeds: Sequence[int],
        indices: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> None:
        for seed in seeds:
            if not 0 <= seed <= MAX_SEED:
                raise InputError(f"seed must be between 0 and {MAX_SEED}, got {seed}", param="seed")
        # A deterministic lane (index −1) draws numbers too; they are not used.
        named = [
            (seed & _MASK, seed >> 32, max(n, 0)) for seed, n in zip(seeds, indices, strict=True)
        ]
        self._lanes = torch.tensor(named, dtype=torch.long).to(device)  # (T, 3): keys and index

    def select(self, lanes: torch.Tensor) -> "LaneNoise":
        """Keep only these lanes, in this order."""
        kept = LaneNoise.__new__(LaneNoise)
        kept._lanes = self._lanes.index_select(0, lanes)
        return kept

    def normal(self, steps: int, size: int) -> torch.Tensor:
        """Draw the standard normals of all thoughts: (steps, T, size), float32."""
        device = self._lanes.device
        block = torch.arange(-(-size // 4), device=device).expand(steps, 1, -1)
        step = torch.arange(steps, device=device)[:, None, None]
        place = torch.full((1, 1, 1), int(Site.THOUGHT), device=device)
        drawn = torch.empty(
            steps, len(self._lanes), block.shape[-1], 4, dtype=torch.float32, device=device
        )
        for lanes in self._chunks(steps * block.shape[-1]):
            words = self._encrypt(lanes, block, step, place)
            uniform = [(word.double() + 0.5) * 2.0**-32 for word in words]
            for pair in (0, 2):
                radius = (uniform[pair].log() * -2.0).sqrt()
                angle = uniform[pair + 1] * (2.0 * math.pi)
                drawn[:, lanes, :, pair] = (radius * angle.cos()).float()
                drawn[:, lanes, :, pair + 1] = (radius * angle.sin()).float()
        return drawn.flatten(-2)[..., :size]

    def uniform(
        self, step: int, site: Site, columns: int, *, layer: int = 0, rows: int = 1
    ) -> torch.Tensor:
        """Draw uniforms in (0, 1): (T, rows, columns), float64."""
        address = Address(site, columns, layer, rows)
        block, place = _counters((address,), self._lanes.device)
        words = self._encrypt(slice(None), block, torch.full_like(block[:1], step), place)
        drawn = (torch.stack(words, dim=-1).double() + 0.5) * 2.0**-32  # (T, rows·blocks, 4)
        return drawn.view(len(self._lanes), rows, -1)[..., :columns]

    def exceed(
        self,
        step: int,
        addresses: tuple[Address, ...],
        probability: float,
        is_asked: torch.Tensor,
    ) -> list[torch.Tensor]:
        """Whether the uniforms at each of a step's addresses are ≥ p: bool (T, rows, columns) each.

        Lanes that are not in `is_asked` (T,) get yes everywhere.
        """
        # (word + ½)·2⁻³² ≥ p; both sides times 2³² are exact.
        threshold = is_asked.long()[:, None] * math.ceil(probability * 2.0**32 - 0.5)
        block, place = _counters(addresses, self._lanes.device)
        at = torch.full_like(block[:1], step)
        found = torch.empty(
            len(self._lanes), len(block), 4, dtype=torch.bool, device=self._lanes.device
        )
        for lanes in self._chunks(len(block)):
            for number, word in enumerate(self._encrypt(lanes, block, at, place)):
                found[lanes, :, number] = word >= threshold[lanes]
        parts = torch.split(found, [each.rows * each.blocks for each in addresses], dim=1)
        return [
            part.reshape(len(found), each.rows, each.blocks * 4)[..., : each.columns]
            for each, part in zip(addresses, parts, strict=True)
        ]

    def _chunks(self, counters: int) -> list[slice]:
        """Cut the lanes, each of so many counters, into what is encrypted at a time."""
        count = len(self._lanes)
        size = max(1, _CPU_CHUNK // max(counters, 1)) if self._lanes.device.type == "cpu" else count
        return [slice(first, first + size) for first in range(0, count, size)]

    def _encrypt(
        self, lanes: slice, block: torch.Tensor, step: torch.Tensor, place: torch.Tensor
    ) -> list[torch.Tensor]:
        """Words of these lanes at counters (…, M): four of (…, lanes, M)."""
        low, high, index = self._lanes[lanes, :, None].unbind(1)  # (lanes, 1) each
        if self._lanes.device.type != "cpu":
            return list(philox((block, index, step, place), (low, high)))
        # NumPy multiplies 64-bit integers twice as fast as torch on a CPU without AVX-512.
        counter = (block.numpy(), index.numpy(), step.numpy(), place.numpy())
        return [torch.from_numpy(word) for word in philox(counter, (low.numpy(), high.numpy()))]


@lru_cache(maxsize=256)
def _counters(
    addresses: tuple[Address, ...], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """First and last word of the counters of addresses, in order: (M,) each."""
    blocks, places = [], []
    for each in addresses:
        row = torch.arange(each.rows, device=device) << 20
        blocks.append(torch.arange(each.blocks, device=device).repeat(each.rows))
        places.append((row | int(each.site) | each.layer << 8).repeat_interleave(each.blocks))
    return torch.cat(blocks), torch.cat(places)
