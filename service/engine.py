"""Admission, rounds, futures, deadlines: the API process's side. Imports no torch.

Every job that was taken in is answered: with its votes, an error, or, after a worker's death, by
running its lanes again. All randomness is keyed by (seed, trajectory), so a second run changes nothing.
"""

import asyncio
import logging
import math
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from service.catalog import Catalog
from service.errors import (
    DrainingError,
    NotReadyError,
    OverloadedError,
    ServiceError,
    WorkerError,
)
from service.jobs import Job, JobRequest
from service.messages import (
    Failure,
    OutOfMemory,
    Ready,
    RoundReport,
    RoundTask,
    WorkerConfig,
)
from service.metrics import Metrics
from service.rounds import BLOCK, Group, Round, Schedule
from service.settings import Settings
from service.supervisor import WorkerMain, WorkerProcess, worker_main

__all__ = ["Engine"]

_log = logging.getLogger("gts.engine")

_STRIKES = 2
_FIRST_LANES = 2 * BLOCK  # of a group whose speed nobody knows yet
_SPEED_MEMORY = 0.8  # of the moving average of seconds per lane
_RESTART_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0)


@dataclass
class _Device:
    """One worker's place: the process that fills it now, and the round it runs."""

    config: WorkerConfig
    lane_limit: int
    process: WorkerProcess | None = None
    is_ready: bool = False
    deaths_in_a_row: int = 0
    running: dict[int, Round] = field(default_factory=dict)


class Engine:
    """`submit` a job, await its result. Everything happens on one event loop."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        metrics: Metrics,
        main: WorkerMain = worker_main,
    ) -> None:
        self._settings = settings
        self._worker_main = main
        self._catalog = catalog
        self._metrics = metrics
        self._schedule = Schedule()
        self._jobs: dict[str, Job] = {}
        self._round_ids = count()
        self._seconds_per_lane: dict[Group, float] = {}
        self._is_draining = self._is_closed = False
        self._first_answer: asyncio.Future[str | None] | None = None
        self._devices = [
            _Device(
                WorkerConfig(
                    models=catalog.places(),
                    device=device,
                    dtype=settings.dtype,
                    threads=settings.threads,
                    prefix_cache_bytes=settings.prefix_cache_mib * 2**20,
                ),
                settings.lane_limit,
            )
            for device in settings.devices
        ]
        metrics.watch(self)

    @property
    def is_ready(self) -> bool:
        """Whether a request would be taken and run now."""
        return not self._is_draining and any(device.is_ready for device in self._devices)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to answer."""
        return not self._jobs

    @property
    def waiting_lanes(self) -> int:
        """Lanes that no round has taken yet."""
        return self._schedule.waiting_lanes

    @property
    def waiting_jobs(self) -> int:
        """Jobs with such lanes."""
        return self._schedule.waiting_jobs

    @property
    def running_lanes(self) -> int:
        """Lanes on the devices now."""
        return sum(round.lanes for device in self._devices for round in device.running.values())

    @property
    def open_jobs(self) -> int:
        """Jobs taken in and not answered."""
        return len(self._jobs)

    @property
    def worker_pids(self) -> list[int]:
        """The worker processes, for tests that kill them."""
        processes = (device.process for device in self._devices)
        return [process.pid for process in processes if process is not None and process.pid]

    async def start(self) -> None:
        """Start the workers, once; return when each is warm, or raise what the first of them says."""
        if self._first_answer is not None:
            return
        loop = asyncio.get_running_loop()
        self._first_answer = loop.create_future()
        for device in self._devices:
            self._spawn(device)
        failure = await self._first_answer
        if failure is not None:
            self.close()
            raise NotReadyError(failure)

    async def drain(self) -> None:
        """Take nothing more; wait for what is open, as long as the settings allow."""
        self._is_draining = True
        deadline = time.monotonic() + self._settings.drain_seconds
        while self._jobs and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Stop the workers and answer whoever still waits."""
        self._is_draining = self._is_closed = True
        for job in list(self._jobs.values()):
            job.fail(DrainingError("the server is shutting down"))
        for device in self._devices:
            if device.process is not None:
                device.process.stop()

    def submit(
        self, requests: list[JobRequest], *, deadline_ms: int | None, is_streamed: bool = False
    ) -> list[Job]:
        """Take jobs in, all or none."""
        self._admit(sum(len(request.indices) for request in requests))
        loop = asyncio.get_running_loop()
        jobs = []
        for request in requests:
            job = Job(request, loop.create_future(), is_streamed=is_streamed)
            job.result.add_done_callback(lambda _, job=job: self._forget(job))  # type: ignore[misc]
            self._jobs[request.job_id] = job
            self._schedule.add(job.demand())
            if deadline_ms is not None:
                timer = loop.call_later(deadline_ms / 1e3, job.expire)
                job.result.add_done_callback(lambda _, timer=timer: timer.cancel())  # type: ignore[misc]
            jobs.append(job)
        self._dispatch()
        return jobs

    def cancel(self, job: Job) -> None:
        """Free a job's lanes: its client has gone."""
        if job.is_open:
            job.result.cancel()
            self._metrics.cancelled.inc()

    def _admit(self, lanes: int) -> None:
        if self._is_draining:
            raise DrainingError("the server is shutting down; ask another", retry_after=1)
        if not self.is_ready:
            raise NotReadyError("no worker is ready; try again in a moment", retry_after=1)
        waiting = self._schedule.waiting_lanes
        if waiting and waiting + lanes > self._settings.waiting_lanes:
            self._metrics.rejected.labels("queue_full").inc()
            raise OverloadedError(
                f"{waiting} lanes wait and the limit is {self._settings.waiting_lanes}; try again later",
                retry_after=self._seconds_to_clear(waiting),
            )

    def _seconds_to_clear(self, lanes: int) -> int:
        speeds = self._seconds_per_lane.values()
        slowest = max(speeds, default=0.01)
        return max(1, math.ceil(lanes * slowest / len(self._devices)))

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.request.job_id, None)
        self._schedule.remove(job.request.job_id)

    def _spawn(self, device: _Device) -> None:
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        device.process = WorkerProcess(
            device.config,
            self._worker_main,
            loop,
            lambda process, message: self._on_message(device, process, message),
            lambda process: self._on_death(device, process),
        )

    def _dispatch(self) -> None:
        """Give every idle device the next round."""
        for device in self._devices:
            if device.is_ready and not device.running:
                round = self._schedule.next_round(partial(self._round_size, device))
                if round is not None:
                    self._start(device, round)

    def _round_size(self, device: _Device, group: Group) -> int:
        """Bound a round by the device's lanes and by the time it may take: it is not interrupted."""
        speed = self._seconds_per_lane.get(group)
        if speed is None:
            return min(device.lane_limit, _FIRST_LANES)
        in_time = int(self._settings.round_seconds / speed) // BLOCK * BLOCK
        return max(BLOCK, min(device.lane_limit, in_time))

    def _start(self, device: _Device, round: Round) -> None:
        round_id = next(self._round_ids)
        now = time.monotonic()
        device.running[round_id] = round
        kind, model, sampler = round.group[:3]
        tasks = []
        for part in round.parts:
            job = self._jobs[part.job_id]
            if job.started is None:
                job.started = now
            tasks.append(job.task(part.indices))
        assert device.process is not None
        device.process.send(RoundTask(round_id, kind, model, sampler, tuple(tasks)))

    def _on_message(self, device: _Device, process: WorkerProcess, message: Any) -> None:
        if process is not device.process:
            return  # the last words of one that has been replaced
        if isinstance(message, Ready):
            self._on_ready(device, message)
        elif isinstance(message, RoundReport):
            self._on_report(device, message)
        elif isinstance(message, OutOfMemory):
            self._on_out_of_memory(device, message)
        self._dispatch()

    def _on_ready(self, device: _Device, message: Ready) -> None:
        device.is_ready = message.failure is None
        if message.failure is None:
            _log.info("worker ready", extra={"pid": message.pid, "device": message.device})
        if self._first_answer is not None and not self._first_answer.done():
            everyone = all(each.is_ready for each in self._devices)
            if message.failure is not None or everyone:
                self._first_answer.set_result(message.failure)

    def _on_report(self, device: _Device, report: RoundReport) -> None:
        round = device.running.pop(report.round_id)
        device.deaths_in_a_row = 0
        self._learn_speed(round, report.seconds)
        self._metrics.saw_round(round, report)
        for part in round.parts:
            job = self._jobs.get(part.job_id)
            if job is None or not job.is_open:
                continue  # expired or cancelled meanwhile
            result = report.results[part.job_id]
            if isinstance(result, Failure):
                job.fail(_error_of(result))
            else:
                self._metrics.surplus.inc(job.accept(result))

    def _learn_speed(self, round: Round, seconds: float) -> None:
        measured = seconds / round.lanes
        before = self._seconds_per_lane.get(round.group, measured)
        mixed = _SPEED_MEMORY * before + (1 - _SPEED_MEMORY) * measured
        self._seconds_per_lane[round.group] = mixed
        if len(self._seconds_per_lane) > 64:  # specs are the users' to invent
            self._seconds_per_lane.pop(next(iter(self._seconds_per_lane)))

    def _on_out_of_memory(self, device: _Device, message: OutOfMemory) -> None:
        """Halve what a round may hold and try again; one block alone that does not fit fails."""
        round = device.running.pop(message.round_id)
        self._metrics.out_of_memory.inc()
        if (round.lanes <= BLOCK and len(round.parts) == 1) or round.group[0] == "diagnose":
            for part in round.parts:
                self._fail(part.job_id, WorkerError("the device has no room for this question"))
            return
        device.lane_limit = max(BLOCK, min(device.lane_limit, round.lanes) // 2)
        _log.warning("out of memory; halved the lane limit", extra={"lanes": device.lane_limit})
        for part in round.parts:
            self._schedule.put_back(part, is_alone=False)

    def _on_death(self, device: _Device, process: WorkerProcess) -> None:
        """Run what was in flight again, each job alone; start a new worker."""
        if process is not device.process or self._is_closed:
            return
        device.is_ready = False
        self._metrics.restarts.inc()
        _log.error("worker died", extra={"pid": process.pid, "device": device.config.device})
        if self._first_answer is not None and not self._first_answer.done():
            self._first_answer.set_result("a worker died while it was starting; see the log")
            return
        for round in device.running.values():
            was_alone = len(round.parts) == 1
            for part in round.parts:
                self._blame(part.job_id, was_alone)
                self._schedule.put_back(part, is_alone=True)
        device.running.clear()
        wait = _RESTART_SECONDS[min(device.deaths_in_a_row, len(_RESTART_SECONDS) - 1)]
        device.deaths_in_a_row += 1
        asyncio.get_running_loop().call_later(wait, self._spawn, device)

    def _blame(self, job_id: str, was_alone: bool) -> None:
        job = self._jobs.get(job_id)
        if job is None or not was_alone:
            return
        job.strikes += 1
        if job.strikes >= _STRIKES:
            self._fail(job_id, WorkerError("the worker died on this question, twice"))

    def _fail(self, job_id: str, error: ServiceError) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            job.fail(error)
            self._forget(job)


def _error_of(failure: Failure) -> ServiceError:
    if failure.is_users:
        return ServiceError(
            failure.message,
            status=422,
            type="invalid_request",
            code="invalid_field",
            param=failure.param,
        )
    return WorkerError(failure.message)
