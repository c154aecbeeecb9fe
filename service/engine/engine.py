"""Admission, lanes, futures, deadlines: the API process's side. Imports no torch.

Every job that was taken in is answered: with its votes, an error, or, after a worker's death, by
running its lanes again. All randomness is keyed by (seed, trajectory), so a second run changes nothing.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from service.engine.job import Job, JobRequest
from service.engine.messages import Failure, RoundReport, RoundTask, WorkerConfig
from service.engine.pool import Fleet
from service.engine.process import WorkerMain, worker_main
from service.engine.scheduler import BLOCK, Group, Round, Schedule
from service.errors import (
    DrainingError,
    NotReadyError,
    OverloadedError,
    ServiceError,
    WorkerError,
)
from service.metrics import Metrics
from service.models import Catalog
from service.settings import Settings

__all__ = ["Engine"]

_STRIKES = 2
_DRAIN_TICK = 0.02


class Engine:
    """`submit` jobs and await their results. Everything happens on one event loop."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        metrics: Metrics,
        main: WorkerMain = worker_main,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._schedule = Schedule()
        self._jobs: dict[str, Job] = {}
        self._is_draining = False
        configs = [
            WorkerConfig(
                models=catalog.places(),
                device=device,
                dtype=settings.dtype,
                threads=settings.threads,
                prefix_cache_bytes=settings.prefix_cache_mib * 2**20,
                log_format=settings.log_format,
            )
            for device in settings.devices
        ]
        self._fleet = Fleet(
            configs,
            settings.lane_limit,
            settings.round_seconds,
            settings.hang_seconds,
            main,
            self,
        )
        metrics.watch(self)

    @property
    def is_ready(self) -> bool:
        """Whether a request would be taken and run now."""
        return self._fleet.is_ready and not self._is_draining

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
        return self._fleet.running_lanes

    @property
    def open_jobs(self) -> int:
        """Jobs taken in and not answered."""
        return len(self._jobs)

    async def start(self) -> None:
        """Start the workers and wait until they are warm."""
        await self._fleet.start()

    async def drain(self) -> None:
        """Take nothing more; wait for what is open, as long as the settings allow."""
        self._is_draining = True
        deadline = time.monotonic() + self._settings.drain_seconds
        while self._jobs and time.monotonic() < deadline:
            await asyncio.sleep(_DRAIN_TICK)

    def close(self) -> None:
        """Stop the workers and answer whoever still waits."""
        self._is_draining = True
        self._fleet.close()
        for job in list(self._jobs.values()):
            job.fail(DrainingError("the server is shutting down"))

    def submit(
        self,
        requests: Sequence[JobRequest],
        *,
        deadline_ms: int | None,
        is_streamed: bool = False,
    ) -> list[Job]:
        """Take jobs in, all or none."""
        self._admit(sum(len(request.indices) for request in requests))
        loop = asyncio.get_running_loop()
        jobs = [Job(request, loop.create_future(), is_streamed=is_streamed) for request in requests]
        for job in jobs:
            self._jobs[job.request.job_id] = job
            self._schedule.add(job.demand())
            job.result.add_done_callback(lambda _, job=job: self._forget(job))  # type: ignore[misc]
            if deadline_ms is not None:
                timer = loop.call_later(deadline_ms / 1e3, job.expire)
                job.result.add_done_callback(lambda _, timer=timer: timer.cancel())  # type: ignore[misc]
        self._fleet.dispatch()
        return jobs

    def cancel(self, job: Job) -> None:
        """Free a job's lanes: its client has gone."""
        if job.is_open:
            job.result.cancel()
            self._metrics.cancelled.inc()

    def next_round(self, lane_limit: Callable[[Group], int]) -> Round | None:
        """Give a free worker its next lanes."""
        return self._schedule.next_round(lane_limit)

    def task_of(self, round_id: int, round: Round, lane_limit: int) -> RoundTask:
        """Say what the lanes of a round are."""
        kind, model, sampler = round.group[:3]
        tasks = [self._jobs[part.job_id].task(part.indices) for part in round.parts]
        return RoundTask(round_id, kind, model, sampler, tuple(tasks), lane_limit)

    def on_report(self, round: Round, report: RoundReport) -> None:
        """Hand finished lanes to their jobs."""
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
            if job.result.done():  # at once, so that the next round has none of it
                self._forget(job)
            else:
                self._schedule.extend(part.job_id, job.release())

    def on_out_of_memory(self, round: Round, tried: int) -> None:
        """Put the lanes back for smaller rounds; one question that does not fit the smallest fails."""
        self._metrics.out_of_memory.inc()
        is_smallest = tried <= BLOCK
        for part in round.parts:
            if is_smallest and len(round.parts) == 1:
                self._fail(part.job_id, WorkerError("the device has no room for this question"))
            self._schedule.put_back(part, is_alone=is_smallest, most=max(BLOCK, tried // 2))

    def on_lost(self, round: Round | None) -> None:
        """Run what was in flight again, each job alone; two deaths while alone are enough."""
        self._metrics.restarts.inc()
        if round is None:
            return
        for part in round.parts:
            job = self._jobs.get(part.job_id)
            if job is not None and len(round.parts) == 1:
                job.strikes += 1
                if job.strikes >= _STRIKES:
                    self._fail(part.job_id, WorkerError("the worker died on this question, twice"))
            self._schedule.put_back(part, is_alone=True)

    def on_stuck(self) -> None:
        """Answer whoever waits: the workers do not come back."""
        for job in list(self._jobs.values()):
            job.fail(WorkerError("no worker can be started; the log says why"))

    def _admit(self, lanes: int) -> None:
        if self._is_draining:
            self._metrics.rejected.labels("draining").inc()
            raise DrainingError("the server is shutting down; ask another", retry_after=1)
        if not self._fleet.is_ready:
            self._metrics.rejected.labels("not_ready").inc()
            raise NotReadyError("no worker is ready; try again in a moment", retry_after=1)
        waiting, limit = self._schedule.waiting_lanes, self._settings.waiting_lanes
        if waiting and waiting + lanes > limit:
            self._metrics.rejected.labels("queue_full").inc()
            seconds = self._fleet.seconds_for(self._schedule.waiting_by_group())
            raise OverloadedError(
                f"{waiting} lanes wait and the limit is {limit}; try again later",
                retry_after=max(1, math.ceil(seconds)),
            )

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.request.job_id, None)
        self._schedule.remove(job.request.job_id)

    def _fail(self, job_id: str, error: ServiceError) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            job.fail(error)
            self._forget(job)


def _error_of(failure: Failure) -> ServiceError:
    if not failure.is_users:
        return WorkerError(failure.message)
    return ServiceError(
        failure.message,
        status=422,
        type="invalid_request",
        code="invalid_field",
        param=failure.param,
    )
