"""One worker process and its connection. The event loop never waits for either.

A thread reads and a thread writes, so a worker that hangs or dies blocks only them. The connection
is thrown away with the worker: nothing survives that a kill could leave locked.
"""

import asyncio
import contextlib
import multiprocessing
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from service.engine.messages import RoundTask, WorkerConfig

__all__ = ["WorkerMain", "WorkerProcess", "worker_main"]

_SPAWN = multiprocessing.get_context("spawn")


WorkerMain = Callable[[Connection, WorkerConfig], None]


def worker_main(connection: Connection, config: WorkerConfig) -> None:
    """Run the real worker."""
    from service.worker.worker import main  # torch lives in that process only

    main(connection, config)


class WorkerProcess:
    """A spawned worker: `on_message` for what it says, `on_death` once when it is gone."""

    def __init__(
        self,
        config: WorkerConfig,
        main: WorkerMain,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[["WorkerProcess", Any], None],
        on_death: Callable[["WorkerProcess"], None],
    ) -> None:
        self.config = config
        self._loop, self._on_message, self._on_death = loop, on_message, on_death
        self._connection, theirs = _SPAWN.Pipe(duplex=True)
        self._process = _SPAWN.Process(target=main, args=(theirs, config), daemon=True)
        self._process.start()
        theirs.close()
        self._outbox: queue.Queue[RoundTask | None] = queue.Queue()
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process id, for those who want to kill it."""
        return self._process.pid

    def send(self, task: RoundTask) -> None:
        """Hand a round over; returns at once."""
        self._outbox.put(task)

    def stop(self) -> None:
        """Let it go: it leaves when its connection closes, or is made to."""
        self._outbox.put(None)
        self._process.kill()

    def _read(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                break
            self._call(self._on_message, self, message)
        self._process.join()
        self._outbox.put(None)
        self._call(self._on_death, self)

    def _write(self) -> None:
        while (task := self._outbox.get()) is not None:
            try:
                self._connection.send(task)
            except (BrokenPipeError, OSError):
                break  # the reader sees the death too, and reports it

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            self._loop.call_soon_threadsafe(function, *args)
