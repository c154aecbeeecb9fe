"""Deaths, deadlines, disconnects, drains and limits, over HTTP and on real processes."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from latent.folders import SamplerCard
from latent.samplers import GaussianThoughtSampler
from latent.store import save_sampler
from tests.ports import free_port
from tests.reasoners import QUESTIONS, make_counting_reasoner
from tests.service.server import RunningServer, save_with_sampler, wait_for


def solve(server: RunningServer, question: str, **body: Any) -> httpx.Response:
    body = {"question": question, "seed": 1, "include": ["trajectories"], **body}
    return httpx.post(f"{server.url}/solve", json=body, headers=server.headers, timeout=120)


@contextmanager
def busy(server: RunningServer, path: Path) -> Iterator[Future[httpx.Response]]:
    """Keep the device in one round until the block ends, however slow the machine is."""
    wait_for(server.is_ready)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(solve, server, f"until {path}", budget=4)
        try:
            wait_for(lambda: server.metric("gts_running_lanes") == 4)
            yield running
        finally:
            path.touch()


def test_a_killed_worker_loses_nothing_and_changes_nothing(faulty: RunningServer) -> None:
    before = [solve(faulty, f"slow {question}", budget=32).json() for question in QUESTIONS]
    restarts = faulty.metric("gts_worker_restarts_total")
    with ThreadPoolExecutor(8) as pool:
        open_ones = [pool.submit(solve, faulty, f"slow {q}", budget=32) for q in QUESTIONS]
        wait_for(lambda: faulty.metric("gts_open_questions") == len(QUESTIONS))
        wait_for(lambda: faulty.metric("gts_running_lanes") > 0)
        faulty.kill_worker()
        wait_for(lambda: not faulty.is_ready())
        assert httpx.get(f"{faulty.url}/livez").status_code == 200
        answers = [each.result().json() for each in open_ones]
    assert faulty.metric("gts_worker_restarts_total") == restarts + 1
    assert "worker died (killed by SIGKILL)" in faulty.log()
    for old, new in zip(before, answers, strict=True):
        assert new["candidates"] == old["candidates"]
        assert new["trajectories"] == old["trajectories"]
    wait_for(faulty.is_ready)


def test_a_question_that_kills_twice_while_alone_gets_a_500_and_the_others_go_on(
    faulty: RunningServer,
) -> None:
    wait_for(faulty.is_ready)
    with ThreadPoolExecutor(8) as pool:
        innocent = [pool.submit(solve, faulty, f"slow {q}", budget=16) for q in QUESTIONS]
        wait_for(lambda: faulty.metric("gts_running_lanes") > 0)
        poison = pool.submit(solve, faulty, "die", budget=16)
        assert poison.result().status_code == 500
        assert poison.result().json()["error"]["code"] == "worker_failed"
        assert [each.result().status_code for each in innocent] == [200] * len(QUESTIONS)
    wait_for(faulty.is_ready)


def test_an_exception_fails_its_question_and_not_its_batch_mates(faulty: RunningServer) -> None:
    questions = [QUESTIONS[0], "raise", QUESTIONS[1]]
    body = {"question": questions, "seed": 1, "budget": 8}
    results = httpx.post(f"{faulty.url}/solve", json=body, timeout=60).json()["results"]
    assert ["error" in result for result in results] == [False, True, False]
    message = results[1]["error"]["message"]
    assert "on demand" not in message, "internals stay in the log"
    assert faulty.is_ready()


def test_out_of_memory_halves_the_rounds_and_retries(faulty: RunningServer) -> None:
    answer = solve(faulty, "memory 5", budget=64)
    assert answer.status_code == 200
    assert answer.json()["budget_used"] == 64
    assert faulty.metric("gts_out_of_memory_total") >= 1


def test_a_worker_that_hangs_is_replaced_and_its_question_fails(folder: Path) -> None:
    with (
        RunningServer(folder, is_faulty=True, flags=("--hang-seconds", "1")) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        hanging = pool.submit(solve, server, "hang", budget=4)
        assert hanging.result().status_code == 500
        assert hanging.result().json()["error"]["code"] == "worker_failed"
        wait_for(server.is_ready)
        # The first death makes it a suspect, which runs alone; the next two are counted against it.
        assert server.metric("gts_worker_restarts_total") == 3
        assert solve(server, QUESTIONS[0], budget=4).status_code == 200


def test_questions_that_never_fit_fail_and_the_others_are_answered(
    faulty: RunningServer,
) -> None:
    with ThreadPoolExecutor(4) as pool:
        hopeless = [pool.submit(solve, faulty, f"no room {n}", budget=4) for n in range(2)]
        fine = pool.submit(solve, faulty, QUESTIONS[0], budget=4)
        assert [each.result().status_code for each in hopeless] == [500, 500]
        assert fine.result().status_code == 200


def test_a_deadline_returns_the_votes_so_far(faulty: RunningServer, tmp_path: Path) -> None:
    wait_for(faulty.is_ready)
    question = f"3 first until {tmp_path / 'over'}"
    late = solve(faulty, question, budget=256, deadline_ms=3000).json()
    (tmp_path / "over").touch()
    assert late["partial"] is True
    assert late["stop_reason"] in ("deadline", "unreadable"), "the few lanes may have no number"
    assert 0 < late["budget_used"] < 256
    same = solve(faulty, question, budget=late["budget_used"]).json()
    assert late["candidates"] == same["candidates"]
    assert faulty.metric("gts_partial_total") >= 1


def test_a_deadline_with_nothing_finished_is_a_504(faulty: RunningServer, tmp_path: Path) -> None:
    with busy(faulty, tmp_path / "over"):
        answer = solve(faulty, "4", budget=16, deadline_ms=50)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "deadline"


def test_a_client_that_goes_away_frees_its_lanes(faulty: RunningServer, tmp_path: Path) -> None:
    before = faulty.metric("gts_cancelled_total")
    with busy(faulty, tmp_path / "over") as other:
        for body in ({}, {"stream": True}):
            body = {"question": "5", "budget": 256, **body}
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{faulty.url}/solve", json=body, timeout=httpx.Timeout(60, read=0.4))
        wait_for(lambda: faulty.metric("gts_cancelled_total") == before + 2)
        assert faulty.metric("gts_waiting_lanes") == 0
        assert faulty.metric("gts_open_questions") == 1
    assert other.result().status_code == 200


def test_200_probes_at_once_do_not_wait_for_a_busy_device(
    faulty: RunningServer, tmp_path: Path
) -> None:
    def probe(_: int) -> int:
        return httpx.get(f"{faulty.url}/livez", timeout=120).status_code

    with busy(faulty, tmp_path / "over") as running, ThreadPoolExecutor(50) as pool:
        assert list(pool.map(probe, range(200))) == [200] * 200
        assert not running.done()
    assert running.result().status_code == 200


def test_the_queue_limit_is_a_429_with_a_retry_after(narrow: RunningServer, tmp_path: Path) -> None:
    before = narrow.metric("gts_rejected_total")
    with ThreadPoolExecutor(1) as pool, busy(narrow, tmp_path / "over"):
        waiting = pool.submit(solve, narrow, "6", budget=32)
        wait_for(lambda: narrow.metric("gts_waiting_lanes") == 32)
        refused = solve(narrow, "7", budget=1)
    assert waiting.result().status_code == 200
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "overloaded"
    assert int(refused.headers["retry-after"]) >= 1
    assert narrow.metric("gts_rejected_total") == before + 1


def test_a_kill_during_a_stream_repeats_nothing(faulty: RunningServer) -> None:
    whole = solve(faulty, "slow 11", budget=128).json()
    body = {
        "question": "slow 11",
        "seed": 1,
        "budget": 128,
        "stream": True,
        "include": ["trajectories"],
    }
    used, result = [], None
    with httpx.stream("POST", f"{faulty.url}/solve", json=body, timeout=120) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            data = json.loads(line.removeprefix("data: "))
            if "answer" in data:
                result = data
            else:
                used.append(data["budget_used"])
                if len(used) == 1:
                    faulty.kill_worker()
    assert used == sorted(set(used))
    assert result is not None
    assert result["trajectories"] == whole["trajectories"]
    wait_for(faulty.is_ready)


def test_a_drain_that_takes_too_long_answers_503(folder: Path) -> None:
    flags = ("--drain-seconds", "1", "--lane-limit", "16")
    with (
        RunningServer(folder, is_faulty=True, flags=flags) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        open_one = pool.submit(solve, server, "slow 8", budget=256)
        wait_for(lambda: server.metric("gts_open_questions") == 1)
        server.process.send_signal(signal.SIGTERM)
        assert open_one.result().status_code == 503
        assert open_one.result().json()["error"]["code"] == "draining"
        assert server.process.wait(timeout=60) == 0


def test_two_devices_share_the_work_and_heartbeats_fill_the_silence(folder: Path) -> None:
    flags = ("--device", "cpu", "--device", "cpu", "--heartbeat-seconds", "0.2")
    with (
        RunningServer(folder, is_faulty=True, flags=flags) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        assert len(server.worker_pids()) == 2
        slow = [pool.submit(solve, server, f"slow {n}", budget=16) for n in (1, 2)]
        wait_for(lambda: server.metric("gts_running_lanes") == 32)
        assert all(each.result().status_code == 200 for each in slow)
        body = {"question": "slow 3", "budget": 16, "stream": True}
        answer = httpx.post(f"{server.url}/solve", json=body, timeout=60)
        assert ": still thinking" in answer.text


def test_sigterm_drains_and_exits_0(folder: Path) -> None:
    with RunningServer(folder, is_faulty=True) as server, ThreadPoolExecutor(2) as pool:
        open_one = pool.submit(solve, server, "slow 8", budget=64)
        wait_for(lambda: server.metric("gts_open_questions") == 1)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not server.is_ready())
        late = solve(server, "9")
        assert late.status_code == 503
        assert late.json()["error"]["code"] == "draining"
        assert open_one.result().status_code == 200
        assert server.process.wait(timeout=60) == 0


def start(*words: object) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).parent / "gts"
    return subprocess.run(
        # A port of its own: somebody may be serving at the default one. A later --port wins.
        [script, "serve", "--port", str(free_port()), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_sigterm_before_the_workers_are_ready_ends_the_start(folder: Path) -> None:
    server = RunningServer(folder)
    try:
        wait_for(lambda: server.worker_pids())
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=60) == 0
    finally:
        server.__exit__(None, None, None)


def test_a_bad_start_is_one_clear_line_before_the_port_opens(folder: Path, tmp_path: Path) -> None:
    stranger = save_with_sampler(make_counting_reasoner(seed=1), tmp_path / "stranger")
    card = SamplerCard("gts", 32, "0" * 64)
    spaced = tmp_path / "tokens"
    spaced.write_text("first-token\nsecond-token # hers\n")
    save_sampler(stranger / "samplers" / "default", GaussianThoughtSampler(32), card)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cases = (
            (("--model", tmp_path / "nowhere"), "neither embedded nor a folder"),
            (("--model", folder, "--device", "cuda:7"), "CUDA devices"),
            (("--model", folder, "--port", taken.getsockname()[1]), "cannot listen"),
            (("--model", folder, "--token-file", tmp_path / "none"), "token file"),
            (("--model", folder, "--token-file", spaced), "line 2"),
            (("--model", stranger), "another reasoner"),
            (("--model", folder, "--lane-limit", "3"), "--lane-limit"),
        )
        with ThreadPoolExecutor(4) as pool:
            ended = list(pool.map(lambda case: start(*case[0]), cases))
    for (_, said), done in zip(cases, ended, strict=True):
        assert done.returncode == 2, done.stderr
        lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
        assert len(lines) == 1, done.stderr
        assert said in lines[0]
