"""The lanes of one pass: which question and trajectory each row is, and the state they share."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from latent.dropout import DropoutMasks
from latent.lanes import LaneCache, Prefix, row_block
from latent.noise import LaneNoise
from latent.reasoner import Reasoner
from latent.samplers import Sampler
from latent.trajectory import DETERMINISTIC

__all__ = ["Ask", "LaneBatch"]

# A question's lanes leave a running pass in steps of this many, so that few group sizes occur.
_BLOCK = 16


@dataclass(frozen=True)
class Ask:
    """A question and the trajectories wanted of it; `target` are its answer's tokens, for the probe."""

    prompt: tuple[int, ...]
    seed: int
    indices: tuple[int, ...]
    target: tuple[int, ...] | None = None
    prefix: Prefix | None = None  # where the prompt has been prefilled already


class LaneBatch:
    """T rows running together: prefilled questions in groups of equal lane counts.

    Filler rows bring T to whole blocks (see `row_block`): they repeat the deterministic trajectory of
    the last question, or are finished lanes, and are never reported.
    """

    def __init__(
        self, reasoner: Reasoner, sampler: Sampler, asks: Sequence[Ask], capacity: int
    ) -> None:
        self.reasoner = reasoner
        self.sampler = sampler
        order = sorted(range(len(asks)), key=lambda r: -len(asks[r].indices))
        indices = [asks[r].indices for r in order]
        self._block = row_block(reasoner.device)
        indices[-1] += (DETERMINISTIC,) * (-sum(map(len, indices)) % self._block)
        self.counts = [len(own) for own in indices]
        prefixes = [prefix for r in order if (prefix := asks[r].prefix) is not None]
        self.cache = LaneCache(prefixes, self.counts, capacity)
        self.noise = LaneNoise(
            tuple(asks[r].seed for r, own in zip(order, indices, strict=True) for _ in own),
            tuple(index for own in indices for index in own),
        )
        self.is_sampled = torch.tensor([index >= 0 for index in self.noise.indices])  # (T,)
        starts, total = {}, 0
        for r, count in zip(order, self.counts, strict=True):
            starts[r], total = total, total + count
        self.rows_of = [
            range(starts[r], starts[r] + len(ask.indices)) for r, ask in enumerate(asks)
        ]
        hidden = torch.stack([prefix.hidden for prefix in prefixes])
        self.first_hidden = hidden.repeat_interleave(
            torch.tensor(self.counts, device=hidden.device), dim=0
        )  # (T, D)

    def masks(self, step: int, is_reasoning: torch.Tensor | None = None) -> DropoutMasks | None:
        """Dropout masks of one step, for the sampled lanes that still reason."""
        if self.sampler.dropout == 0.0:
            return None
        dropping = self.is_sampled if is_reasoning is None else self.is_sampled & is_reasoning
        sites = self.sampler.spec.sites
        return DropoutMasks(
            noise=self.noise,
            step=step,
            probability=self.sampler.dropout,
            sites=frozenset(sites) if sites else self.reasoner.default_dropout_sites,
            is_dropping=dropping,
            device=self.reasoner.device,
            dtype=self.reasoner.dtype,
        )

    def drop_finished(self, is_finished: torch.Tensor) -> list[int] | None:
        """Remove finished lanes, in blocks; return the rows that stay, or None if all do."""
        kept: list[list[int]] = []
        spare: list[
            tuple[int, int]
        ] = []  # (question, row) of finished lanes that could stay as filler
        start = 0
        for question, count in enumerate(self.counts):
            rows = range(start, start + count)
            start += count
            going = [row for row in rows if not is_finished[row]]
            done = [row for row in rows if is_finished[row]]
            stay = min(-(-len(going) // _BLOCK) * _BLOCK, count) - len(going) if going else 0
            kept.append(going + done[:stay])
            spare += [(question, row) for row in done[stay:]]
        total = sum(map(len, kept))
        for question, row in spare[: -total % self._block]:
            kept[question].append(row)
        if sum(map(len, kept)) == sum(self.counts):
            return None
        order = sorted((q for q, rows in enumerate(kept) if rows), key=lambda q: -len(kept[q]))
        lanes = [row for q in order for row in sorted(kept[q])]
        self.counts = [len(kept[q]) for q in order]
        self.cache.keep(order, lanes, self.counts)
        self.noise = self.noise.select(lanes)
        self.is_sampled = self.is_sampled[lanes]
        return lanes
