"""The service against the rollout that it serves: throughput, small budgets, overhead, deadlines.

    python -m benchmarks.service [--model M …] [--clients 1,8,32,128] [--seconds 20] [--figure F]

Default settings but for one thread; --round-seconds makes up for a core that others use too. For each
number of clients with budgets 1 to 128: lanes per second by the clock, and per CPU second of the worker,
beside those of `rollout` on the same mix in full rounds in this process. The second does not depend on
what else the machine does: it says what rounds cost, and the first also what the clients and the API
process, which share the machine with the worker, take from it. Latency is that of budgets of 4.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch

from latent.folders import fingerprint
from latent.zoo import resolve_model
from service.engine.messages import ModelPlace, RoundTask, Task, WorkerConfig
from service.worker.worker import Worker

BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128)
QUESTIONS = tuple(
    f"A shop has {n} boxes of {n + 3} pens and sells {n + 1} boxes. How many pens are left?"
    for n in range(2, 18)
)
PORT, LANE_LIMIT = 8765, 256
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """What clients got: lanes per second, per CPU second of the worker, and times of budget 4."""

    clients: int
    rate: float
    rate_per_cpu: float
    api_cpu_share: float
    small_ms: tuple[float, ...]  # sorted

    def percentile(self, share: float) -> float:
        """Milliseconds that this share of the budgets of 4 took at most."""
        return self.small_ms[int(share * (len(self.small_ms) - 1))] if self.small_ms else 0.0


def offline(folder: Path, sampler: str, seconds: float) -> tuple[float, float]:
    """Lanes per second and per CPU second of the worker's own code on full rounds of the mix."""
    config = WorkerConfig(
        (ModelPlace("model", folder, fingerprint(folder)),), "cpu", "auto", 1, 256 * 2**20
    )
    worker, dice = Worker(config), random.Random(0)
    worker.warm_up()
    lanes, started, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        tasks, room = [], LANE_LIMIT
        while room > 0:
            count = min(dice.choice(BUDGETS), room)
            tasks.append(Task(str(room), dice.choice(QUESTIONS), 1, tuple(range(count))))
            room -= count
        worker.run(RoundTask(0, ("solve", "model", sampler), tuple(tasks), LANE_LIMIT))
        lanes += LANE_LIMIT
    return lanes / (time.perf_counter() - started), lanes / (time.process_time() - cpu)


def served(server: int, clients: int, sampler: str, seconds: float) -> Load:
    """Let clients ask one question after the other."""
    done, small = [0] * clients, []
    until = time.perf_counter() + seconds

    def client(n: int) -> None:
        dice = random.Random(n)
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=300) as http:
            while time.perf_counter() < until:
                budget, question = dice.choice(BUDGETS), dice.choice(QUESTIONS)
                body = {"question": question, "budget": budget, "seed": 1, "sampler": sampler}
                asked = time.perf_counter()
                if http.post("/solve", json=body).status_code == 200:
                    done[n] += budget
                    if budget == 4:
                        small.append((time.perf_counter() - asked) * 1e3)

    worker_cpu, api_cpu = _cpu_seconds(_children(server)), _cpu_seconds([server])
    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - started
    worker_cpu = _cpu_seconds(_children(server)) - worker_cpu
    api_cpu = _cpu_seconds([server]) - api_cpu
    lanes = sum(done)
    return Load(clients, lanes / taken, lanes / worker_cpu, api_cpu / taken, tuple(sorted(small)))


def idle_overhead_ms(requests: int = 40) -> float:
    """Median of answer time less rollout time in milliseconds, one request after the other."""
    overheads = []
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=300) as http:
        for n in range(requests):
            body = {"question": QUESTIONS[n % len(QUESTIONS)], "budget": 8, "seed": n}
            started = time.perf_counter()
            timing = http.post("/solve", json=body).json()["timing_ms"]
            total = (time.perf_counter() - started) * 1e3
            overheads.append(total - timing["prefill"] - timing["thoughts"] - timing["decode"])
    return statistics.median(overheads)


def deadlines(sampler: str, tries: int = 5) -> tuple[float, dict[float, int]]:
    """Milliseconds of 16 lanes, and how many budgets of 256 were answered at multiples of that."""
    answered = {}
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=300) as http:

        def ask(budget: int, **more: int) -> tuple[int, float]:
            body = {"question": QUESTIONS[0], "budget": budget, "sampler": sampler, **more}
            started = time.perf_counter()
            status = http.post("/solve", json=body).status_code
            return status, (time.perf_counter() - started) * 1e3

        ask(256)
        block_ms = statistics.median(ask(16)[1] for _ in range(5))
        for factor in (2.0, 3.0, 5.0):
            limit = max(1, int(factor * block_ms))
            answered[factor] = sum(ask(256, deadline_ms=limit)[0] == 200 for _ in range(tries))
    return block_ms, answered


def main() -> None:
    """Print the tables; draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--clients", default="1,8,32,128")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--round-seconds", type=float, default=0.5, help="of the server")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    curves: dict[str, tuple[float, list[Load]]] = {}
    for model in options.model or ["coconut-tiny"]:
        folder = resolve_model(model).resolve()
        reasoning = json.loads((folder / "reasoner.json").read_text())["kind"]
        sampler = "token" if reasoning == "cot" else "gts"
        if not (folder / "samplers").exists() and reasoning != "cot":
            sampler = "gaussian"
        rate, rate_per_cpu = offline(folder, sampler, options.seconds)
        print(f"{model}, {sampler}: rollout {rate:.0f} lanes/s, {rate_per_cpu:.0f} a CPU second")
        with _server(folder, options.round_seconds) as server:
            print(f"  idle overhead {idle_overhead_ms():.1f} ms (median, budget 8)")
            block_ms, answered = deadlines(sampler)
            within = ", ".join(f"{k:.0f}x: {n} of 5" for k, n in answered.items())
            print(f"  16 lanes take {block_ms:.0f} ms; budget 256 answered in time at {within}")
            print(
                "  clients  lanes/s  of rollout  a worker CPU s  of rollout  API CPU  p50  p99 ms"
            )
            loads = []
            for clients in map(int, options.clients.split(",")):
                load = served(server, clients, sampler, options.seconds)
                loads.append(load)
                print(
                    f"  {clients:7d} {load.rate:8.0f} {load.rate / rate:11.0%}"
                    f" {load.rate_per_cpu:15.0f} {load.rate_per_cpu / rate_per_cpu:11.0%}"
                    f" {load.api_cpu_share:8.0%}"
                    f" {load.percentile(0.5):5.0f} {load.percentile(0.99):5.0f}",
                    flush=True,
                )
            curves[model] = rate_per_cpu, loads
    if options.figure:
        draw(curves, options.figure)


def draw(curves: dict[str, tuple[float, list[Load]]], path: Path) -> None:
    """Lanes per CPU second of the worker against clients, with the rollout's own rate."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "gts"
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for number, (model, (rate, loads)) in enumerate(curves.items()):
        color = f"C{number}"
        clients = [load.clients for load in loads]
        axes.plot(clients, [load.rate_per_cpu for load in loads], "o-", color=color, label=model)
        axes.axhline(rate, color=color, linestyle=":", label=f"{model}: rollout")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("clients, each with budgets of 1 to 128")
    axes.set_ylabel("lanes per CPU second")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


@contextmanager
def _server(folder: Path, round_seconds: float) -> Iterator[int]:
    """Run `gts serve`; its process id."""
    script = Path(sys.executable).parent / "gts"
    flags = ["--port", str(PORT), "--threads", "1", "--spare-workers", "0"]
    flags += ["--round-seconds", str(round_seconds)]
    with subprocess.Popen(
        [script, "serve", "--model", folder, *flags],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as server:
        try:
            _wait_until_ready()
            yield server.pid
        finally:
            server.terminate()


def _wait_until_ready() -> None:
    for _ in range(1800):
        try:
            if httpx.get(f"http://127.0.0.1:{PORT}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server did not become ready")


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


if __name__ == "__main__":
    main()
