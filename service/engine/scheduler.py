"""Groups waiting lanes into rounds: fair between jobs, in index order. Knows no torch, HTTP or clock."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["BLOCK", "Demand", "Group", "Part", "Round", "Schedule"]

# Lanes are dealt in blocks of this many, so that a budget of 128 and one of 4 share a round.
BLOCK = 16

Group = tuple[str, ...]


@dataclass
class Demand:
    """What one job still wants: its lanes in index order, and with whom they may share a round."""

    job_id: str
    group: Group  # a round has one model, one sampler and one kind of work
    pending: deque[int]
    is_whole: bool = False  # to be taken in one piece, and with nobody else
    is_alone: bool = False  # suspected of killing a worker: nobody else shares its rounds
    most: int | None = None  # lanes at once, once more of them did not fit a device


@dataclass(frozen=True)
class Part:
    """The lanes of one job in a round."""

    job_id: str
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Round:
    """What a worker runs to completion."""

    group: Group
    parts: tuple[Part, ...]
    most: int | None = None  # lanes at once, where the device would otherwise take more

    @property
    def lanes(self) -> int:
        """How many lanes it has."""
        return sum(len(part.indices) for part in self.parts)


@dataclass
class Schedule:
    """All waiting lanes. Groups take turns; inside a group, jobs are dealt a block each in turn."""

    _demands: dict[str, Demand] = field(default_factory=dict)
    _turns: deque[Group] = field(default_factory=deque)

    @property
    def waiting_lanes(self) -> int:
        """Lanes that no round has taken yet."""
        return sum(len(demand.pending) for demand in self._demands.values())

    def waiting_by_group(self) -> dict[Group, int]:
        """Count the same by group."""
        counts: dict[Group, int] = {}
        for demand in self._demands.values():
            counts[demand.group] = counts.get(demand.group, 0) + len(demand.pending)
        return counts

    @property
    def waiting_jobs(self) -> int:
        """Jobs with lanes that no round has taken yet."""
        return sum(bool(demand.pending) for demand in self._demands.values())

    def add(self, demand: Demand) -> None:
        """Take a job in, behind those that wait."""
        self._demands[demand.job_id] = demand

    def extend(self, job_id: str, indices: Sequence[int]) -> None:
        """Let more of a job's lanes run."""
        self._demands[job_id].pending.extend(indices)

    def remove(self, job_id: str) -> int:
        """Forget a job; give how many of its lanes were never run."""
        demand = self._demands.pop(job_id, None)
        return 0 if demand is None else len(demand.pending)

    def put_back(self, part: Part, *, is_alone: bool, most: int | None = None) -> None:
        """Return lanes whose round failed to the front of their job, for rounds of at most `most`.

        The limit goes with the job: what fits of other jobs says nothing about this one.
        """
        demand = self._demands.get(part.job_id)
        if demand is not None:
            demand.pending.extendleft(reversed(part.indices))
            demand.is_alone = is_alone
            demand.most = most or demand.most

    def next_round(self, lane_limit: Callable[[Group], int]) -> Round | None:
        """Take the next round off the queue, at most what its group allows; None if nothing waits."""
        waiting = [demand for demand in self._demands.values() if demand.pending]
        keys = dict.fromkeys(_turn_of(demand) for demand in waiting)
        for key in keys:
            if key not in self._turns:
                self._turns.append(key)
        while self._turns:
            turn = self._turns.popleft()
            if turn in keys:
                self._turns.append(turn)
                members = [demand for demand in waiting if _turn_of(demand) == turn]
                return self._take(members, lane_limit(members[0].group))
        return None

    def _take(self, members: Sequence[Demand], lane_limit: int) -> Round:
        first = members[0]
        most = min((each.most for each in members if each.most is not None), default=None)
        if first.is_whole:
            part = Part(first.job_id, tuple(first.pending))
            first.pending.clear()
            return Round(first.group, (part,), most)
        taken: dict[str, list[int]] = {}
        room = lane_limit if most is None else min(lane_limit, most)
        queue = deque(members)
        while queue and room > 0:
            demand = queue.popleft()
            count = min(BLOCK, room, len(demand.pending))
            taken.setdefault(demand.job_id, []).extend(
                demand.pending.popleft() for _ in range(count)
            )
            room -= count
            if demand.pending:
                queue.append(demand)
        for demand in members:  # whoever was served goes to the back
            if demand.job_id in taken:
                self._demands[demand.job_id] = self._demands.pop(demand.job_id)
        parts = tuple(Part(job, tuple(lanes)) for job, lanes in taken.items())
        return Round(first.group, parts, most)


def _turn_of(demand: Demand) -> Group:
    return (*demand.group, demand.job_id) if demand.is_alone or demand.is_whole else demand.group
