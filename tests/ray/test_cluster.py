"""deploy/ray/serve.yaml on a local cluster of two replicas, held against a single server."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.schemas import SolveResponse
from service.client import Client, Retries
from tests.ray.cluster import ROOT, START_SECONDS, RunningCluster, wait_for
from tests.reasoners import QUESTIONS, make_counting_reasoner
from tests.service.server import RunningServer, save_with_sampler

pytestmark = pytest.mark.ray

# Small rounds and few waiting lanes: requests last a while, and a crowd is refused.
LIMITS = {"lane_limit": 16, "waiting_lanes": 1024, "max_budget": 256}
OPTIONS = {
    "autoscaling_config": {
        "min_replicas": 2,
        "max_replicas": 3,
        "target_ongoing_requests": 4,
        "upscale_delay_s": 1,
        "downscale_delay_s": 5,
        "metrics_interval_s": 1,
        "look_back_period_s": 2,
    },
    "health_check_period_s": 2,
    "ray_actor_options": {"num_cpus": 1},
}
PATIENT = Retries(tries=100, seconds=180)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("served") / "counting"
    return save_with_sampler(make_counting_reasoner(), place)


@pytest.fixture(scope="module")
def single(folder: Path) -> Iterator[RunningServer]:
    flags = [word for name, value in LIMITS.items() for word in (_flag(name), str(value))]
    with RunningServer(folder, flags=tuple(flags)) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[RunningCluster]:
    with RunningCluster({"models": [str(folder)], "threads": 1, **LIMITS}, OPTIONS) as running:
        wait_for(lambda: len(running.targets()) == 2, START_SECONDS, running.log)
        yield running


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def what_counts(response: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in response.items() if key not in ("id", "timing_ms")}


def test_every_replica_gives_the_answers_of_a_single_server(
    cluster: RunningCluster, single: RunningServer
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/solve", {"question": question, "seed": seed, "include": ["trajectories"], **more})
        for seed, question in enumerate(QUESTIONS)
        for more in ({"budget": 1}, {"budget": 48}, {"budget": 64, "stop": {"certainty": 0.9}})
    ]
    asked.append(("/solve", {"question": list(QUESTIONS), "budget": 8, "seed": 3}))
    asked.append(("/solve", {"question": QUESTIONS[0], "sampler": "dropout:0.2", "seed": 1}))
    asked.append(("/diagnose", {"question": QUESTIONS[0], "answer": 7, "budget": 8, "seed": 1}))

    def ask(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = httpx.post(f"{url}{path}", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        if "results" in found:
            return {"results": [what_counts(result) for result in found["results"]]}
        return what_counts(found)

    before = cluster.metric("gts_trajectories_total")
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(ask, cluster.url, *each) for each in asked * 2]
        right = [ask(single.url, *each) for each in asked]
        assert [each.result() for each in found] == right * 2
    after = cluster.metric("gts_trajectories_total")
    assert all(after[target] > before[target] for target in before), "both replicas took part"


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        ("GET", "/v1/models", {}),
        ("GET", "/livez", {}),
        ("GET", "/openapi.json", {}),
        ("GET", "/nowhere", {}),
        ("GET", "/solve", {}),
        ("POST", "/solve", {"content": b"{", "headers": {"content-type": "application/json"}}),
        ("POST", "/solve", {"content": b"x" * 2_000_000}),
        ("POST", "/solve", {"json": {"question": "Q", "budget": 0}}),
        ("POST", "/solve", {"json": {"question": "Q", "model": "nobody"}}),
        ("POST", "/solve", {"json": {"question": "Q"}, "headers": {"X-Request-Id": "mine-1"}}),
        ("POST", "/solve", {"json": {"question": "Q"}, "headers": {"X-Request-Id": "not mine"}}),
    ],
)
def test_an_answer_passes_the_proxy_unchanged(
    cluster: RunningCluster,
    single: RunningServer,
    method: str,
    path: str,
    options: dict[str, Any],
) -> None:
    ours, theirs = (
        httpx.request(method, f"{server.url}{path}", timeout=60, **options)
        for server in (single, cluster)
    )
    assert theirs.status_code == ours.status_code
    for name in ("content-type", "allow", "retry-after"):
        assert theirs.headers.get(name) == ours.headers.get(name)
    ids = theirs.headers.get_list("x-request-id")
    assert len(ids) == 1
    if ours.status_code == 200 and path == "/solve":  # with a seed of its own
        is_taken = options["headers"]["X-Request-Id"] == "mine-1"
        assert ids[0] == theirs.json()["id"]
        assert (ids[0] == "mine-1") is is_taken
    else:
        assert theirs.json() == ours.json()


def test_a_stream_tells_rounds_and_ends_with_the_single_servers_result(
    cluster: RunningCluster, single: RunningServer
) -> None:
    body = {"question": QUESTIONS[0], "budget": 128, "seed": 5}
    told: list[tuple[str, dict[str, Any]]] = []
    url = f"{cluster.url}/solve"
    with httpx.stream("POST", url, json={**body, "stream": True}, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        lines = [line for line in answer.iter_lines() if line]
    for name, data in zip(lines[::2], lines[1::2], strict=True):
        told.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    used = [data["budget_used"] for name, data in told if name == "round"]
    assert len(used) > 1
    assert used == sorted(set(used))
    assert told[-1][0] == "result"
    right = httpx.post(f"{single.url}/solve", json=body, timeout=60).json()
    assert what_counts(told[-1][1]) == what_counts(right)


def test_the_playground_comes_through_the_proxy_with_all_of_its_files(
    cluster: RunningCluster, single: RunningServer
) -> None:
    def get(url: str, path: str, **options: Any) -> tuple[object, ...]:
        answer = httpx.get(f"{url}{path}", timeout=60, **options)
        names = ("content-type", "content-security-policy", "cache-control", "etag")
        return answer.status_code, answer.content, [answer.headers.get(name) for name in names]

    files = [f"/page/{path.name}" for path in (ROOT / "service/page/static").iterdir()]
    for path in ("/", *files, "/page/nothing.js"):
        assert get(cluster.url, path) == get(single.url, path), path
    etag = httpx.get(f"{cluster.url}/page/app.js", timeout=60).headers["etag"]
    assert get(cluster.url, "/page/app.js", headers={"If-None-Match": etag})[:2] == (304, b"")


def test_openais_endpoints_answer_through_the_proxy_as_on_a_single_server(
    cluster: RunningCluster, single: RunningServer
) -> None:
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    asked = {"messages": messages, "model": "counting@gts:16", "seed": 5, "n": 2, "logprobs": True}

    def answer(url: str) -> dict[str, Any]:
        found = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60)
        assert found.status_code == 200, found.text
        return {name: found.json()[name] for name in ("object", "model", "choices", "usage")}

    def chunks(url: str) -> list[dict[str, Any]]:
        body = {**asked, "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as sent:
            assert sent.headers["content-type"].startswith("text/event-stream")
            lines = [line.removeprefix("data: ") for line in sent.iter_lines() if line]
        assert lines[-1] == "[DONE]"
        told = [json.loads(line) for line in lines[:-1]]
        return [each["choices"] for each in told if each["choices"]]

    assert answer(cluster.url) == answer(single.url)
    assert chunks(cluster.url) == chunks(single.url)
    refused = [
        httpx.post(f"{url}/v1/chat/completions", json={**asked, "model": "nobody"}, timeout=60)
        for url in (cluster.url, single.url)
    ]
    assert [each.status_code for each in refused] == [404, 404]
    assert refused[0].json() == refused[1].json()


def test_a_full_queue_is_a_429_with_the_time_to_wait(
    cluster: RunningCluster, single: RunningServer
) -> None:
    def refusals(url: str) -> list[httpx.Response]:
        body = {"question": QUESTIONS[0], "budget": 256}
        with ThreadPoolExecutor(24) as pool:
            sent = [
                pool.submit(httpx.post, f"{url}/solve", json=body, timeout=120) for _ in "x" * 24
            ]
        answers = [each.result() for each in sent]
        assert {answer.status_code for answer in answers} == {200, 429}
        return [answer for answer in answers if answer.status_code == 429]

    shapes = set()
    for url in (single.url, cluster.url):
        for refused in refusals(url):
            assert int(refused.headers["retry-after"]) >= 1
            error = refused.json()["error"]
            shapes.add((refused.headers["content-type"], *error, error["code"], error["type"]))
    assert len(shapes) == 1


def test_while_no_worker_is_ready_the_answer_is_a_503_with_the_time_to_wait(
    cluster: RunningCluster, single: RunningServer
) -> None:
    def refusal(url: str) -> tuple[object, ...]:
        body = {"question": QUESTIONS[0], "budget": 2, "seed": 1}
        answer = httpx.post(f"{url}/solve", json=body, timeout=60)
        return answer.status_code, answer.headers["retry-after"], answer.json()

    for pid in cluster.worker_pids():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(cluster.metric("gts_ready").values()), 10)
    theirs = refusal(cluster.url)
    single.kill_worker()
    wait_for(lambda: not single.is_ready(), 10)
    assert theirs == refusal(single.url)
    assert theirs[0] == 503
    wait_for(single.is_ready, START_SECONDS)
    wait_for(lambda: all(cluster.metric("gts_ready").values()), START_SECONDS)


def test_a_client_that_goes_away_frees_its_lanes(cluster: RunningCluster) -> None:
    outcome = 'outcome="cancelled"'
    before = sum(cluster.metric("gts_requests_total", outcome).values())
    body = {"question": list(QUESTIONS) * 16, "budget": 256}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{cluster.url}/solve", json=body, timeout=1.5)
    wait_for(lambda: sum(cluster.metric("gts_open_questions").values()) == 0, 10)
    assert sum(cluster.metric("gts_requests_total", outcome).values()) == before + 1


def test_prometheus_finds_every_replica_and_no_trajectory_twice(cluster: RunningCluster) -> None:
    before = cluster.metric("gts_trajectories_total")
    for seed in range(8):
        body = {"question": QUESTIONS[1], "budget": 16, "seed": seed}
        assert httpx.post(f"{cluster.url}/solve", json=body, timeout=60).status_code == 200
    after = cluster.metric("gts_trajectories_total")
    assert set(after) == set(before)
    assert sum(after.values()) - sum(before.values()) == 8 * 16


class Crowd:
    """Clients that ask until told to stop, and compare every answer with the single server's."""

    def __init__(self, cluster: RunningCluster, single: RunningServer, clients: int) -> None:
        self._url, self._clients = cluster.url, clients
        with Client(single.url) as client:
            self._right = [self._ask(client, seed) for seed in range(len(QUESTIONS))]
        self._is_over = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.answers = self.differences = 0

    @staticmethod
    def _ask(client: Client, seed: int) -> dict[str, Any]:
        found: SolveResponse = client.solve(QUESTIONS[seed], budget=128, seed=seed)
        return what_counts(found.model_dump())

    def __enter__(self) -> "Crowd":
        self._pool = ThreadPoolExecutor(self._clients)
        self._asking = [self._pool.submit(self._run, n) for n in range(self._clients)]
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for asking in self._asking:
            asking.result()  # raises what a client could not get over
        self._pool.shutdown()

    def _run(self, number: int) -> None:
        transport = _Counting(self.statuses)
        with Client(self._url, retries=PATIENT, transport=transport) as client:
            while not self._is_over.is_set():
                number = (number + 1) % len(QUESTIONS)
                self.differences += self._ask(client, number) != self._right[number]
                self.answers += 1


class _Counting(httpx.HTTPTransport):
    """The real transport, keeping count of the statuses it saw."""

    def __init__(self, statuses: Counter[int]) -> None:
        super().__init__()
        self._statuses = statuses

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        self._statuses[response.status_code] += 1
        return response


def test_replicas_come_with_the_load_and_leave_with_it_drained(
    cluster: RunningCluster, single: RunningServer
) -> None:
    with Crowd(cluster, single, clients=16) as many:
        wait_for(lambda: len(cluster.targets()) == 3, START_SECONDS, cluster.log)
    with Crowd(cluster, single, clients=1) as one:
        wait_for(lambda: len(cluster.targets()) == 2, START_SECONDS, cluster.log)
    assert many.differences == one.differences == 0
    assert set(many.statuses) <= {200, 429}
    assert set(one.statuses) == {200}, "a replica that leaves finishes what it has"


def test_killing_a_replica_under_load_loses_and_changes_nothing(
    cluster: RunningCluster, single: RunningServer
) -> None:
    with Crowd(cluster, single, clients=8) as crowd:
        wait_for(lambda: crowd.answers >= 8, START_SECONDS)
        killed = cluster.replica_pids()[0]
        os.kill(killed, signal.SIGKILL)
        answers = crowd.answers
        wait_for(lambda: crowd.answers >= answers + 24, START_SECONDS)
    assert crowd.differences == 0
    assert crowd.statuses[503] > 0, "some request was on the replica when it died"
    assert set(crowd.statuses) <= {200, 429, 503}
    wait_for(lambda: len(set(cluster.replica_pids()) - {killed}) >= 2, START_SECONDS)
    wait_for(
        lambda: all(_answers(target) for target in cluster.targets()), START_SECONDS, cluster.log
    )


def _answers(target: str) -> bool:
    try:
        return httpx.get(f"http://{target}/metrics", timeout=10).status_code == 200
    except httpx.TransportError:
        return False
