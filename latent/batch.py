"""The lanes of one pass: which question and trajectory each row is, and the state they share."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from latent.dropout import DropoutMasks, addresses_of
from latent.lanes import LaneCache, Prefix, row_block, to_device
from latent.noise import LaneNoise
from latent.reasoner import Reasoner
from latent.samplers import Sampler
from latent.static_lanes import STATIC_BLOCK, StaticLanes
from latent.trajectory import DETERMINISTIC

__all__ = ["Ask", "LaneBatch"]

# A question's lanes leave a running pass in steps of this many, so that few group sizes occur.
_BLOCK = 16
_LEAST_DROPPED = 1 / 8  # of the running lanes


@dataclass(frozen=True)
class Ask:
    """A question and the trajectories wanted of it; `target` are its answer's tokens, for the probe."""

    prompt: tuple[int, ...]
    seed: int
    indices: tuple[int, ...]
    target: tuple[int, ...] | None = None
    prefix: Prefix | None = None  # where the prompt has been prefilled already


class LaneBatch:
    """T rows running together: prefilled questions by length bucket, then by lane count.

    Filler rows bring T to whole blocks (see `row_block`): they repeat the deterministic trajectory of
    the last question, or are finished lanes, and are never reported. Where steps are compiled, they
    bring every question to whole blocks, and T to the rows of a compiled shape.
    """

    def __init__(
        self, reasoner: Reasoner, sampler: Sampler, asks: Sequence[Ask], capacity: int
    ) -> None:
        self.reasoner = reasoner
        self.sampler = sampler
        ready = [ask.prefix for ask in asks if ask.prefix is not None]
        order = sorted(range(len(asks)), key=lambda r: (ready[r].bucket, -len(asks[r].indices)))
        indices = [asks[r].indices for r in order]
        prefixes = [ready[r] for r in order]
        device = reasoner.device
        self._block = row_block(device)
        rows = sum(map(len, indices))
        total = rows + -rows % self._block
        self._compiled, compiled = None, reasoner.compiled
        if compiled is not None:
            blocks = [own + (DETERMINISTIC,) * (-len(own) % STATIC_BLOCK) for own in indices]
            size = compiled.rows_of(sampler, prefixes, sum(map(len, blocks)), capacity)
            if size is not None:
                self._compiled, indices, total = compiled, blocks, size
        indices[-1] += (DETERMINISTIC,) * (total - sum(map(len, indices)))
        self.counts = [len(own) for own in indices]
        self._buckets = [prefix.bucket for prefix in prefixes]  # by question
        self.cache: LaneCache | StaticLanes = (
            LaneCache(prefixes, self.counts, capacity)
            if self._compiled is None
            else self._compiled.lanes(prefixes, self.counts)
        )
        flat = [index for own in indices for index in own]
        seeds = [asks[r].seed for r, own in zip(order, indices, strict=True) for _ in own]
        self.noise = LaneNoise(seeds, flat, device)
        self.is_sampled = to_device(torch.tensor(flat) >= 0, device)  # (T,)
        scales = sampler.noise_scales(flat)
        self.noise_scales = (
            None if scales is None else to_device(torch.tensor(scales), device)
        )  # (T,)
        starts, start = {}, 0
        for r, count in zip(order, self.counts, strict=True):
            starts[r], start = start, start + count
        self.rows_of = [
            range(starts[r], starts[r] + len(ask.indices)) for r, ask in enumerate(asks)
        ]
        hidden = torch.stack([prefix.hidden for prefix in prefixes])
        counts = to_device(torch.tensor(self.counts), device)
        self.first_hidden = hidden.repeat_interleave(counts, dim=0, output_size=total)  # (T, D)

    def masks(self, step: int, is_reasoning: torch.Tensor | None = None) -> DropoutMasks | None:
        """Dropout masks of one step, for the sampled lanes that still reason."""
        if self.sampler.dropout == 0.0:
            return None
        reasoner, sites = self.reasoner, self.sampler.spec.sites
        assert isinstance(self.cache, LaneCache)  # compiled passes have no masks
        return DropoutMasks(
            noise=self.noise,
            step=step,
            probability=self.sampler.dropout,
            is_dropping=self.is_sampled if is_reasoning is None else self.is_sampled & is_reasoning,
            addresses=addresses_of(
                frozenset(sites) if sites else reasoner.default_dropout_sites,
                width=reasoner.width,
                layers=reasoner.layer_count,
                heads=reasoner.head_count,
                positions=self.cache.positions(step + 1),
            ),
            dtype=reasoner.dtype,
        )

    def drop_finished(self, is_finished: Sequence[bool]) -> torch.Tensor | None:
        """Remove finished lanes, in blocks; return the rows that stay (n,), or None if all do.

        Without compiled steps few lanes stay too, since removing any copies the keys and values of
        all others.
        """
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
        if self._compiled is None:
            for question, row in spare[: -total % self._block]:
                kept[question].append(row)
        elif (size := self._compiled.smallest(total)) < len(is_finished):
            # Filler of any question, since what these rows compute is not used any more.
            last = max(question for question, rows in enumerate(kept) if rows)
            kept[last] += [row for _, row in spare[: size - total]]
        else:
            return None
        running = sum(self.counts)
        dropped = running - sum(map(len, kept))
        if dropped == 0 or (self._compiled is None and dropped < _LEAST_DROPPED * running):
            return None
        order = sorted(
            (q for q, rows in enumerate(kept) if rows),
            key=lambda q: (self._buckets[q], -len(kept[q])),
        )
        survivors = torch.tensor([row for q in order for row in sorted(kept[q])])
        lanes = to_device(survivors, self.reasoner.device)
        self.counts = [len(kept[q]) for q in order]
        self._buckets = [self._buckets[q] for q in order]
        self.cache.keep(order, lanes, self.counts)
        self.noise = self.noise.select(lanes)
        self.is_sampled = self.is_sampled.index_select(0, lanes)
        return lanes
