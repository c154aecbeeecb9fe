"""The processes of one training run: they share the rollouts, and each makes the whole update.

An update costs little beside the rollouts it learns from; made whole on every rank, it is the very
update of one process, with no rounding of sums of gradients in between. `torchrun` sets ranks up.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from latent.device import resolve_device
from latent.errors import InputError

__all__ = ["Ranks", "joined_ranks", "rank_device"]

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """A process's place among the ranks."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Give this rank's share: contiguous, in rank order, sizes within one of each other."""
        if len(items) < self.size:
            raise InputError(f"{len(items)} prompts cannot be split over {self.size} ranks")
        return items[_bounds(len(items), self.rank, self.size)]

    def rows(self, mine: torch.Tensor, total: int) -> torch.Tensor:
        """Put the ranks' rows together, in rank order, on every rank: (share, …) → (total, …)."""
        if self.size == 1:
            return mine
        whole = mine.new_empty(total, *mine.shape[1:])
        for rank in range(self.size):
            part = whole[_bounds(total, rank, self.size)]
            if rank == self.rank:
                part.copy_(mine)
            dist.broadcast(part, src=rank)
        return whole

    def gather(self, items: list[T]) -> list[T]:
        """Put the ranks' lists together, in rank order, on every rank."""
        if self.size == 1:
            return items
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, items)
        return [item for part in parts for item in part]

    def wait(self) -> None:
        """Let every rank come this far."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[Ranks]:
    """Join the ranks that torchrun started; alone without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks()
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


def rank_device(text: str) -> torch.device:
    """Give the device that a user named; under torchrun `cuda` is each rank's own, and so is `auto`."""
    if text == "auto" and torch.cuda.is_available():
        text = "cuda"
    device = resolve_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if text == "cuda" else text)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where the ranks talk to each other
    return device


def _bounds(total: int, rank: int, size: int) -> slice:
    return slice(rank * total // size, (rank + 1) * total // size)
