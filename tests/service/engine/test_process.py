"""A worker's process: how its end is reported, with real processes and no torch."""

import asyncio
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

import pytest

from service.engine.messages import RoundTask, WorkerConfig
from service.engine.process import WorkerProcess


def worker(connection: Connection, config: WorkerConfig) -> None:
    """End as the device's name says, or echo rounds."""
    if config.device.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[config.device])
    if config.device == "blocked":  # whether Ctrl-C would reach it before it has ignored that
        connection.send(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    if config.device.isdigit():
        sys.exit(int(config.device))
    while True:
        connection.send(connection.recv())


def run(device: str, *, is_killed: bool = False) -> tuple[str, list[Any]]:
    """Run a worker to its end; return the reason, and what it answered to a round."""
    config = WorkerConfig((), device, "auto", 1, 0)
    heard: list[Any] = []

    async def live() -> str:
        loop = asyncio.get_running_loop()
        dead: asyncio.Future[str] = loop.create_future()

        def on_message(process: WorkerProcess, message: Any) -> None:
            heard.append(message)
            process.kill()

        process = WorkerProcess(
            config, worker, loop, on_message, lambda own: dead.set_result(own.exit_reason)
        )
        if is_killed:
            process.send(ROUND)
        async with asyncio.timeout(60):
            return await dead

    return asyncio.run(live()), heard


ROUND = RoundTask(7, ("solve", "m", "gts"), (), 16)


@pytest.mark.parametrize(
    ("device", "reason"),
    [("SIGILL", "killed by SIGILL"), ("SIGKILL", "killed by SIGKILL"), ("3", "exit code 3")],
)
def test_a_death_is_reported_with_its_signal_or_exit_code(device: str, reason: str) -> None:
    assert run(device) == (reason, [])


def test_a_worker_is_sent_rounds_and_ends_when_killed() -> None:
    assert run("echo", is_killed=True) == ("killed by SIGKILL", [ROUND])


def test_ctrl_c_does_not_reach_a_worker_that_starts() -> None:
    assert run("blocked")[1] == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
