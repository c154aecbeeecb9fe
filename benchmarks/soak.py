"""Soak test: a real server under mixed load while its workers are killed, stopped and restarted.

    python -m benchmarks.soak [--requests 100000] [--deaths 20] [--clients 200] [--max-growth 0.02]

Clients send solve, stream and diagnose requests with mixed models, samplers, budgets, votes, adaptive
stops and deadlines, cancel streams, and send malformed and oversize bodies. Every answer is compared
with the one computed alone in this process, to the last bit; a partial one with the same prefix of
trajectories; a diagnosis with the server's own first answer.
Workers die by SIGKILL in mid-round, by SIGKILL while they load, and by SIGSTOP, which the server must
notice as a hang. Exits with 1 if an answer is lost or changed, if a status is not the expected one, if
memory grows by more than --max-growth, or if a descriptor, thread or child process is left over.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import torch

import latent
from latent.answers import show_answer
from latent.solved import Solved

MODELS = ("coconut-tiny", "codi-tiny")
SAMPLERS = (*["gts"] * 6, "gaussian:0.5", "dropout:0.1", "deterministic")
BUDGETS = (1, 1, 2, 2, 4, 4, 8, 8, 16, 32)
HANG_SECONDS = 6
DEATHS = ("SIGKILL in a round", "SIGKILL while loading", "SIGSTOP")
LARGEST_BODY = 65536
# Waits of a client whose request was refused because no worker was ready, or too many lanes waited.
RETRY_STATUSES = frozenset({429, 503})


@dataclass(frozen=True)
class Case:
    """One solve request, and the trajectories that its seed must give."""

    body: dict[str, Any]
    alone: Solved

    def matches(self, response: dict[str, Any]) -> bool:
        """Whether a response holds the votes of the same trajectories, up to the budget it used."""
        used = response["budget_used"]
        own = self.alone.trajectories[:used]
        votes: dict[Decimal | None, list[int]] = {}
        for trajectory in own:
            votes.setdefault(trajectory.answer, []).append(trajectory.index)
        expected = {show_answer(answer): indices for answer, indices in votes.items()}
        found = {c["answer"]: c["trajectories"] for c in response["candidates"]}
        if found != expected or response["seed"] != self.alone.seed:
            return False
        if used < len(self.alone.trajectories):
            return True
        shares = {show_answer(c.answer): (c.share, c.confidence) for c in self.alone.candidates}
        served = {c["answer"]: (c["share"], c["confidence"]) for c in response["candidates"]}
        return response["answer"] == self.alone.answer and served == shares


@dataclass
class Outcome:
    """What the clients saw."""

    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    not_ready_seconds: list[float] = field(default_factory=list)
    deaths: Counter[str] = field(default_factory=Counter)


def make_cases(count: int, seed: int = 0) -> list[Case]:
    """Draw questions, models, samplers, budgets and votes; solve each alone."""
    torch.set_num_threads(1)
    dice = random.Random(seed)
    reasoners = {name: latent.load(name) for name in MODELS}
    cases = []
    for number in range(count):
        name, budget = dice.choice(MODELS), dice.choice(BUDGETS)
        first, second = dice.randint(20, 99), dice.randint(2, 19)
        question = (
            f"Ivan has {first} apples. He finds {second} on the ground. "
            "He gives 14 to the neighbours. How many apples are left?"
        )
        chosen = {"sampler": dice.choice(SAMPLERS), "vote": dice.choice(("majority", "confidence"))}
        alone = reasoners[name].solve(question, budget=budget, seed=number, **chosen)
        body = {"question": question, "model": name, "budget": budget, "seed": number, **chosen}
        cases.append(Case(body, alone))
    return cases


class Soak:
    """The clients of one run."""

    def __init__(self, http: httpx.AsyncClient, cases: Sequence[Case], requests: int) -> None:
        self.http, self.cases, self.requests = http, cases, requests
        self.outcome = Outcome()
        self._numbers = itertools.count()
        self._diagnosed: dict[int, Any] = {}

    async def client(self, number: int) -> None:
        """Send requests until all are sent."""
        dice = random.Random(number)
        shares = {
            self._solve: 160,
            self._adaptive: 10,
            self._deadline: 10,
            self._stream: 10,
            self._cancel: 4,
            self._many: 4,
            self._malformed: 4,
            self._oversize: 2,
            self._diagnose: 1,
        }
        kinds, weights = list(shares), list(shares.values())
        while (n := next(self._numbers)) < self.requests:
            case = self.cases[dice.randrange(len(self.cases))]
            try:
                await dice.choices(kinds, weights)[0](case)
            except Exception as error:  # a lost request is a result of the test, not its end
                self.outcome.unexpected.append(f"request {n}: {type(error).__name__}: {error}")
            self.outcome.sent = max(self.outcome.sent, n + 1)

    async def _post(self, path: str, body: dict[str, Any], *expected: int) -> Any:
        """Send until a worker takes it; count the status, and return the JSON of an expected one."""
        while True:
            response = await self.http.post(path, json=body)
            self.outcome.statuses[f"{path} {response.status_code}"] += 1
            if response.status_code in expected:
                return response.json()
            if response.status_code not in RETRY_STATUSES:
                self.outcome.unexpected.append(f"{path} {response.status_code}: {response.text}")
                return None
            await asyncio.sleep(min(float(response.headers.get("Retry-After", 1)), 1.0))

    def _compare(self, case: Case, response: dict[str, Any] | None) -> None:
        if response is not None and not case.matches(response):
            self.outcome.changed.append(f"{case.body} gave {response}")

    async def _solve(self, case: Case) -> None:
        self._compare(case, await self._post("/solve", case.body, 200))

    async def _adaptive(self, case: Case) -> None:
        body = {**case.body, "vote": "majority", "stop": {"certainty": 0.9}}
        response = await self._post("/solve", body, 200)
        if response is not None and case.body["vote"] == "majority":
            self._compare(case, response)

    async def _deadline(self, case: Case) -> None:
        response = await self._post("/solve", {**case.body, "deadline_ms": 50}, 200, 504)
        if response is not None and "error" not in response:
            self._compare(case, response)

    async def _many(self, case: Case) -> None:
        questions = [case.body["question"]] * 2
        response = await self._post("/solve", {**case.body, "question": questions}, 200)
        for one in (response or {}).get("results", ()):
            self._compare(case, one)

    async def _diagnose(self, case: Case) -> None:
        body = {key: case.body[key] for key in ("question", "model", "seed")} | {
            "budget": 4,
            "samplers": ["gts"],
        }
        response = await self._post("/diagnose", body, 200)
        if response is not None:
            response.pop("id")
            if self._diagnosed.setdefault(case.body["seed"], response) != response:
                self.outcome.changed.append(f"diagnosis of {body}")

    async def _malformed(self, case: Case) -> None:
        await self._post("/solve", {**case.body, "budget": "many"}, 422)
        await self._post("/solve", {**case.body, "model": "nobody"}, 404)
        response = await self.http.post(
            "/solve", content=b'{"question": ', headers={"Content-Type": "application/json"}
        )
        self.outcome.statuses[f"/solve {response.status_code}"] += 1
        if response.status_code != 400:
            self.outcome.unexpected.append(f"malformed JSON: {response.status_code}")

    async def _oversize(self, case: Case) -> None:
        await self._post("/solve", {**case.body, "question": "x" * LARGEST_BODY}, 413)

    async def _stream(self, case: Case) -> None:
        async with contextlib.aclosing(self._events(case.body)) as events:
            async for event, data in events:
                if event == "error":
                    self.outcome.unexpected.append(f"stream: {data}")
                if event == "result":
                    self._compare(case, data)
                if event in ("result", "error"):
                    return
        self.outcome.unexpected.append("a stream ended without a result")

    async def _cancel(self, case: Case) -> None:
        async with contextlib.aclosing(self._events({**case.body, "budget": 64})) as events:
            async for _ in events:
                return

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[tuple[str, Any]]:
        while True:
            async with self.http.stream(
                "POST", "/solve", json={**body, "stream": True}
            ) as response:
                self.outcome.statuses[f"/solve stream {response.status_code}"] += 1
                if response.status_code == 200:
                    name = ""
                    async for line in response.aiter_lines():
                        if line.startswith("event: "):
                            name = line.removeprefix("event: ")
                        elif line.startswith("data: "):
                            yield name, json.loads(line.removeprefix("data: "))
                    return
                if response.status_code not in RETRY_STATUSES:
                    self.outcome.unexpected.append(f"stream {response.status_code}")
                    return
            await asyncio.sleep(0.5)


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
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]

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


async def kill_workers(server: Server, soak: Soak, http: httpx.AsyncClient, deaths: int) -> None:
    """Kill workers in turn by each way of dying, between a tenth and nine tenths of the requests."""
    ways = itertools.cycle(DEATHS)
    died = 0
    while died < deaths:
        due = soak.requests * (0.1 + 0.8 * (died + 1) / (deaths + 1))
        while soak.outcome.sent < due:
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
        soak.outcome.deaths[way] += 1
        soak.outcome.not_ready_seconds.append(await server.wait_until_ready(http))


async def run(
    requests: int, deaths: int, clients: int
) -> tuple[Outcome, dict[str, dict[str, int]]]:
    """Run the clients and the deaths against a fresh server; return what was seen."""
    cases = make_cases(200)
    server = Server()
    limits = httpx.Limits(max_connections=clients + 8, max_keepalive_connections=clients + 8)
    seen: dict[str, dict[str, int]] = {}
    try:
        single = httpx.Limits(max_connections=1)  # so that it holds as many descriptors at the end
        async with httpx.AsyncClient(base_url=server.url, timeout=30, limits=single) as probe:
            await server.wait_until_whole(probe)
            seen["idle"] = server.resources()
            async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as http:
                soak = Soak(http, cases, requests)
                killer = asyncio.create_task(kill_workers(server, soak, probe, deaths))
                running = [asyncio.create_task(soak.client(n)) for n in range(clients)]
                while soak.outcome.sent < requests / 10:
                    await asyncio.sleep(0.05)
                seen["first tenth"] = server.resources()
                await asyncio.gather(*running)
                await killer
                await server.wait_until_ready(probe)
                seen["end"] = server.resources()
            await asyncio.sleep(1)  # for the server to see the connections close
            await server.wait_until_whole(probe)
            seen["idle again"] = server.resources()
            metrics = (await probe.get("/metrics")).text
        soak.outcome.statuses["open jobs left"] = int(_metric(metrics, "gts_open_questions"))
        soak.outcome.deaths["seen by the server"] = int(
            _metric(metrics, "gts_worker_restarts_total")
        )
        return soak.outcome, seen
    finally:
        server.process.terminate()
        server.process.wait(60)


def _metric(text: str, name: str) -> float:
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
