"""One worker process and its connection. The event loop never waits for either.

One thread reads and one writes, so a worker that hangs or dies blocks only them. Each process has its
own pipe, so a lock left by a killed process cannot block another.
"""

import asyncio
import contextlib
import multiprocessing
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from latent.errors import exit_reason
from service.engine.messages import RoundTask, WorkerConfig

__all__ = ["WorkerMain", "WorkerProcess", "worker_main"]

_SPAWN = multiprocessing.get_context("spawn")


WorkerMain = Callable[[Connection, WorkerConfig], None]


def worker_main(connection: Connection, config: WorkerConfig) -> None:
    """Run the real worker."""
    from service.worker.worker import main  # imports torch, in the worker process only

    main(connection, config)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread; a process that is started meanwhile inherits that.

    Ctrl-C reaches the whole process group, and a worker that still imports would end with a traceback.
    """
    resource_tracker.ensure_running()  # its own start unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerProcess:
    """A spawned worker. Calls `on_message` for each message, and `on_death` once at its end."""

    def __init__(
        self,
        config: WorkerConfig,
        main: WorkerMain,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[["WorkerProcess", Any], None],
        on_death: Callable[["WorkerProcess"], None],
    ) -> None:
        self._loop, self._on_message, self._on_death = loop, on_message, on_death
        self._connection, theirs = _SPAWN.Pipe(duplex=True)
        self._process = _SPAWN.Process(target=main, args=(theirs, config), daemon=True)
        with _interrupts_blocked():
            self._process.start()
        theirs.close()
        self._outbox: queue.Queue[RoundTask | None] = queue.Queue()
        try:
            for work in (self._read, self._write):
                threading.Thread(target=work, daemon=True).start()
        except RuntimeError:  # no more threads
            self._process.kill()
            raise

    @property
    def pid(self) -> int | None:
        """Its process id, for the log."""
        return self._process.pid

    @property
    def exit_reason(self) -> str:
        """How it ended: `killed by SIGKILL` or `exit code 1`. To be asked once it is dead."""
        return exit_reason(self._process.exitcode)

    def send(self, round: RoundTask) -> None:
        """Queue a round for the worker; returns at once."""
        self._outbox.put(round)

    def kill(self) -> None:
        """End it at once. It holds nothing to save, and would otherwise first finish its round."""
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
        while (round := self._outbox.get()) is not None:
            try:
                self._connection.send(round)
            except (BrokenPipeError, OSError):
                break  # the reader sees the death too, and reports it

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: the server has stopped
            self._loop.call_soon_threadsafe(function, *args)
