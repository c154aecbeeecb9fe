"""Admits jobs, schedules their lanes in rounds, answers them. The API process's side; imports no torch.

Every admitted job is answered: with its votes, with an error, or, if a worker dies, by running its
lanes again. All randomness is keyed by (seed, trajectory), so the second run gives the same answer.
"""

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from service.engine.job import Job
from service.engine.messages import (
    Failure,
    OutOfMemory,
    Ready,
    RoundReport,
    RoundTask,
    WorkerConfig,
)
from service.engine.pool import Event, Pool
from service.engine.process import WorkerMain, worker_main
from service.engine.scheduler import Scheduler
from service.errors import (
    DrainingError,
    NotReadyError,
    OverloadedError,
    ServiceError,
    WorkerError,
    invalid_field,
)
from service.metrics import Metrics
from service.models import Catalog
from service.settings import Settings

__all__ = ["Engine"]

_log = logging.getLogger("gts.engine")

_MAX_STRIKES = 2  # deaths of a worker while a job was alone on it
_LEAD_SECONDS, _LEAD_SHARE = 0.02, 0.1  # before the expected end of a round, when the next is sent
_HANG_FACTOR = 20  # a round that takes so many times its estimate is considered hung


class Engine:
    """`submit` jobs and await their results. Everything happens on one event loop."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        metrics: Metrics,
        main: WorkerMain = worker_main,
    ) -> None:
        self._settings, self._metrics = settings, metrics
        self.reproducible: Mapping[
            str, Literal["bits", "tokens"]
        ] = {}  # by model; from the workers
        self.dtypes: Mapping[str, str] = {}  # likewise
        self._is_draining = False
        configs = [
            WorkerConfig(
                models=catalog.places(),
                device=device,
                dtype=settings.dtype,
                threads=settings.threads,
                prefix_cache_bytes=settings.prefix_cache_mib * 2**20,
                log_format=settings.log_format,
                compiled_lanes=settings.lane_limit if settings.compile else 0,
            )
            for device in settings.devices
        ]
        self._scheduler = Scheduler(len(configs), settings.lane_limit, settings.round_seconds)
        self._pool = Pool(configs, main, settings.load_seconds, self._step, settings.has_spares)
        metrics.watch(self._scheduler, self._pool, lambda: self.is_ready)

    @property
    def is_ready(self) -> bool:
        """Whether a request would be admitted and run now."""
        return self._pool.is_ready and not self._is_draining

    @property
    def open_jobs(self) -> int:
        """Jobs that were admitted and have no answer yet."""
        return len(self._scheduler.questions)

    async def start(self) -> None:
        """Start the workers and wait until they are warm."""
        await self._pool.start()

    async def drain(self) -> None:
        """Admit nothing more; wait for the open jobs, as long as the settings allow."""
        self._is_draining = True
        if results := [job.result for job in self._scheduler.questions]:
            await asyncio.wait(results, timeout=self._settings.drain_seconds)

    def close(self) -> None:
        """Stop the workers, and answer the jobs that are still open with an error."""
        self._is_draining = True
        self._pool.close()
        self._fail_all(DrainingError, "the server is shutting down")

    def submit(self, jobs: Sequence[Job], *, is_continued: bool = False) -> None:
        """Admit jobs, all or none; those that continue an admitted request find the queue open."""
        self._admit(sum(len(job.indices) for job in jobs), is_continued)
        for job in jobs:
            self._open(job)
        self._step()

    def cancel(self, job: Job) -> None:
        """Free a job's lanes: its client has disconnected."""
        if job.is_open:
            job.result.cancel()
            self._metrics.cancelled.inc()

    def _step(self, event: Event | None = None) -> None:
        """Postprocess what a device reports, then schedule and run a round on every idle device."""
        if event is not None:
            self._postprocess(event)
        begun = set() if event is None else {event.device}  # a round, perhaps
        for device in self._pool.idle_devices:
            round = self._scheduler.next_round(device)
            if round is None:
                break
            self._run(device, round)
            begun.add(device)
        for device in begun:
            self._plan_next(device)

    def _run(self, device: int, round: RoundTask) -> None:
        expected = self._scheduler.expected_seconds(round)
        hang_seconds = max(self._settings.hang_seconds, _HANG_FACTOR * expected)
        self._pool.run(device, round, hang_seconds)

    def _plan_next(self, device: int) -> None:
        """Send a device the next round a moment before the one that it begins now should end.

        So it does not wait while this process takes results in, and what is asked meanwhile is in
        the next round. A round of unknown length has none behind it.
        """
        round = self._pool.running_round(device)
        if round is None or not self._pool.is_last(device, round):
            return
        if expected := self._scheduler.expected_seconds(round):
            wait = max(0.0, expected - max(_LEAD_SECONDS, _LEAD_SHARE * expected))
            asyncio.get_running_loop().call_later(wait, self._run_behind, device, round)

    def _run_behind(self, device: int, round: RoundTask) -> None:
        if not self._pool.is_last(device, round):
            return
        behind = self._scheduler.next_round(device)
        if behind is not None:
            self._run(device, behind)

    def _postprocess(self, event: Event) -> None:
        match event.outcome:
            case Ready() as ready:
                self.reproducible, self.dtypes = ready.reproducible, ready.dtypes
            case RoundReport() as report:
                self._on_report(event.device, event.rounds[0], report)
            case OutOfMemory():
                self._on_out_of_memory(event.device, event.rounds[0])
            case "lost":
                self._on_lost(event.rounds)
            case "stuck":
                _log.error("no worker can be started")
                self._fail_all(WorkerError, "no worker can be started; the log says why")

    def _on_report(self, device: int, round: RoundTask, report: RoundReport) -> None:
        """Pass finished lanes to their jobs."""
        all_ran = not any(isinstance(result, Failure) for result in report.results.values())
        self._scheduler.finished(device, round, report.seconds if all_ran else None)
        for task in round.tasks:
            job = self._scheduler.jobs.get(task.job_id)
            if job is None or not job.whole.is_open:
                continue  # expired or cancelled meanwhile
            result = report.results[task.job_id]
            if isinstance(result, Failure):
                self._fail(job.whole, _error_of(result))
                continue
            self._metrics.surplus.inc(job.accept(result))
            if job.whole.result.done():  # at once, so that the next round has none of its lanes
                self._remove(job.whole)
            else:
                job.release()
        # Behind the answers, which are sent in the next turn of the loop.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._metrics.observe_round, round, report)

    def _on_out_of_memory(self, device: int, round: RoundTask) -> None:
        """Try again in smaller rounds; a question that does not fit the smallest fails."""
        self._metrics.out_of_memory.inc()
        lanes, hopeless = self._scheduler.out_of_memory(device, round)
        _log.warning("out of memory; halved the lanes", extra={"lanes": lanes})
        if hopeless is not None:
            self._fail(hopeless.whole, WorkerError("the device has no room for this question"))

    def _on_lost(self, rounds: Sequence[RoundTask]) -> None:
        """Run what was in flight again; what ran, each job alone, and one that was so gets a strike."""
        self._metrics.restarts.inc()
        for number, round in reversed(list(enumerate(rounds))):
            for task in round.tasks:
                if number > 0:  # it was waiting behind the one that ran
                    self._scheduler.put_back(task)
                    continue
                job = self._scheduler.jobs.get(task.job_id)
                if job is not None and job.is_alone:
                    job.strikes += 1
                    if job.strikes >= _MAX_STRIKES:
                        self._fail(
                            job.whole, WorkerError("the worker died on this question, twice")
                        )
                self._scheduler.put_back(task, is_alone=True)

    def _admit(self, lanes: int, is_continued: bool) -> None:
        if self._is_draining:
            self._metrics.rejected.labels("draining").inc()
            raise DrainingError("the server is shutting down; ask another", retry_after=1)
        if not self._pool.is_ready:
            self._metrics.rejected.labels("not_ready").inc()
            raise NotReadyError("no worker is ready; try again in a moment", retry_after=1)
        waiting, limit = self._scheduler.waiting_lanes, self._settings.waiting_lanes
        if waiting and waiting + lanes > limit and not is_continued:
            self._metrics.rejected.labels("queue_full").inc()
            raise OverloadedError(
                f"{waiting} lanes wait and the limit is {limit}; try again later",
                retry_after=max(1, math.ceil(self._scheduler.waiting_seconds())),
            )

    def _open(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        job.result = loop.create_future()
        job.result.add_done_callback(lambda _: self._on_answered(job))
        if job.deadline_ms is not None:
            timer = loop.call_later(job.deadline_ms / 1e3, job.expire)
            job.result.add_done_callback(lambda _: timer.cancel())
        for part in job.parts:
            self._scheduler.add(part)

    def _on_answered(self, job: Job) -> None:
        self._remove(job)
        job.progress.put_nowait(None)

    def _fail(self, job: Job, error: ServiceError) -> None:
        job.fail(error)
        self._remove(job)

    def _remove(self, job: Job) -> None:
        for part in job.parts:
            self._scheduler.remove(part)

    def _fail_all(self, kind: type[ServiceError], message: str) -> None:
        for job in self._scheduler.questions:
            self._fail(job, kind(message))


def _error_of(failure: Failure) -> ServiceError:
    if not failure.is_users:
        return WorkerError(failure.message)
    return invalid_field(failure.message, failure.param)
