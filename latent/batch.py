"""The lanes of one pass: which question and trajectory each row is, and the state they share."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from latent.dropout import DropoutMasks
from latent.lanes import LaneCache, Prefix
from latent.noise import LaneNoise
from latent.reasoner import Reasoner
from latent.samplers import Sampler
from latent.trajectory import DETERMINISTIC

__all__ = ["LaneBatch", "LaneRequest"]

# Lanes leave a running pass in steps of this many, so that few distinct shapes occur.
_BLOCK = 16


@dataclass(frozen=True)
class LaneRequest:
    """One prefilled question and the trajectories wanted of it."""

    prefix: Prefix
    seed: int
    indices: tuple[int, ...]


class LaneBatch:
    """T rows running together: requests in groups of equal lane counts, padded to `floor` rows each."""

    def __init__(
        self,
        reasoner: Reasoner,
        sampler: Sampler,
        requests: Sequence[LaneRequest],
        capacity: int,
        floor: int,
    ) -> None:
        self.reasoner = reasoner
        self.sampler = sampler
        # Rows beyond the wanted ones repeat the deterministic trajectory and are never reported.
        padded = [
            request.indices + (DETERMINISTIC,) * (floor - len(request.indices))
            for request in requests
        ]
        order = sorted(range(len(requests)), key=lambda r: -len(padded[r]))
        self.counts = [len(padded[r]) for r in order]
        self.cache = LaneCache([requests[r].prefix for r in order], self.counts, capacity)
        self.noise = LaneNoise(
            tuple(requests[r].seed for r in order for _ in padded[r]),
            tuple(index for r in order for index in padded[r]),
        )
        self.is_sampled = torch.tensor([index >= 0 for index in self.noise.indices])  # (T,)
        starts, total = {}, 0
        for r, count in zip(order, self.counts, strict=True):
            starts[r], total = total, total + count
        self.rows_of = [
            range(starts[r], starts[r] + len(requests[r].indices)) for r in range(len(requests))
        ]
        hidden = torch.stack([requests[r].prefix.hidden for r in order])
        self.first_hidden = hidden.repeat_interleave(
            torch.tensor(self.counts, device=hidden.device), dim=0
        )  # (T, D)

    def masks(self, step: int, is_reasoning: torch.Tensor | None = None) -> DropoutMasks | None:
        """Give the dropout masks of one step, for the sampled lanes that still reason."""
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
        """Let finished lanes go, in blocks; give the surviving rows, or None if all stay."""
        questions, survivors, counts, start = [], [], [], 0
        for question, count in enumerate(self.counts):
            rows = range(start, start + count)
            start += count
            going = [row for row in rows if not is_finished[row]]
            if not going:
                continue
            wanted = min(-(-len(going) // _BLOCK) * _BLOCK, count)
            done = [row for row in rows if is_finished[row]]
            questions.append(question)
            survivors.append(sorted(going + done[: wanted - len(going)]))
            counts.append(wanted)
        if sum(counts) == sum(self.counts):
            return None
        order = sorted(range(len(counts)), key=lambda q: -counts[q])
        lanes = [row for q in order for row in survivors[q]]
        self.counts = [counts[q] for q in order]
        self.cache.keep([questions[q] for q in order], lanes, self.counts)
        self.noise = self.noise.select(lanes)
        self.is_sampled = self.is_sampled[lanes]
        return lanes
