"""Engine and fleet when processes or memory cannot be had, with processes that follow a script."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import service.engine.pool
from latent.trajectory import Timing, Trajectory
from service.engine.engine import Engine
from service.engine.job import JobRequest
from service.engine.messages import (
    LaneReport,
    OutOfMemory,
    Ready,
    RoundReport,
    RoundTask,
    WorkerConfig,
)
from service.engine.pool import Fleet
from service.engine.scheduler import Group, Round
from service.metrics import Metrics
from service.models import Catalog
from service.settings import Settings

CONFIG = WorkerConfig(
    models=(), device="cpu", dtype="auto", threads=1, prefix_cache_bytes=0, log_format="auto"
)


class Idle:
    """A dispatcher with nothing to do; it counts what it is told."""

    def __init__(self) -> None:
        self.lost = 0

    def next_round(self, lane_limit: Callable[[Group], int]) -> Round | None:
        return None

    def task_of(self, round_id: int, round: Round, lane_limit: int) -> RoundTask:
        raise NotImplementedError

    def on_report(self, round: Round, report: RoundReport) -> None:
        raise NotImplementedError

    def on_out_of_memory(self, round: Round, tried: int) -> None:
        raise NotImplementedError

    def on_lost(self, round: Round | None) -> None:
        self.lost += 1

    def on_stuck(self) -> None:
        raise NotImplementedError


class ScriptedProcesses:
    """Makes processes, or refuses to, as its script says."""

    def __init__(self, *refusals: bool) -> None:
        self._refusals = list(refusals)
        self.made: list[Any] = []

    def __call__(self, *args: Any) -> "ScriptedProcess":
        if self._refusals.pop(0):
            raise BlockingIOError("no more processes")
        self.made.append(ScriptedProcess(*args))
        return self.made[-1]


class ScriptedProcess:
    pid = 1

    def __init__(self, config: Any, main: Any, loop: Any, on_message: Any, on_death: Any) -> None:
        self._on_message, self._on_death = on_message, on_death

    def come_up(self) -> None:
        self._on_message(self, Ready(1, "cpu"))

    def die(self) -> None:
        self._on_death(self)

    def stop(self) -> None: ...

    def send(self, task: RoundTask) -> None:
        """Answer a round at once; more than 16 lanes of dropout do not fit."""
        lanes = sum(len(item.indices) for item in task.tasks)
        is_full = task.sampler.startswith("dropout") and lanes > 16
        answer = OutOfMemory(task.round_id) if is_full else report(task)
        asyncio.get_running_loop().call_soon(self._on_message, self, answer)


def report(task: RoundTask) -> RoundReport:
    done = {
        item.job_id: LaneReport(
            tuple(Trajectory(i, "", Decimal(1), 0.0, (), (), None) for i in item.indices),
            1,
            Timing(),
        )
        for item in task.tasks
    }
    return RoundReport(task.round_id, done, 0.01, 0, 0)


def job(sampler: str, budget: int) -> JobRequest:
    return JobRequest("r", "solve", "counting", sampler, 1, "?", 0, tuple(range(budget)), budget)


def test_a_start_that_the_system_refuses_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    processes, dispatcher = ScriptedProcesses(False, True, True, False), Idle()
    monkeypatch.setattr(service.engine.pool, "WorkerProcess", processes)
    monkeypatch.setattr(service.engine.pool, "_RESTART_SECONDS", (0.0,))

    async def run() -> bool:
        fleet = Fleet([CONFIG], 64, 0.5, 300.0, lambda *_: None, dispatcher)
        starting = asyncio.ensure_future(fleet.start())
        await asyncio.sleep(0)
        processes.made[0].come_up()
        await starting
        processes.made[0].die()
        assert not fleet.is_ready
        async with asyncio.timeout(10):
            while len(processes.made) < 2:
                await asyncio.sleep(0.001)
        processes.made[1].come_up()
        return fleet.is_ready

    assert asyncio.run(run())
    assert dispatcher.lost == 3


def test_a_first_start_that_the_system_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.engine.pool, "WorkerProcess", ScriptedProcesses(True))
    fleet = Fleet([CONFIG], 64, 0.5, 300.0, lambda *_: None, Idle())
    with pytest.raises(service.engine.pool.NotReadyError, match="see the log"):
        asyncio.run(fleet.start())


def test_a_question_that_fits_small_rounds_only_is_answered_beside_one_that_fits_large_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = ScriptedProcesses(False)
    monkeypatch.setattr(service.engine.pool, "WorkerProcess", processes)
    catalog = Catalog([str(folder)])
    metrics = Metrics(catalog)

    async def run() -> bool:
        engine = Engine(Settings(lane_limit=64), catalog, metrics)
        starting = asyncio.ensure_future(engine.start())
        await asyncio.sleep(0)
        processes.made[0].come_up()
        await starting
        (easy,) = engine.submit([job("gts", 8000)], deadline_ms=None)
        (needy,) = engine.submit([job("dropout:0.1", 64)], deadline_ms=None)
        async with asyncio.timeout(60):
            await needy.result
        return easy.is_open

    assert asyncio.run(run()), "the other one still goes on"
    assert metrics.registry.get_sample_value("gts_out_of_memory_total") == 1
