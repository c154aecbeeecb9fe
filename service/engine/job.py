"""What the engine knows of a request until it is answered. Pure bookkeeping, on the event loop."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from latent.calibration import Calibration
from latent.solved import Solved
from latent.trajectory import Timing, Trajectory
from latent.votes import Ballot, Tally, VoteKind, tally
from service.engine.messages import LaneReport, Task
from service.engine.scheduler import BLOCK, Demand
from service.engine.stopping import certainty_of, checkpoints
from service.errors import DeadlineError, ServiceError

__all__ = ["Job", "JobRequest"]


@dataclass(frozen=True)
class JobRequest:
    """One question for the engine, checked and complete."""

    request_id: str  # the client's word for it, which need not be unique
    kind: str  # "solve" or "diagnose"
    model: str
    sampler: str
    thoughts: int  # K, for the usage
    question: str
    seed: int
    indices: tuple[int, ...]
    budget: int
    vote: VoteKind = "majority"
    certainty: float | None = None
    answer: str | None = None
    calibration: Calibration | None = None
    job_id: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass
class Job:
    """A request in the engine: its lanes as they come, and the future that answers it."""

    request: JobRequest
    result: "asyncio.Future[Solved | dict[str, Any]]"
    created: float = field(default_factory=time.monotonic)
    started: float | None = None
    strikes: int = 0  # workers that died while it was alone on them
    progress: "asyncio.Queue[Tally]" = field(default_factory=asyncio.Queue)
    is_streamed: bool = False
    _done: dict[int, Trajectory] = field(default_factory=dict)
    _thoughts: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    _prompt_tokens: int = 0
    _timing: Timing = field(default_factory=Timing)
    _told: int = 0
    _released: int = 0

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered it yet."""
        return not self.result.done()

    def demand(self) -> Demand:
        """Give what the scheduler needs to know."""
        request = self.request
        return Demand(
            job_id=request.job_id,
            group=(request.kind, request.model, request.sampler),
            pending=deque(self.release()),
            is_whole=request.kind == "diagnose",
        )

    def release(self) -> tuple[int, ...]:
        """Give more lanes to run: all, or of an adaptive budget those to a next checkpoint."""
        first, total = self._released, len(self.request.indices)
        if len(self._done) < first:
            return ()  # not before the last ones have voted
        is_adaptive = self.request.certainty is not None
        self._released = min(max(BLOCK, 2 * first), total) if is_adaptive else total
        return self.request.indices[first : self._released]

    def task(self, indices: tuple[int, ...]) -> Task:
        """Give what a worker needs to run these lanes; the queue ends for it here."""
        request = self.request
        if self.started is None:
            self.started = time.monotonic()
        return Task(
            request.job_id,
            request.question,
            request.seed,
            indices,
            wants_thoughts=request.vote == "centroid",
            answer=request.answer,
        )

    def accept(self, report: LaneReport) -> int:
        """Take finished lanes in; answer if they suffice. Gives how many turned out surplus."""
        self._timing += report.timing
        self._prompt_tokens = report.prompt_tokens
        if report.diagnosis is not None:
            self.result.set_result(dict(report.diagnosis))
            return 0
        for position, trajectory in enumerate(report.trajectories):
            self._done[trajectory.index] = trajectory
            if report.final_thoughts is not None:
                self._thoughts[trajectory.index] = report.final_thoughts[position]
        return self._settle()

    def expire(self) -> None:
        """Answer with the votes so far, or say that there are none."""
        if not self.is_open:
            return
        finished = self._finished_prefix()
        if self.request.kind == "solve" and finished:
            self.result.set_result(self._solved(len(finished), "deadline"))
        else:
            self.fail(DeadlineError("the deadline passed before any trajectory was finished"))

    def fail(self, error: ServiceError) -> None:
        """Answer with an error."""
        if self.is_open:
            self.result.set_exception(error)

    def _settle(self) -> int:
        request, finished = self.request, self._finished_prefix()
        if request.certainty is not None:
            for count in checkpoints(request.budget):
                if count > len(finished):
                    break
                if certainty_of(self._tally(count).candidates) >= request.certainty:
                    self.result.set_result(self._solved(count, "certainty"))
                    return len(self._done) - count
        if len(finished) == len(request.indices):
            self.result.set_result(self._solved(len(finished), "budget"))
        elif self.is_streamed and len(finished) > self._told:
            self.progress.put_nowait(self._tally(len(finished)))
            self._told = len(finished)
        return 0

    def _finished_prefix(self) -> Sequence[int]:
        """Give the indices that are finished, up to the first gap."""
        indices = self.request.indices
        gap = next((n for n, index in enumerate(indices) if index not in self._done), len(indices))
        return indices[:gap]

    def _tally(self, count: int) -> Tally:
        first = [self._done[index] for index in self.request.indices[:count]]
        ballots = [
            Ballot(done.index, done.answer, done.confidence, self._thoughts.get(done.index))
            for done in first
        ]
        return tally(ballots, self.request.vote)

    def _solved(self, count: int, reason: Literal["budget", "certainty", "deadline"]) -> Solved:
        request, now = self.request, time.monotonic()
        return Solved(
            model=request.model,
            sampler=request.sampler,
            seed=request.seed,
            budget=request.budget,
            prompt_tokens=self._prompt_tokens,
            thoughts=request.thoughts,
            trajectories=[self._done[index] for index in request.indices[:count]],
            tally=self._tally(count),
            timing=self._timing,
            queue_seconds=(self.started or now) - self.created,
            total_seconds=now - self.created,
            ended_by=reason,
            calibration=request.calibration,
        )
