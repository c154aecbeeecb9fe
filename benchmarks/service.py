"""The service against the rollout that it serves: throughput, small budgets, overhead, deadlines.

    python -m benchmarks.service [--model M …] [--clients 1,8,32,128] [--seconds 20] [--figure F]
    python -m benchmarks.service [--model M …] --idle

The model gpt2-small is a COCONUT reasoner of that size with random weights. Default settings but for
one thread; --round-seconds makes up for a core that others use too. For each number of clients with
budgets 1 to 128: lanes per second by the clock, and per CPU second of the worker, beside those of
`rollout` on the same mix in full rounds in this process. The second does not depend on what else the
machine does: it says what rounds cost, and the first also what the clients and the API process, which
share the machine with the worker, take from it. Latency is that of budgets of 4.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import httpx
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.soak import metric_sum
from latent.folders import fingerprint
from latent.format import PromptFormat, ReasonerFormat
from latent.store import save_reasoner
from latent.zoo import resolve_model
from service.engine.messages import ModelPlace, RoundTask, Task, WorkerConfig
from service.worker.worker import Worker
from trainer.data.tokenizer import embedded_tokenizer, find_markers

BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128)
QUESTIONS = tuple(
    f"A shop has {n} boxes of {n + 3} pens and sells {n + 1} boxes. How many pens are left?"
    for n in range(2, 18)
)
PORT, LANE_LIMIT = 8765, 256
RANDOM = "gpt2-small"
SETTLE_SECONDS = 5.0  # until the clients do not ask in step, and the server knows its speed
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


def random_gpt2(folder: Path) -> Path:
    """Write a COCONUT reasoner of GPT-2-small's size with random weights; six tokens an answer."""
    tokenizer = embedded_tokenizer(1600)
    start, end = find_markers(tokenizer, None)
    torch.manual_seed(0)
    format = ReasonerFormat(
        kind="coconut",
        thoughts=6,
        prompt=PromptFormat(suffix="\n"),
        answer_template="{}",
        answer_prefix_ids=(),
        eos_ids=(len(tokenizer) - 1,),
        start_id=start,
        end_id=end,
        max_answer_tokens=6,
    )
    save_reasoner(folder, format, GPT2LMHeadModel(GPT2Config(vocab_size=50260)), tokenizer)
    return folder


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
    """Let clients ask one question after the other; measure in a window after the start."""
    begin = time.perf_counter() + SETTLE_SECONDS
    end = begin + seconds
    small: list[float] = []

    def client(n: int) -> None:
        dice = random.Random(n)
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=300) as http:
            while (asked := time.perf_counter()) < end:
                budget, question = dice.choice(BUDGETS), dice.choice(QUESTIONS)
                body = {"question": question, "budget": budget, "seed": 1, "sampler": sampler}
                is_answered = http.post("/solve", json=body).status_code == 200
                answered = time.perf_counter()
                if is_answered and budget == 4 and begin <= asked < end:
                    small.append((answered - asked) * 1e3)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(begin - time.perf_counter())
    lanes, worker_cpu, api_cpu = _work(server)
    time.sleep(end - time.perf_counter())
    lanes, worker_cpu, api_cpu = (
        after - before
        for before, after in zip((lanes, worker_cpu, api_cpu), _work(server), strict=True)
    )
    for thread in threads:
        thread.join()
    return Load(
        clients, lanes / seconds, lanes / worker_cpu, api_cpu / seconds, tuple(sorted(small))
    )


def _work(server: int) -> tuple[float, float, float]:
    """Lanes that rounds have run for the clients, CPU seconds of the worker and of the API process."""
    metrics = httpx.get(f"http://127.0.0.1:{PORT}/metrics").text
    lanes = metric_sum(metrics, "gts_round_lanes_sum")
    return lanes, _cpu_seconds(_children(server)), _cpu_seconds([server])


def idle_overhead_ms(sampler: str, requests: int = 40) -> float:
    """Median of answer time less rollout time in milliseconds, one request after the other.

    With the standard library's client, which takes little time itself.
    """
    overheads = []
    connection = HTTPConnection("127.0.0.1", PORT, timeout=300)
    for n in range(requests):
        question = QUESTIONS[n % len(QUESTIONS)]
        body = json.dumps({"question": question, "budget": 8, "seed": n, "sampler": sampler})
        started = time.perf_counter()
        connection.request("POST", "/solve", body, {"Content-Type": "application/json"})
        answer = connection.getresponse().read()
        total = (time.perf_counter() - started) * 1e3
        timing = json.loads(answer)["timing_ms"]
        overheads.append(total - timing["prefill"] - timing["thoughts"] - timing["decode"])
    connection.close()
    return statistics.median(overheads)


def deadlines(sampler: str, tries: int = 5) -> tuple[float, dict[float, int]]:
    """Milliseconds of 16 lanes, and how many budgets of 256 were answered at multiples of that."""
    answered: dict[float, int] = {}
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
            answered[factor] = 0
            for _ in range(tries):
                ask(1)  # waits for what the try before left running
                answered[factor] += ask(256, deadline_ms=limit)[0] == 200
    return block_ms, answered


def main() -> None:
    """Print the tables; draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--clients", default="1,8,32,128")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--round-seconds", type=float, default=0.75, help="of the server")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--idle", action="store_true", help="measure only the idle overhead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    curves: dict[str, tuple[float, list[Load]]] = {}
    clients = [int(count) for count in options.clients.split(",")]
    for model in options.model or ["coconut-tiny"]:
        with tempfile.TemporaryDirectory(prefix="gts-service-") as made:
            folder = random_gpt2(Path(made)) if model == RANDOM else resolve_model(model).resolve()
            if options.idle:
                measure_idle(model, folder, options.round_seconds)
                continue
            curves[model] = measure(model, folder, clients, options.seconds, options.round_seconds)
    if options.figure:
        draw(curves, options.figure)


def sampler_for(folder: Path) -> str:
    """The learned sampler where there is one."""
    kind = json.loads((folder / "reasoner.json").read_text())["kind"]
    if kind == "cot":
        return "token"
    return "gts" if (folder / "samplers").exists() else "gaussian"


def measure_idle(model: str, folder: Path, round_seconds: float) -> None:
    """Print the idle overhead of one model, five times."""
    sampler = sampler_for(folder)
    with _server(folder, round_seconds):
        found = " ".join(f"{idle_overhead_ms(sampler):.2f}" for _ in range(5))
    print(f"{model}, {sampler}: idle overhead {found} ms (medians of 40, budget 8)", flush=True)


def measure(
    model: str, folder: Path, clients: list[int], seconds: float, round_seconds: float
) -> tuple[float, list[Load]]:
    """Print the table of one model; return the rollout's lanes per second, and the loads."""
    sampler = sampler_for(folder)
    rate, rate_per_cpu = offline(folder, sampler, seconds)
    print(f"{model}, {sampler}: rollout {rate:.0f} lanes/s, {rate_per_cpu:.0f} a CPU second")
    loads = []
    with _server(folder, round_seconds) as server:
        print(f"  idle overhead {idle_overhead_ms(sampler):.1f} ms (median, budget 8)")
        block_ms, answered = deadlines(sampler)
        within = ", ".join(f"{k:.0f}x: {n} of 5" for k, n in answered.items())
        print(f"  16 lanes take {block_ms:.0f} ms; budget 256 answered in time at {within}")
        print("  clients  lanes/s  of rollout  a worker CPU s  of rollout  API CPU  p50  p99 ms")
        for count in clients:
            load = served(server, count, sampler, seconds)
            loads.append(load)
            print(
                f"  {count:7d} {load.rate:8.0f} {load.rate / rate:11.0%}"
                f" {load.rate_per_cpu:15.0f} {load.rate_per_cpu / rate_per_cpu:11.0%}"
                f" {load.api_cpu_share:8.0%}"
                f" {load.percentile(0.5):5.0f} {load.percentile(0.99):5.0f}",
                flush=True,
            )
    return rate, loads


def draw(curves: dict[str, tuple[float, list[Load]]], path: Path) -> None:
    """Served lanes per second as a share of the rollout's own, against clients."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "gts"
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for model, (rate, loads) in curves.items():
        shares = [100 * load.rate / rate for load in loads]
        label = f"{model}: {rate:.0f} lanes/s offline"
        axes.plot([load.clients for load in loads], shares, "o-", label=label)
    axes.axhline(90, color="0.5", linestyle=":", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("clients, each with budgets of 1 to 128")
    axes.set_ylabel("served, % of offline")
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
