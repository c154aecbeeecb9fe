"""The service against its own worker: throughput under load, and overhead when idle.

    python -m benchmarks.service [--model A] [--sampler SPEC] [--seconds 20] [--clients 64] [--beside B]

Throughput: lanes per second of 64 HTTP clients with mixed budgets, against the same mix given to the
worker's own code in rounds of the same size, in this process. Overhead: an idle server's answer time
less the rollout in it. Beside: the time of a budget of 4 of --beside, one client, while the others
load --model. The clients share the machine with the server.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import torch

from latent.folders import fingerprint
from latent.zoo import DEFAULT_MODEL, resolve_model
from service.engine.messages import ModelPlace, RoundTask, Task, WorkerConfig
from service.worker.worker import Worker

BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128)
QUESTIONS = tuple(
    f"A shop has {n} boxes of {n + 3} pens and sells {n + 1} boxes. How many pens are left?"
    for n in range(2, 18)
)
PORT, LANE_LIMIT = 8765, 256


def offline_rate(folder: Path, sampler: str, seconds: float) -> float:
    """Lanes per second of the worker on full rounds of the mix."""
    config = WorkerConfig(
        (ModelPlace("model", folder, fingerprint(folder)),), "cpu", "auto", 1, 256 * 2**20
    )
    worker, dice = Worker(config), random.Random(0)
    worker.warm_up()
    lanes, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        tasks, room = [], LANE_LIMIT
        while room > 0:
            count = min(dice.choice(BUDGETS), room)
            tasks.append(Task(str(room), dice.choice(QUESTIONS), 1, tuple(range(count))))
            room -= count
        worker.run(RoundTask(0, ("solve", "model", sampler), tuple(tasks), LANE_LIMIT))
        lanes += LANE_LIMIT
    return lanes / (time.perf_counter() - started)


def small_budget_ms(model: str, seconds: float) -> list[float]:
    """Answer times of a budget of 4, one after the other, sorted."""
    times = []
    until = time.perf_counter() + seconds
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as http:
        while time.perf_counter() < until:
            started = time.perf_counter()
            http.post("/solve", json={"question": QUESTIONS[0], "budget": 4, "model": model})
            times.append((time.perf_counter() - started) * 1e3)
    return sorted(times)


def served_rate(clients: int, sampler: str, seconds: float) -> float:
    """Lanes per second that HTTP clients get."""
    done = [0] * clients
    until = time.perf_counter() + seconds

    def client(n: int) -> None:
        dice = random.Random(n)
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as http:
            while time.perf_counter() < until:
                budget = dice.choice(BUDGETS)
                question = dice.choice(QUESTIONS)
                body = {"question": question, "budget": budget, "seed": 1, "sampler": sampler}
                if http.post("/solve", json=body).status_code == 200:
                    done[n] += budget

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - started)


def idle_overhead_ms(requests: int = 60) -> float:
    """Median of answer time less rollout time in milliseconds, one request after the other."""
    overheads = []
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as http:
        for n in range(requests):
            body = {"question": QUESTIONS[n % len(QUESTIONS)], "budget": 8, "seed": n}
            started = time.perf_counter()
            timing = http.post("/solve", json=body).json()["timing_ms"]
            total = (time.perf_counter() - started) * 1e3
            overheads.append(total - timing["prefill"] - timing["thoughts"] - timing["decode"])
    return statistics.median(overheads)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--sampler", default="gts")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--beside")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = resolve_model(options.model).resolve()
    script = Path(sys.executable).parent / "gts"
    flags = ["--port", str(PORT), "--threads", "1", "--lane-limit", str(LANE_LIMIT)]
    flags += ["--round-seconds", "3"]  # rounds as large as the offline ones
    beside = options.beside
    offline = offline_rate(folder, options.sampler, options.seconds)
    with subprocess.Popen(
        [script, "serve", "--model", folder, *(("--model", beside) if beside else ()), *flags],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as server:
        try:
            _wait_until_ready()
            overhead = idle_overhead_ms()
            served = served_rate(options.clients, options.sampler, options.seconds)
            if beside:
                load = (options.clients, options.sampler, options.seconds + 5)
                loading = threading.Thread(target=served_rate, args=load)
                loading.start()
                time.sleep(5)  # until the queue of the other model is full
                small = small_budget_ms(beside, options.seconds)
                loading.join()
        finally:
            server.terminate()
    print(f"worker offline    {offline:8.0f} lanes/s")
    print(
        f"served, {options.clients} clients {served:8.0f} lanes/s   {served / offline:.0%} of offline"
    )
    print(f"idle overhead     {overhead:8.1f} ms (median, budget 8)")
    if beside:
        worst = small[int(0.99 * (len(small) - 1))]
        print(
            f"budget 4 of {beside} beside it: p50 {small[len(small) // 2]:.0f} ms, p99 {worst:.0f} ms"
        )


def _wait_until_ready() -> None:
    for _ in range(600):
        try:
            if httpx.get(f"http://127.0.0.1:{PORT}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server did not become ready")


if __name__ == "__main__":
    main()
