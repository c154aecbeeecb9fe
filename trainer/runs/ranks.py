"""The processes (ranks) of one run under `torchrun`: they split rollouts and gather the results.

Every rank computes the whole update from the gathered rollouts. An update is cheap beside its
rollouts, and this way equals the update of a single process: no gradient sums are rounded in between.
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
    """Rank of this process and number of ranks, with the collective operations that runs need."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and shows progress."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Contiguous share of this rank; the sizes of shares differ by at most one."""
        if len(items) < self.size:
            raise InputError(f"{len(items)} prompts cannot be split over {self.size} ranks")
        return items[_bounds(len(items), self.rank, self.size)]

    def rows(self, mine: torch.Tensor, total: int) -> torch.Tensor:
        """Gather rows of all ranks on every rank, in rank order: (share, …) → (total, …)."""
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
        """Gather lists of all ranks on every rank, concatenated in rank order."""
        if self.size == 1:
            return items
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, items)
        return [item for part in parts for item in part]

    def wait(self) -> None:
        """Block until every rank has called this."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[Ranks]:
    """Join the process group that torchrun set up; without torchrun there is one rank."""
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
    """Resolve a device name; under torchrun `cuda` and `auto` are each rank's own GPU."""
    if text == "auto" and torch.cuda.is_available():
        text = "cuda"
    device = resolve_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if text == "cuda" else text)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # NCCL collectives use the current device
    return device


def _bounds(total: int, rank: int, size: int) -> slice:
    return slice(rank * total // size, (rank + 1) * total // size)
