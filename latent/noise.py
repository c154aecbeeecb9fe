"""Random numbers addressed by trajectory, never streamed.

Every number is a pure function of (seed, trajectory index, step, site, layer, row, column), computed
on the CPU by the counter-based generator Philox4x32-10. So a trajectory draws the same noise
whatever its budget, its batch and its device.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from latent.errors import InputError
from latent.trajectory import MAX_SEED

__all__ = ["LaneNoise", "Site", "derive_seed", "philox"]

_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10

Words: TypeAlias = NDArray[np.uint64]


class Site(IntEnum):
    """What a random number is for; part of its address, so the values are fixed for ever."""

    THOUGHT = 0
    EMBEDDING = 1
    ATTENTION = 2
    ATTENTION_RESIDUAL = 3
    MLP_RESIDUAL = 4
    PROJECTION = 5
    TOKEN = 6


def philox(
    counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]
) -> tuple[Words, Words, Words, Words]:
    """Encrypt 4×32-bit counters under 2×32-bit keys (all held in uint64, broadcast together)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ k0, p1 & _MASK, (p0 >> _SHIFT) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def derive_seed(*parts: int | str) -> int:
    """Hash (run seed, pass, question id, …) to a seed, the same on any machine and rank."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def _words(values: Sequence[int] | NDArray[np.int64]) -> Words:
    return np.asarray(values, dtype=np.uint64)


@dataclass(frozen=True)
class LaneNoise:
    """The random numbers of T lanes, each with its own seed and trajectory index."""

    seeds: tuple[int, ...]
    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        for seed in self.seeds:
            if not 0 <= seed <= MAX_SEED:
                raise InputError(f"seed must be between 0 and {MAX_SEED}, got {seed}", param="seed")

    def select(self, lanes: Sequence[int]) -> "LaneNoise":
        """Keep only these lanes, in this order."""
        return LaneNoise(
            tuple(self.seeds[lane] for lane in lanes), tuple(self.indices[lane] for lane in lanes)
        )

    def normal(self, steps: int, size: int) -> torch.Tensor:
        """Draw the standard normals of all thoughts: (steps, T, size), float32."""
        words = self._words(
            _words(range(-(-size // 4))), _words(range(steps))[:, None, None], Site.THOUGHT
        )
        uniform = [(word + 0.5) * 2.0**-32 for word in words]
        values = []
        for first, second in zip(uniform[::2], uniform[1::2], strict=True):
            radius, angle = np.sqrt(-2.0 * np.log(first)), 2.0 * np.pi * second
            values += [radius * np.cos(angle), radius * np.sin(angle)]
        drawn = np.stack(values, axis=-1).reshape(steps, len(self.seeds), -(-size // 4) * 4)
        return torch.from_numpy(drawn[..., :size].astype(np.float32))

    def uniform(
        self, step: int, site: Site, columns: int, *, layer: int = 0, rows: int = 1
    ) -> torch.Tensor:
        """Draw uniforms in (0, 1): (T, rows, columns), float64."""
        row = _words(range(rows))[:, None] << np.uint64(20)
        words = self._words(
            _words(range(-(-columns // 4))), _words([step]), site, layer=layer, row=row
        )
        drawn = (np.stack(words, axis=-1) + 0.5) * 2.0**-32  # (T, rows, blocks, 4)
        flat = drawn.reshape(len(self.seeds), rows, -1)
        return torch.from_numpy(np.ascontiguousarray(flat[..., :columns]))

    def _words(
        self, block: Words, step: Words, site: Site, *, layer: int = 0, row: Words | None = None
    ) -> tuple[Words, Words, Words, Words]:
        lane_axes = (-1, 1) if row is None else (-1, 1, 1)
        seeds = _words(self.seeds).reshape(lane_axes)
        # A deterministic lane (index −1) draws numbers too; they are not used.
        indices = _words([max(index, 0) for index in self.indices]).reshape(lane_axes)
        place = _words([int(site) | layer << 8])
        if row is not None:
            place = place | row
        return philox((block, indices, step, place), (seeds & _MASK, seeds >> _SHIFT))
