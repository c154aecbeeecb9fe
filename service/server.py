"""The server process: opens the port once the workers are warm, drains on SIGTERM, exits 0."""

import asyncio
import contextlib
import ctypes
import errno
import gc
import logging
import signal
import socket
from collections.abc import Iterator

import uvicorn

from latent.errors import InputError
from service.api.app import build_app
from service.engine.engine import Engine
from service.engine.process import WorkerMain, worker_main
from service.errors import NotReadyError
from service.models import Catalog
from service.settings import Settings

__all__ = ["serve"]

_log = logging.getLogger("gts.server")

_FLUSH_SECONDS = 2  # for finished answers to reach their clients
_M_ARENA_MAX = -8  # of mallopt in glibc's malloc.h


def serve(settings: Settings, main: WorkerMain = worker_main) -> None:
    """Serve until SIGTERM or SIGINT. Bad settings or models are raised before the port opens."""
    _share_one_heap()
    catalog = Catalog(settings.models, settings.panels)
    _check_port(settings.host, settings.port)
    app = build_app(settings, catalog, main)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_FLUSH_SECONDS,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:  # uvloop's, if installed
        runner.run(_Server(config).run_until_drained(app.state.gts.engine))


def _share_one_heap() -> None:
    """Let all threads allocate from one heap, with glibc.

    Every worker that is started has two threads here. With heaps of their own, each would keep the
    memory of its largest messages, and the process would grow with the workers that die.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


class _Server(uvicorn.Server):
    """uvicorn, except that a signal first stops admission and lets the open requests finish."""

    _draining: asyncio.Task[None] | None = None

    async def run_until_drained(self, engine: Engine) -> None:
        """Warm the workers up, then open the port; return after the drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, engine)
        try:
            _log.info("loading the models; the port opens when they are ready")
            await engine.start()
        except NotReadyError as error:
            if self._draining is not None:
                return  # a signal came before the workers were ready
            raise InputError(str(error)) from error
        # What is loaded stays: the collector need not walk it again, and so finds garbage sooner.
        gc.collect()
        gc.freeze()
        await self.serve()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the port, and say where."""
        await super().startup(sockets=sockets)
        if self.started:
            host, port = self.config.host, self.config.port
            host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
            url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
            _log.info("serving; open %s in a browser", url)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `_on_signal`: uvicorn would raise them again at the end, and not exit 0."""
        yield

    def _on_signal(self, engine: Engine) -> None:
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain(engine))
        else:  # a second signal ends it at once
            self.should_exit = self.force_exit = True

    async def _drain(self, engine: Engine) -> None:
        _log.info("draining", extra={"open_jobs": engine.open_jobs})
        await engine.drain()
        _log.info("drained", extra={"open_jobs": engine.open_jobs})
        engine.close()  # answers what is still open with an error
        self.should_exit = True


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            param = "host" if isinstance(error, socket.gaierror) else "port"
            advice = "; choose another --port" if error.errno == errno.EADDRINUSE else ""
            raise InputError(
                f"cannot listen on {host}:{port}: {error}{advice}", param=param
            ) from error
