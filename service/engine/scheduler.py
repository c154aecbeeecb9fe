"""Groups waiting lanes into rounds, fairly, in time and in index order. Knows no torch and no HTTP."""

from collections import Counter, deque
from collections.abc import Sequence
from itertools import count

from service.engine.job import BLOCK, Job
from service.engine.messages import Group, RoundTask, Task
from service.engine.speed import Speed

__all__ = ["Scheduler"]

Flow = tuple[str, str]  # kind of work, model: few, so that no client can make new ones

_FIRST_LANES = 2 * BLOCK  # in the first round of a group, whose speed is not known yet
_UNKNOWN_SPEED = 0.01  # seconds per lane, until a group's first round is measured
_MAX_SPEEDS = 64  # bounds the table: sampler specs come from requests
# Shares of a group's greatest speed. Rounds that are larger than the knee are of little use; smaller
# ones than the least mostly repeat what every round costs, so the queue grows, whatever their time.
_KNEE, _LEAST = 0.95, 0.5
_SMALL_SHARE = 0.75  # of a round, for budgets below a block, which then wait for no other
# Of the time that is left to a deadline, for the round that should be in time: of a job that has nothing
# yet, less, since without that round it is not answered at all.
_DEADLINE_SHARE, _FIRST_SHARE = 0.8, 0.5


class Scheduler:
    """All open jobs, a lane limit for each device and the measured speed of each group.

    Start-time fair queueing between flows (kind of work and model): each has a virtual time, which
    advances by the seconds of its rounds, and the flow with the least is next. So flows that wait get
    equal time, whatever their rounds cost, and one that was idle is next. Inside a flow, the job that
    was served longest ago decides the group; the jobs of that group get one block of lanes each in
    turn, in index order.
    """

    def __init__(self, devices: int, lane_limit: int, round_seconds: float) -> None:
        self.jobs: dict[str, Job] = {}  # by id; the one served longest ago first
        self._max_lane_limit, self._round_seconds = lane_limit, round_seconds
        self._lane_limits = [lane_limit] * devices
        self._speeds: dict[Group, Speed] = {}
        self._virtual_times: dict[Flow, float] = {}
        self._virtual_now = 0.0  # the virtual time at which the latest round was taken
        self._round_ids = count()

    @property
    def waiting_lanes(self) -> int:
        """Lanes that no round has taken yet."""
        return sum(len(job.pending) for job in self.jobs.values())

    @property
    def waiting_jobs(self) -> int:
        """Jobs with lanes that no round has taken yet."""
        return sum(bool(job.pending) for job in self.jobs.values())

    @property
    def questions(self) -> list[Job]:
        """The open questions; a panel's has several jobs here."""
        return list({id(job.whole): job.whole for job in self.jobs.values()}.values())

    def waiting_seconds(self) -> float:
        """Estimate how long the waiting lanes take, each group at its measured speed."""
        lanes: Counter[Group] = Counter()
        for job in self.jobs.values():
            lanes[job.group] += len(job.pending)
        seconds = sum(self._per_lane(group) * n for group, n in lanes.items())
        return seconds / len(self._lane_limits)

    def expected_seconds(self, round: RoundTask) -> float:
        """Estimate how long a round takes; 0 if its group has not run yet."""
        speed = self._speeds.get(round.group)
        return 0.0 if speed is None else speed.seconds(round.lanes)

    def add(self, job: Job) -> None:
        """Take a job in, behind those that wait."""
        job.release()
        self.jobs[job.job_id] = job

    def remove(self, job: Job) -> None:
        """Forget a job and its waiting lanes."""
        self.jobs.pop(job.job_id, None)

    def put_back(self, task: Task, *, max_lanes: int | None = None, is_alone: bool = False) -> None:
        """Return the lanes of a failed round to the front of their job, if it is still open.

        Limits go with the job, for good: what fits of other jobs says nothing about this one, and
        one that is suspected of killing workers stays so.
        """
        job = self.jobs.get(task.job_id)
        if job is not None:
            job.pending.extendleft(reversed(task.indices))
            job.is_alone |= is_alone
            job.max_lanes = max_lanes or job.max_lanes

    def next_round(self, device: int) -> RoundTask | None:
        """Take the next round for a device off the queue; None if nothing waits."""
        flows: dict[Flow, list[Job]] = {}
        for job in self.jobs.values():
            if job.pending and not self._is_in_vain(job):
                flows.setdefault(job.group[:2], []).append(job)
        if not flows:
            return None
        # A flow that was idle does not keep the time that it left unused.
        starts = {
            each: max(self._virtual_times.get(each, 0.0), self._virtual_now) for each in flows
        }
        flow = min(starts, key=lambda each: starts[each])
        round = self._take(_members(flows[flow]), device)
        seconds = self._per_lane(round.group) * round.lanes
        self._virtual_now = starts[flow]
        self._virtual_times[flow] = starts[flow] + seconds
        return round

    def finished(self, device: int, round: RoundTask, seconds: float | None) -> None:
        """Raise the device's lane limit by a block; learn the group's speed if all lanes ran."""
        self._lane_limits[device] = min(self._lane_limits[device] + BLOCK, self._max_lane_limit)
        if seconds is None:
            return
        # A few lanes take about as long as a block, so they say nothing about the speed of many.
        speed = self._speeds.pop(round.group, None) or Speed()
        speed.learn(max(round.lanes, BLOCK), seconds)
        self._speeds[round.group] = speed
        if len(self._speeds) > _MAX_SPEEDS:
            del self._speeds[next(iter(self._speeds))]

    def out_of_memory(self, device: int, round: RoundTask) -> tuple[int, Job | None]:
        """Halve the lanes at once and put the lanes back for rounds of that size.

        Returns the new limit, and the job that does not fit alone even in the smallest round.
        """
        tried = min(round.lane_limit, round.lanes)
        half, is_smallest = max(BLOCK, tried // 2), tried <= BLOCK
        self._lane_limits[device] = half
        if is_smallest and len(round.tasks) == 1:
            return half, self.jobs.get(round.tasks[0].job_id)
        for task in round.tasks:
            self.put_back(task, max_lanes=half, is_alone=is_smallest)
        return half, None

    def _take(self, jobs: Sequence[Job], device: int) -> RoundTask:
        """Make a round of one group's jobs, block by block in turn; those served go to the back."""
        group = jobs[0].group
        max_lanes = min((job.max_lanes for job in jobs if job.max_lanes), default=None)
        at_once = min(self._lane_limits[device], max_lanes or self._max_lane_limit)
        taken: dict[str, tuple[int, ...]] = {}
        if jobs[0].is_whole:
            taken[jobs[0].job_id] = jobs[0].take(len(jobs[0].pending))
        else:
            size = min(self._round_size(device, group), at_once)
            jobs, size = self._in_time(jobs, size)
            small, room = [], int(size * _SMALL_SHARE)
            for job in sorted(jobs, key=lambda each: len(each.pending)):
                if len(job.pending) < BLOCK and len(job.pending) <= room:
                    small.append(job)
                    room -= len(job.pending)
            queue, room = deque([*small, *(job for job in jobs if job not in small)]), size
            left = {job.job_id: self._lanes_at_once(job) for job in jobs}
            while queue and room > 0:
                job = queue.popleft()
                lanes = job.take(min(BLOCK, room, left[job.job_id]))
                taken[job.job_id] = taken.get(job.job_id, ()) + lanes
                room -= len(lanes)
                left[job.job_id] -= len(lanes)
                if left[job.job_id]:
                    queue.append(job)
        for job in jobs:
            if job.job_id in taken:
                self.jobs[job.job_id] = self.jobs.pop(job.job_id)
        tasks = tuple(self.jobs[job_id].task(lanes) for job_id, lanes in taken.items())
        return RoundTask(next(self._round_ids), group, tasks, at_once)

    def _lanes_at_once(self, job: Job) -> int:
        """Lanes that a round may have of a job.

        A block, if it has nothing yet and more would pass its deadline. Half of a stream that would
        else have nothing to tell: its lanes take longer than a round should, and none has run yet.
        """
        waiting, speed = len(job.pending), self._speeds.get(job.group)
        fit = self._fit(job)
        if fit is not None and not job.has_finished:
            waiting = min(waiting, max(fit, BLOCK))
        is_first = job.whole.is_streamed and len(job.pending) == len(job.indices)
        is_long = speed is not None and speed.seconds(waiting) > self._round_seconds
        if is_first and is_long and waiting > BLOCK:
            return max(BLOCK, _blocks(waiting / 2))
        return waiting

    def _round_size(self, device: int, group: Group) -> int:
        """Bound a round by the device's lanes, by its time, since it is not interrupted, and by use.

        Rounds of one size do not tell what a larger one costs: one of up to twice the size does,
        which takes at most a block longer than it should.
        """
        speed, limit = self._speeds.get(group), self._lane_limits[device]
        if speed is None:
            return min(limit, _FIRST_LANES)
        useful = -(-speed.knee(_KNEE) // BLOCK) * BLOCK or limit
        in_time = _blocks(speed.lanes(self._round_seconds))
        size = max(BLOCK, min(in_time, useful), _blocks(speed.knee(_LEAST)))
        is_usual = abs(size - speed.mean_lanes) < size / 4
        if is_usual and not speed.is_sure:
            size = max(size, min(2 * size, in_time + BLOCK))
        return int(min(limit, size))

    def _in_time(self, jobs: Sequence[Job], size: int) -> tuple[Sequence[Job], int]:
        """Jobs and size of a round that ends before the deadlines of the jobs in it, which come first.

        A deadline that not even a block meets is ignored: it must not make the others' rounds small.
        """
        fits = {job.job_id: fit for job in jobs if (fit := self._fit(job)) is not None}
        hurried = sorted(
            (job for job in jobs if fits.get(job.job_id, 0) >= BLOCK),
            key=lambda job: fits[job.job_id],
        )
        rest = [job for job in jobs if job not in hurried]
        return [*hurried, *rest], min([size, *(fits[job.job_id] for job in hurried)])

    def _fit(self, job: Job) -> int | None:
        """Lanes of a round that ends before a job's deadline; None without one or a known speed."""
        speed, left = self._speeds.get(job.group), job.seconds_left
        if speed is None or left is None:
            return None
        most = _blocks(speed.lanes(_DEADLINE_SHARE * left))
        if job.has_finished:
            return most
        return min(most, max(BLOCK, _blocks(speed.lanes(_FIRST_SHARE * left))))

    def _is_in_vain(self, job: Job) -> bool:
        """Whether more lanes of it would end after its deadline, when it is answered without them."""
        fit = self._fit(job)
        return fit is not None and fit < BLOCK and job.has_finished

    def _per_lane(self, group: Group) -> float:
        speed = self._speeds.get(group)
        return _UNKNOWN_SPEED if speed is None else speed.per_lane


def _blocks(lanes: float) -> int:
    """As many lanes in whole blocks."""
    return int(lanes) // BLOCK * BLOCK


def _members(waiting: Sequence[Job]) -> list[Job]:
    """The jobs that share a round with the first one: those of its group, or none."""
    first = waiting[0]
    if first.is_alone or first.is_whole:
        return [first]
    return [each for each in waiting if each.group == first.group and not each.is_alone]
