"""Random numbers addressed by trajectory, never streamed.

Every number is a pure function of (seed, trajectory index, step, site, layer, row, column), computed
by the counter-based generator Philox4x32-10 (philox.py) where the lanes are. So a
trajectory draws the same integers whatever its budget, its batch and its device; normals made of
them differ between devices by the rounding of their logarithm and cosine.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from latent.errors import InputError
from latent.philox import draw_words
from latent.trajectory import MAX_SEED

__all__ = ["Address", "LaneNoise", "Site", "derive_seed"]

_MASK = 0xFFFFFFFF


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
        shape = steps, len(self._lanes), -(-size // 4), 4
        drawn = torch.empty(shape, dtype=torch.float32, device=device)
        for step in range(steps):
            uniform = self._uniform(step, (Address(Site.THOUGHT, size),)).unbind(-1)  # (T, blocks)
            for pair in (0, 2):
                radius = (uniform[pair].log() * -2.0).sqrt()
                angle = uniform[pair + 1] * (2.0 * math.pi)
                drawn[step, :, :, pair] = (radius * angle.cos()).float()
                drawn[step, :, :, pair + 1] = (radius * angle.sin()).float()
        return drawn.flatten(-2)[..., :size]

    def uniform(
        self, step: int, site: Site, columns: int, *, layer: int = 0, rows: int = 1
    ) -> torch.Tensor:
        """Draw uniforms in (0, 1): (T, rows, columns), float64."""
        drawn = self._uniform(step, (Address(site, columns, layer, rows),))  # (T, rows·blocks, 4)
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
        threshold = is_asked.long()[:, None, None] * math.ceil(probability * 2.0**32 - 0.5)
        words = self._words(step, addresses)
        if isinstance(words, torch.Tensor):
            found = words >= threshold
        else:
            found = torch.from_numpy(words >= threshold.numpy())
        parts = torch.split(found, [each.rows * each.blocks for each in addresses], dim=1)
        return [
            part.reshape(len(found), each.rows, each.blocks * 4)[..., : each.columns]
            for each, part in zip(addresses, parts, strict=True)
        ]

    def _uniform(self, step: int, addresses: tuple[Address, ...]) -> torch.Tensor:
        """Uniforms in (0, 1) at all counters of addresses: (T, M, 4), float64."""
        words = self._words(step, addresses)
        if not isinstance(words, torch.Tensor):
            words = torch.from_numpy(words.astype(np.float64))
        return (words.double() + 0.5) * 2.0**-32

    def _words(
        self, step: int, addresses: tuple[Address, ...]
    ) -> torch.Tensor | NDArray[np.uint32]:
        """Words at all counters of addresses: (T, M, 4)."""
        block, place = _counters(addresses, self._lanes.device)
        return draw_words(self._lanes, block, step, place)


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
