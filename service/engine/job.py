"""One question in the engine, from admission to its answer. Bookkeeping on the event loop, no I/O."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from latent.calibration import Calibration
from latent.familiarity import Familiarity
from latent.solved import EndedBy, MemberWork, Solved
from latent.stopping import Stop, checkpoints
from latent.trajectory import Timing, Trajectory
from latent.votes import Tally, VoteKind, tally
from service.engine.messages import Group, Kind, LaneReport, Task, View
from service.errors import DeadlineError, ServiceError

__all__ = ["BLOCK", "Job"]

# Lanes are scheduled in blocks of this many, so that a budget of 128 and one of 4 share a round.
BLOCK = 16


@dataclass(eq=False)
class Job:
    """A checked question, its lanes that wait or are finished, and the future that answers it."""

    request_id: str  # the client's, which need not be unique
    kind: Kind
    model: str
    sampler: str
    thoughts: int  # K, for the usage
    question: str
    seed: int
    indices: tuple[int, ...]
    budget: int
    vote: VoteKind = "majority"
    stop: Stop | None = None  # of an adaptive budget
    abstain_below: float | None = None
    answer: str | None = None  # the true answer, for a diagnosis
    views: tuple[View, ...] = ()  # for a trace
    calibration: Calibration | None = None
    familiarity: Familiarity | None = None
    deadline_ms: int | None = None
    is_streamed: bool = False
    wants_tokens: bool = False
    job_id: str = field(default_factory=lambda: secrets.token_hex(8))

    # The scheduler's: the released lanes that no round has taken, in index order.
    pending: deque[int] = field(default_factory=deque)
    is_alone: bool = False  # suspected of killing a worker: it shares no round
    max_lanes: int | None = None  # lanes at once, after more of them did not fit a device
    prompt_tokens: int = 0  # known once a round has run
    strikes: int = 0  # workers that died while it was alone on them
    owner: "Job | None" = None  # the panel's job that these lanes are a member's part of

    result: "asyncio.Future[Solved | dict[str, Any]]" = field(init=False)  # set by Engine.submit
    progress: "asyncio.Queue[Tally | None]" = field(default_factory=asyncio.Queue)  # None: answered
    _created: float = field(default_factory=time.monotonic)
    _started: float | None = None
    _done: dict[int, Trajectory] = field(default_factory=dict)
    _answer_tokens: dict[int, int] = field(default_factory=dict)
    _timing: Timing = field(default_factory=Timing)
    _released_count: int = 0
    _streamed_count: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it has no answer yet."""
        return not self.result.done()

    @property
    def whole(self) -> "Job":
        """The job that these lanes answer: itself, or that of its panel."""
        return self.owner or self

    @property
    def parts(self) -> "Sequence[Job]":
        """The jobs whose lanes are scheduled for it: itself, or the members' of a panel."""
        return (self,)

    @property
    def seconds_left(self) -> float | None:
        """Time until its deadline, or that of its panel; None without one."""
        if self.whole.deadline_ms is None:
            return None
        return self.whole._created + self.whole.deadline_ms / 1e3 - time.monotonic()

    @property
    def has_finished(self) -> bool:
        """Whether lanes of it are finished, of which it could be answered."""
        return bool(self._done)

    @property
    def is_whole(self) -> bool:
        """Whether its lanes must run in one round, which it then has for itself."""
        return self.kind != "solve"

    @property
    def group(self) -> Group:
        """What the lanes of a round have in common."""
        return self.kind, self.model, self.sampler

    def release(self) -> None:
        """Let more lanes be scheduled: all, or of an adaptive budget those up to a next checkpoint."""
        if self.owner is not None:
            self.owner.release()
            return
        first = self._released_count
        if self.done_count < first:
            return  # the stop rule looks at those first
        self._released_count = self._next_release(first)
        self._queue(first, self._released_count)

    def _next_release(self, first: int) -> int:
        """How many lanes are released once the first ones are done."""
        total = len(self.indices)
        return total if self.stop is None else min(max(BLOCK, 2 * first), total)

    def _queue(self, first: int, last: int) -> None:
        self.pending.extend(self.indices[first:last])

    def take(self, count: int) -> tuple[int, ...]:
        """Take the next waiting lanes for a round; the time in the queue ends with the first."""
        if self._started is None:
            self._started = time.monotonic()
        return tuple(self.pending.popleft() for _ in range(count))

    def task(self, indices: tuple[int, ...]) -> Task:
        """Describe these lanes for a worker."""
        return Task(
            job_id=self.job_id,
            question=self.question,
            seed=self.seed,
            indices=indices,
            wants_thoughts=self.vote == "centroid",
            answer=self.answer,
            views=self.views,
            wants_tokens=self.wants_tokens,
            wants_score=self.vote == "verifier",
        )

    def accept(self, report: LaneReport) -> int:
        """Take in finished lanes and answer if they suffice; return how many were surplus."""
        self._timing += report.timing
        self.prompt_tokens = report.prompt_tokens
        if report.findings is not None:
            self.result.set_result(dict(report.findings))
            return 0
        for position, trajectory in enumerate(report.trajectories):
            self._done[trajectory.index] = trajectory
            self._answer_tokens[trajectory.index] = report.answer_tokens[position]
        return self.whole.answer_if_enough()

    def drawn(self, index: int) -> Trajectory | None:
        """A finished trajectory; None while it runs or waits."""
        return self._done.get(index)

    @property
    def done_count(self) -> int:
        """Finished lanes, in any order."""
        return len(self._done)

    def expire(self) -> None:
        """Answer at the deadline: with the votes of the finished prefix, or an error if it is empty."""
        if not self.is_open:
            return
        count = self._finished_prefix()
        if self.kind == "solve" and count:
            self.result.set_result(self._solved(count, "deadline"))
        else:
            self.fail(DeadlineError("the deadline passed before any trajectory was finished"))

    def fail(self, error: ServiceError) -> None:
        """Answer with an error, unless it is answered."""
        if self.is_open:
            self.result.set_exception(error)

    def answer_if_enough(self) -> int:
        """Answer if the finished lanes suffice, else stream their votes; return the surplus lanes."""
        finished = self._finished_prefix()
        for count in self._stops():
            if count > finished:
                break
            if self._is_enough(count):
                reason: EndedBy = "certainty" if self.stop is None else self.stop.kind
                self.result.set_result(self._solved(count, reason))
                return self.done_count - count
        if finished == len(self.indices):
            self.result.set_result(self._solved(finished, "budget"))
        elif self.is_streamed and finished > self._streamed_count:
            self.progress.put_nowait(self._tally(finished))
            self._streamed_count = finished
        return 0

    def _stops(self) -> Iterable[int]:
        """Numbers of lanes at which it may end early, ascending."""
        return () if self.stop is None else checkpoints(self.budget)

    def _is_enough(self, count: int) -> bool:
        assert self.stop is not None
        return self.stop.is_reached(self._tally(count), self.calibration, self.familiarity)

    def _finished_prefix(self) -> int:
        """Count the finished lanes before the first unfinished one: the result depends on no timing."""
        gaps = (n for n, index in enumerate(self.indices) if self.drawn(index) is None)
        return next(gaps, len(self.indices))

    def _cast(self, count: int) -> list[Trajectory]:
        found = [self.drawn(index) for index in self.indices[:count]]
        return [each for each in found if each is not None]

    def _tally(self, count: int) -> Tally:
        return tally(self._cast(count), self.vote)

    def work(self, label: str, used: Sequence[int]) -> MemberWork:
        """What it did for its panel's answer, which uses these of its lanes."""
        waited = 0.0 if self._started is None else self._started - self._created
        return MemberWork(
            member=label,
            trajectories=len(used),
            prompt_tokens=self.prompt_tokens,
            thoughts=self.thoughts * len(used),
            answer_tokens=sum(self._answer_tokens[index] for index in used),
            timing=self._timing,
            queue_seconds=waited,
        )

    def _solved(self, count: int, reason: EndedBy) -> Solved:
        now, used = time.monotonic(), self.indices[:count]
        return Solved(
            model=self.model,
            sampler=self.sampler,
            seed=self.seed,
            budget=self.budget,
            prompt_tokens=self.prompt_tokens,
            thoughts=self.thoughts * count,
            answer_tokens=sum(self._answer_tokens[index] for index in used),
            trajectories=self._cast(count),
            tally=self._tally(count),
            timing=self._timing,
            queue_seconds=(self._started or now) - self._created,
            total_seconds=now - self._created,
            ended_by=reason,
            calibration=self.calibration,
            familiarity=self.familiarity,
            abstain_below=self.abstain_below,
        )
