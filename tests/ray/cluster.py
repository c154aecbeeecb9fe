"""A local Ray cluster that runs deploy/ray/serve.yaml as a user would start it, for tests over HTTP.

Ray runs in processes of its own, never in the tests'; they end with the block, and no other's do.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped]

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
START_SECONDS = 240
BIN = Path(sys.executable).parent


class RunningCluster:
    """`ray start` and `serve run` on free ports, with these settings and these options of Gts."""

    def __init__(self, args: dict[str, Any], options: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gts-ray-", dir="/tmp")
        self._address = f"127.0.0.1:{free_port()}"
        self._environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "RAY_ADDRESS": self._address,
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deploy.ray.proxy:middlewares",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # or replicas would be nicer than the server beside them
            # Serve kills a proxy that is slower; a machine that also trains is.
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
            "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
        }
        config = yaml.safe_load((ROOT / "deploy" / "ray" / "serve.yaml").read_text())
        config["http_options"] = {"host": "127.0.0.1", "port": free_port()}
        application = config["applications"][0]
        application["args"] |= args
        application["deployments"][0] |= options
        self._config = Path(self._folder.name) / "serve.yaml"
        self._config.write_text(yaml.safe_dump(config))
        self._log = (Path(self._folder.name) / "log").open("w+")
        self.url = f"http://127.0.0.1:{config['http_options']['port']}"
        self._node: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "RunningCluster":
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._node is not None:
            everyone = {pid: _born(pid) for pid in _descendants(self._node.pid)}
            self._node.terminate()  # with --block it takes the whole node with it
            try:
                self._node.wait(10)
            except subprocess.TimeoutExpired:
                self._node.kill()
                self._node.wait()
            for pid, born in everyone.items():
                if born and _born(pid) == born:  # and not another that has got its number
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self._log.close()
        self._folder.cleanup()

    def _start(self) -> None:
        host, _, port = self._address.partition(":")
        words = ["start", "--head", "--block", f"--node-ip-address={host}", f"--port={port}"]
        words += ["--num-cpus=4", "--include-dashboard=false", "--object-store-memory=100000000"]
        words += [f"--temp-dir={self._folder.name}", "--disable-usage-stats"]
        self._node = self._run("ray", *words)
        wait_for(lambda: self._is_listening(host, int(port)), START_SECONDS, self.log)
        deploy = self._run("serve", "run", "--non-blocking", str(self._config))
        assert deploy.wait(START_SECONDS) == 0, self.log()
        wait_for(self.is_ready, START_SECONDS, self.log)

    def _run(self, command: str, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [BIN / command, *words],
            cwd=ROOT,
            env=self._environment,
            stdout=self._log,
            stderr=self._log,
        )

    def _is_listening(self, host: str, port: int) -> bool:
        assert self._node is not None
        assert self._node.poll() is None, self.log()
        with socket.socket() as probe:
            return probe.connect_ex((host, port)) == 0

    def is_ready(self) -> bool:
        """Whether /readyz says so, through the proxy."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    def log(self) -> str:
        """What `ray start` and `serve run` have said."""
        return Path(self._log.name).read_text()

    def targets(self) -> list[str]:
        """The metrics ports of the replicas, as Prometheus is told them."""
        (group,) = httpx.get(f"{self.url}/metrics/targets", timeout=60).json()
        return group["targets"]  # type: ignore[no-any-return]

    def metric(self, name: str, label: str = "") -> dict[str, float]:
        """Sum a metric's samples with this label, at each replica."""
        sums = {}
        for target in self.targets():
            lines = httpx.get(f"http://{target}/metrics", timeout=30).text.splitlines()
            samples = [x for x in lines if x.split("{")[0].split(" ")[0] == name and label in x]
            sums[target] = sum(float(x.rpartition(" ")[2]) for x in samples)
        return sums

    def replica_pids(self) -> list[int]:
        """The processes of the replicas that serve the API."""
        assert self._node is not None
        names = _descendants(self._node.pid)
        return [pid for pid, name in names.items() if name.startswith("ray::ServeReplica:gts:Gts")]

    def worker_pids(self) -> list[int]:
        """The worker processes of the replicas."""
        found = [_descendants(pid) for pid in self.replica_pids()]
        return [pid for names in found for pid, name in names.items() if "spawn_main" in name]


def wait_for(
    condition: Callable[[], bool], seconds: float, log: Callable[[], str] = lambda: ""
) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain {log()}"
        time.sleep(0.1)


def _descendants(pid: int) -> dict[int, str]:
    """The processes below this one, with their command lines."""
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        try:
            tasks = list(Path(f"/proc/{todo.pop()}/task").iterdir())
            children = [int(c) for t in tasks for c in (t / "children").read_text().split()]
        except OSError:
            continue  # it has ended meanwhile
        found |= {child: _command(child) for child in children}
        todo += children
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _born(pid: int) -> str:
    """Start time of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
