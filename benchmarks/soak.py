"""Soak test: a real server under mixed load while its workers are killed, stopped and restarted.

    python -m benchmarks.soak [--requests 100000] [--deaths 20] [--clients 200] [--max-growth 0.02]

Clients send solve, stream and diagnose requests with mixed models, samplers, budgets, votes, adaptive
stops and deadlines, cancel streams, and send malformed and oversize bodies (soak_clients.py).
Workers die by SIGKILL in mid-round, by SIGKILL while they load, and by SIGSTOP, which the server must
notice as a hang. Exits with 1 if an answer is lost or changed, if a status is not the expected one, if
memory grows by more than --max-growth, or if a descriptor, thread or child process is left over.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.soak_clients import LARGEST_BODY, MODELS, Load, Outcome, make_cases

HANG_SECONDS = 6
DEATHS = ("SIGKILL in a round", "SIGKILL while loading", "SIGSTOP")


class Server:
    """`gts serve` as a subprocess, seen from outside: HTTP, signals and /proc."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        models = [word for name in MODELS for word in ("--model", name)]
        flags = ["--port", str(port), "--threads", "1", "--hang-seconds", str(HANG_SECONDS)]
        flags += ["--max-body-bytes", str(LARGEST_BODY), "--log-format", "json"]
        self._log = tempfile.NamedTemporaryFile("w+", prefix="gts-soak-")  # noqa: SIM115
        self.process = subprocess.Popen(
            [Path(sys.executable).parent / "gts", "serve", *models, *flags],
            stderr=self._log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    async def is_ready(self, http: httpx.AsyncClient) -> bool:
        """Whether /readyz answers 200."""
        try:
            return (await http.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def wait_until_ready(self, http: httpx.AsyncClient) -> float:
        """Wait for /readyz; return the seconds it took."""
        started = time.monotonic()
        while not await self.is_ready(http):
            if self.process.poll() is not None or time.monotonic() - started > 300:
                raise SystemExit("the server is not ready after five minutes, or has ended")
            await asyncio.sleep(0.02)
        return time.monotonic() - started

    async def wait_until_whole(self, http: httpx.AsyncClient) -> None:
        """Wait until a worker serves and its spare has loaded."""
        await self.wait_until_ready(http)
        while self._log_lines()[-1]["message"] != "spare worker ready":
            await asyncio.sleep(0.1)
        await http.get("/livez")  # its connection is open then, and counts before and after alike

    def _log_lines(self) -> list[dict[str, Any]]:
        """What the pool has logged so far; the last line of the file may be incomplete."""
        lines = _read(self._log.name).split("\n")[:-1]
        return [json.loads(line) for line in lines if '"gts.pool"' in line]

    def children(self) -> list[int]:
        """Child processes of the API process."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        # A thread may end while it is read.
        return [int(pid) for task in tasks for pid in _read(f"{task}/children").split()]

    def workers(self) -> list[int]:
        """Worker processes, spares included: the children that multiprocessing spawned."""
        return [pid for pid in self.children() if "spawn_main" in _read(f"/proc/{pid}/cmdline")]

    def serving(self) -> int:
        """The worker that runs rounds now, as the server's log says."""
        return [line["pid"] for line in self._log_lines() if line["message"] == "worker ready"][-1]

    def resources(self) -> dict[str, int]:
        """Resident memory in bytes, and counts of descriptors, threads and children."""
        pid, page = self.process.pid, os.sysconf("SC_PAGE_SIZE")

        def resident(of: int) -> int:
            return int(_read(f"/proc/{of}/statm").split()[1]) * page

        return {
            "API memory": resident(pid),
            "worker memory": resident(self.serving()),
            "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
            "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
            "children": len(self.children()),
        }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


async def kill_workers(server: Server, load: Load, http: httpx.AsyncClient, deaths: int) -> None:
    """Kill workers in turn by each way of dying, between a tenth and nine tenths of the requests.

    None dies before, so that memory after the first tenth is that of a worker that has run for long.
    """
    ways = itertools.cycle(DEATHS)
    died = 0
    while died < deaths:
        due = load.requests * (0.1 + 0.8 * (died + 1) / (deaths + 1))
        while load.outcome.sent < due:
            await asyncio.sleep(0.02)
        await server.wait_until_ready(http)
        way, worker = next(ways), server.serving()
        before = set(server.workers())
        os.kill(worker, signal.SIGSTOP if way == "SIGSTOP" else signal.SIGKILL)
        died += 1
        if way == "SIGKILL while loading":
            while not (fresh := set(server.workers()) - before):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
            os.kill(fresh.pop(), signal.SIGKILL)
            died += 1
        while worker in server.workers():  # a stopped one is gone when the server has noticed
            await asyncio.sleep(0.02)
        load.outcome.deaths[way] += 1
        load.outcome.not_ready_seconds.append(await server.wait_until_ready(http))


async def run(
    requests: int, deaths: int, clients: int
) -> tuple[Outcome, dict[str, dict[str, int]]]:
    """Run the clients and the deaths against a fresh server; return what was seen."""
    cases = make_cases(200)
    server = Server()
    seen: dict[str, dict[str, int]] = {}
    try:
        single = httpx.Limits(max_connections=1)  # so that it holds as many descriptors at the end
        async with httpx.AsyncClient(base_url=server.url, timeout=30, limits=single) as probe:
            await server.wait_until_whole(probe)
            seen["idle"] = server.resources()
            load = Load(cases, requests)
            killer = asyncio.create_task(kill_workers(server, load, probe, deaths))
            running = asyncio.create_task(load.run(server.url, clients))
            while load.outcome.sent < requests / 10:
                await asyncio.sleep(0.05)
            seen["first tenth"] = server.resources()
            await running
            await killer
            await server.wait_until_ready(probe)
            seen["end"] = server.resources()
            await asyncio.sleep(1)  # for the server to see the connections close
            await server.wait_until_whole(probe)
            seen["idle again"] = server.resources()
            metrics = (await probe.get("/metrics")).text
        load.outcome.statuses["open jobs left"] = int(metric_sum(metrics, "gts_open_questions"))
        load.outcome.deaths["seen by the server"] = int(
            metric_sum(metrics, "gts_worker_restarts_total")
        )
        return load.outcome, seen
    finally:
        server.process.terminate()
        server.process.wait(60)


def metric_sum(text: str, name: str) -> float:
    """The value of a metric in what /metrics says, summed over its labels."""
    lines = (line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def problems(outcome: Outcome, seen: dict[str, dict[str, int]], max_growth: float) -> Iterator[str]:
    """Everything that must not have happened."""
    yield from (f"changed: {text}" for text in outcome.changed[:5])
    yield from (f"unexpected: {text}" for text in outcome.unexpected[:5])
    if outcome.statuses["open jobs left"]:
        yield f"{outcome.statuses['open jobs left']} jobs are still open"
    for name in ("API memory", "worker memory"):
        first, last = seen["first tenth"][name], seen["end"][name]
        if last > first * (1 + max_growth):
            yield f"{name} grew from {first / 2**20:.0f} to {last / 2**20:.0f} MiB"
    for name in ("descriptors", "threads", "children"):
        before, after = seen["idle"][name], seen["idle again"][name]
        if after > before:
            yield f"{after - before} {name} are left over"


def main() -> None:
    """Print the table; exit with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--deaths", type=int, default=20)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--max-growth", type=float, default=0.02)
    options = parser.parse_args()
    started = time.monotonic()
    outcome, seen = asyncio.run(run(options.requests, options.deaths, options.clients))
    seconds = time.monotonic() - started
    print(f"{outcome.sent} requests of {options.clients} clients in {seconds:.0f} s")
    for name, count in sorted(outcome.statuses.items()):
        print(f"  {name:24s} {count:8d}")
    print("worker deaths: " + ", ".join(f"{way} {n}" for way, n in outcome.deaths.items()))
    if waits := sorted(outcome.not_ready_seconds):
        print(
            f"ready again after {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (most)"
        )
    print(f"answers changed {len(outcome.changed)}, unexpected {len(outcome.unexpected)}")
    for name in seen["idle"]:
        scale = 2**20 if "memory" in name else 1
        row = ", ".join(f"{when} {counts[name] / scale:.0f}" for when, counts in seen.items())
        print(f"  {name + (' MiB' if scale > 1 else ''):24s} {row}")
    if found := list(problems(outcome, seen, options.max_growth)):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
