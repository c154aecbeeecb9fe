"""The pool and the engine on it when processes or memory fail, with processes that follow a script."""

import asyncio
from collections.abc import Callable, Coroutine
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import service.engine.pool
from latent.trajectory import Timing, Trajectory
from service.engine.engine import Engine
from service.engine.job import Job
from service.engine.messages import (
    LaneReport,
    OutOfMemory,
    Ready,
    RoundReport,
    RoundTask,
    WorkerConfig,
)
from service.engine.pool import Event, Pool
from service.errors import NotReadyError, WorkerError
from service.metrics import Metrics
from service.models import Catalog
from service.settings import Settings

CONFIG = WorkerConfig(
    models=(), device="cpu", dtype="auto", threads=1, prefix_cache_bytes=0, log_format="auto"
)


READY = Ready(1, "cpu")


class ScriptedProcesses:
    """Makes processes, or refuses to, as its script says; at its end it makes them."""

    def __init__(self, *refusals: bool) -> None:
        self._refusals = list(refusals)
        self.made: list[Any] = []

    def __call__(self, *args: Any) -> "ScriptedProcess":
        if self._refusals and self._refusals.pop(0):
            raise BlockingIOError("no more processes")
        self.made.append(ScriptedProcess(*args))
        return self.made[-1]


class ScriptedProcess:
    pid = 1
    exit_reason = "killed by SIGILL"

    def __init__(self, config: Any, main: Any, loop: Any, on_message: Any, on_death: Any) -> None:
        self._on_message, self._on_death = on_message, on_death
        self.is_killed = False

    def come_up(self) -> None:
        self._on_message(self, READY)

    def die(self) -> None:
        self._on_death(self)

    def kill(self) -> None:
        self.is_killed = True

    def send(self, task: RoundTask) -> None:
        """Answer a round at once; more than 16 lanes of dropout do not fit."""
        is_full = task.group[2].startswith("dropout") and task.lanes > 16
        answer = OutOfMemory(task.round_id) if is_full else report(task)
        asyncio.get_running_loop().call_soon(self._on_message, self, answer)


def report(task: RoundTask) -> RoundReport:
    done = {
        item.job_id: LaneReport(
            tuple(Trajectory(i, "", Decimal(1), 0.0, (), (), None) for i in item.indices),
            (1,) * len(item.indices),
            1,
            Timing(),
        )
        for item in task.tasks
    }
    return RoundReport(task.round_id, done, 0.01, 0, 0)


def job(sampler: str, budget: int) -> Job:
    return Job("r", "solve", "counting", sampler, 1, "?", 0, tuple(range(budget)), budget)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> ScriptedProcesses:
    scripted = ScriptedProcesses()
    monkeypatch.setattr(service.engine.pool, "WorkerProcess", scripted)
    monkeypatch.setattr(service.engine.pool, "_RESTART_SECONDS", (0.0,))
    return scripted


def make_pool(
    on_event: Callable[[Event], None] = lambda _: None,
    start_seconds: float = 300.0,
    has_spares: bool | None = False,
) -> Pool:
    return Pool([CONFIG], lambda *_: None, start_seconds, on_event, has_spares)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


async def started(start: Coroutine[Any, Any, None], processes: ScriptedProcesses) -> None:
    starting = asyncio.ensure_future(start)
    await asyncio.sleep(0)
    processes.made[0].come_up()
    await starting


def test_a_start_that_the_system_refuses_is_tried_again(processes: ScriptedProcesses) -> None:
    processes._refusals = [False, True, True, False]
    outcomes: list[Any] = []

    async def run() -> bool:
        pool = make_pool(lambda event: outcomes.append(event.outcome))
        await started(pool.start(), processes)
        processes.made[0].die()
        assert not pool.is_ready
        await until(lambda: len(processes.made) == 2)
        processes.made[1].come_up()
        return pool.is_ready

    assert asyncio.run(run())
    assert outcomes == [READY, "lost", "lost", "lost", READY]


def test_a_spare_takes_over_at_once_and_another_spare_is_started(
    processes: ScriptedProcesses,
) -> None:
    outcomes: list[Any] = []

    async def run() -> None:
        pool = make_pool(lambda event: outcomes.append(event.outcome), has_spares=None)
        await started(pool.start(), processes)
        await until(lambda: len(processes.made) == 2)  # on a CPU there is a spare by default
        processes.made[1].come_up()
        processes.made[0].die()
        await until(lambda: pool.is_ready)
        await until(lambda: len(processes.made) == 3)
        pool.close()

    asyncio.run(run())
    assert outcomes == [READY, "lost", READY]
    assert all(process.is_killed for process in processes.made[1:])


def test_a_spare_that_still_loads_takes_over_when_it_has_loaded(
    processes: ScriptedProcesses,
) -> None:
    async def run() -> None:
        pool = make_pool(has_spares=True)
        await started(pool.start(), processes)
        await until(lambda: len(processes.made) == 2)
        processes.made[0].die()
        await asyncio.sleep(0.01)
        assert not pool.is_ready
        processes.made[1].come_up()
        assert pool.is_ready
        assert len(processes.made) == 3, "the next spare"

    asyncio.run(run())


def test_a_spare_that_hangs_while_it_loads_is_replaced(
    processes: ScriptedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.engine.pool, "_RESTART_SECONDS", (0.0,))

    async def run() -> None:
        pool = make_pool(start_seconds=0.05, has_spares=True)
        await started(pool.start(), processes)
        await until(lambda: len(processes.made) == 3)
        assert processes.made[1].is_killed
        assert pool.is_ready

    asyncio.run(run())


def test_spares_that_keep_failing_are_given_up(
    processes: ScriptedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.engine.pool, "_RESTART_SECONDS", (0.0,))

    async def run() -> None:
        pool = make_pool(has_spares=True)
        await started(pool.start(), processes)
        for number in (1, 2, 3):
            await until(lambda number=number: len(processes.made) > number)  # type: ignore[misc]
            processes.made[number].die()
        await asyncio.sleep(0.05)
        assert len(processes.made) == 4
        assert pool.is_ready

    asyncio.run(run())


def test_the_death_of_a_spare_loses_nothing(
    processes: ScriptedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.engine.pool, "_RESTART_SECONDS", (0.0,))
    outcomes: list[Any] = []

    async def run() -> None:
        pool = make_pool(lambda event: outcomes.append(event.outcome), has_spares=True)
        await started(pool.start(), processes)
        await until(lambda: len(processes.made) == 2)
        processes.made[1].die()
        assert pool.is_ready
        await until(lambda: len(processes.made) == 3)

    asyncio.run(run())
    assert outcomes == [READY]


def test_a_first_start_that_the_system_refuses_is_said(processes: ScriptedProcesses) -> None:
    processes._refusals = [True]
    with pytest.raises(NotReadyError, match=r"no more processes.*see the log"):
        asyncio.run(make_pool().start())


def test_a_death_at_the_first_start_names_the_signal(processes: ScriptedProcesses) -> None:
    async def run() -> None:
        starting = asyncio.ensure_future(make_pool().start())
        await asyncio.sleep(0)
        processes.made[0].die()
        await starting

    with pytest.raises(NotReadyError, match=r"died \(killed by SIGILL\) while it was starting"):
        asyncio.run(run())


def test_a_first_start_that_hangs_is_said(processes: ScriptedProcesses) -> None:
    with pytest.raises(NotReadyError, match="a worker hung for 0 s while it was starting"):
        asyncio.run(make_pool(start_seconds=0.01).start())
    assert processes.made[0].is_killed


def test_a_restart_that_hangs_while_it_loads_is_replaced(processes: ScriptedProcesses) -> None:
    async def run() -> bool:
        pool = make_pool(start_seconds=0.05)
        await started(pool.start(), processes)
        processes.made[0].die()
        await until(lambda: len(processes.made) == 3)  # the second never comes up
        processes.made[2].come_up()
        return pool.is_ready

    assert asyncio.run(run())
    assert processes.made[1].is_killed


def test_a_worker_that_is_up_is_not_taken_for_one_that_loads(processes: ScriptedProcesses) -> None:
    async def run() -> bool:
        pool = make_pool(start_seconds=0.02)
        await started(pool.start(), processes)
        await asyncio.sleep(0.1)
        return pool.is_ready

    assert asyncio.run(run())
    assert len(processes.made) == 1


@pytest.fixture
def engine_of(folder: Path) -> Callable[..., tuple[Engine, Metrics]]:
    def make(**settings: Any) -> tuple[Engine, Metrics]:
        catalog = Catalog([str(folder)])
        metrics = Metrics(catalog)
        return Engine(Settings(lane_limit=64, **settings), catalog, metrics), metrics

    return make


def test_jobs_are_answered_when_no_worker_comes_back(
    processes: ScriptedProcesses,
    engine_of: Callable[..., tuple[Engine, Metrics]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service.engine.pool, "_STUCK_SECONDS", 0.0)

    async def run() -> None:
        engine, _ = engine_of(start_seconds=0.01)
        await started(engine.start(), processes)
        waiting = job("gts", 64)
        engine.submit([waiting])
        processes.made[0].die()
        async with asyncio.timeout(30):
            await waiting.result

    with pytest.raises(WorkerError, match="no worker can be started"):
        asyncio.run(run())


def test_a_question_that_fits_small_rounds_only_is_answered_beside_one_that_fits_large_ones(
    processes: ScriptedProcesses, engine_of: Callable[..., tuple[Engine, Metrics]]
) -> None:
    async def run() -> tuple[bool, float | None]:
        engine, metrics = engine_of()
        await started(engine.start(), processes)
        easy, needy = job("gts", 8000), job("dropout:0.1", 64)
        engine.submit([easy])
        engine.submit([needy])
        async with asyncio.timeout(60):
            await needy.result
        return easy.is_open, metrics.registry.get_sample_value("gts_out_of_memory_total")

    assert asyncio.run(run()) == (True, 1), "the other one still goes on"
