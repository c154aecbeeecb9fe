"""The real server, as a user starts it: a subprocess with a port, for tests over HTTP."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import httpx

from latent.folders import SamplerCard, fingerprint
from latent.reasoner import Reasoner
from latent.samplers import GaussianThoughtSampler
from latent.store import save_reasoner, save_sampler
from tests.ports import free_port

START_SECONDS = 120
TOKEN = "open-sesame"


def save_with_sampler(reasoner: Reasoner, folder: Path) -> Path:
    """Write a reasoner with an untrained GTS as its default sampler."""
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer)
    card = SamplerCard("gts", reasoner.width, fingerprint(folder))
    save_sampler(folder / "samplers" / "default", GaussianThoughtSampler(reasoner.width), card)
    return folder


class RunningServer:
    """`gts serve` on a free port, until the block ends."""

    def __init__(
        self,
        *folders: Path,
        flags: tuple[str, ...] = (),
        is_faulty: bool = False,
        token: str | None = None,
    ) -> None:
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        models = [word for folder in folders for word in ("--model", str(folder))]
        script = [Path(sys.executable).parent / "gts"]
        if is_faulty:  # the same command, with a worker that fails on demand
            script = [sys.executable, "-m", "tests.service.faulty"]
        words = [*script, "serve", *models, "--port", str(self.port), "--threads", "1"]
        words += ["--spare-workers", "0", *flags]  # one process less in every test
        # A file, not a pipe: a full pipe that nobody reads would stop the server.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the server
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(words, stderr=self._log, env=environment)

    def __enter__(self) -> "RunningServer":
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended at its start: {self.log()}")
            if self.is_ready():
                return
            time.sleep(0.1)
        raise AssertionError("the server did not become ready")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        """The API process."""
        return self.process.pid

    def is_ready(self) -> bool:
        """Whether /readyz says so."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=60).status_code == 200
        except httpx.TransportError:
            return False

    def worker_pids(self) -> list[int]:
        """The worker processes: children that are not Python's resource tracker."""
        children: list[int] = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            children += [int(pid) for pid in (task / "children").read_text().split()]
        return [pid for pid in children if "spawn_main" in _command(pid)]

    def kill_worker(self) -> None:
        """Kill a worker as the kernel would."""
        for pid in self.worker_pids():
            os.kill(pid, signal.SIGKILL)

    def log(self) -> str:
        """What the server has logged so far."""
        self._log.seek(0)
        return self._log.read()

    def metric(self, name: str, labels: str = "") -> float:
        """Sum a metric over its labels, or over those that hold this text."""
        answer = httpx.get(f"{self.url}/metrics", headers=self.headers, timeout=60)
        assert answer.status_code == 200
        lines = answer.text.splitlines()
        return sum(
            float(x.rpartition(" ")[2])
            for x in lines
            if x.split("{")[0].split(" ")[0] == name and labels in x
        )


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    """Poll until a condition holds; the limit only ends a test that has failed."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
