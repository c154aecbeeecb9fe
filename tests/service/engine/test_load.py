"""64 clients with mixed budgets for half a minute, with and without workers being killed."""

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.reasoners import QUESTIONS
from tests.service.server import RunningServer

pytestmark = pytest.mark.load

CLIENTS, SECONDS = 64, 30
BODIES = [
    {"question": question, "budget": budget, "seed": seed, "include": ["trajectories"], **more}
    for seed, question in enumerate(QUESTIONS)
    for budget in (1, 2, 4, 8, 16, 32, 64, 128)
    for more in ({}, {"stop": {"certainty": 0.9}}, {"sampler": "dropout:0.2"})
]


def what_counts(response: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in response.items() if key not in ("id", "timing_ms")}


class Load:
    """Clients that ask until time is up, and compare every answer with the one computed alone."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.codes: Counter[int] = Counter()
        self.differences: list[str] = []
        with httpx.Client(base_url=server.url, timeout=120) as http:
            self.alone = [what_counts(http.post("/solve", json=body).json()) for body in BODIES]

    def run(self, kills: int = 0) -> None:
        is_over = threading.Event()
        clients = [
            threading.Thread(target=self._client, args=(random.Random(n), is_over))
            for n in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for _ in range(kills):
            time.sleep(SECONDS / (kills + 1))
            while not self.server.is_ready():  # kill one that works, however slow the machine
                time.sleep(0.1)
            self.server.kill_worker()
        time.sleep(SECONDS / (kills + 1))
        is_over.set()
        for client in clients:
            client.join()

    def _client(self, dice: random.Random, is_over: threading.Event) -> None:
        with httpx.Client(base_url=self.server.url, timeout=300) as http:
            while not is_over.is_set():
                n = dice.randrange(len(BODIES))
                answer = http.post("/solve", json=BODIES[n])
                self.codes[answer.status_code] += 1
                if answer.status_code == 200 and what_counts(answer.json()) != self.alone[n]:
                    self.differences.append(f"{BODIES[n]}")
                if answer.status_code in (429, 503):
                    time.sleep(0.2)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Any:
    with RunningServer(folder, flags=("--waiting-lanes", "2048")) as running:
        yield Load(running)


def test_every_answer_under_load_equals_the_one_computed_alone(loaded: Load) -> None:
    loaded.codes.clear()
    loaded.run()
    assert loaded.differences == []
    assert set(loaded.codes) <= {200, 429}
    assert loaded.codes[200] > CLIENTS


def test_killing_the_worker_five_times_loses_and_changes_nothing(loaded: Load) -> None:
    loaded.codes.clear()
    before = loaded.server.metric("gts_worker_restarts_total")
    loaded.run(kills=5)
    assert loaded.differences == []
    # 503 is the answer while no worker is ready; no admitted request gets an error.
    assert set(loaded.codes) <= {200, 429, 503}
    assert loaded.codes[200] > CLIENTS
    assert loaded.server.metric("gts_worker_restarts_total") == before + 5
