"""The API over real HTTP: what comes back, and how it refuses."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from latent.calibration import Calibrations
from latent.folders import read_format
from service.api.conversion import model_out
from service.api.diagnose_schemas import DiagnoseResponse
from service.api.model_ids import variants
from service.api.schemas import SolveResponse
from service.models import ServedModel
from service.settings import Settings
from tests.reasoners import QUESTIONS
from tests.service.server import RunningServer

QUESTION = QUESTIONS[0]


def solve(http: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = http.post("/solve", json={"question": QUESTION, "seed": 3, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def what_counts(response: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in response.items() if key not in ("id", "timing_ms")}


def test_solve_answers_with_votes(http: httpx.Client) -> None:
    response = SolveResponse.model_validate(solve(http, budget=32, include=["trajectories"]))
    assert response.model == "counting"
    assert response.sampler == "gts"
    assert response.answer is not None
    assert response.budget_used == 32
    assert sum(candidate.votes for candidate in response.candidates) == 32
    assert response.confidence == response.candidates[0].share
    assert response.confidence_kind == "share"
    assert response.usage.thoughts == 3 * 32
    assert [t.index for t in response.trajectories or ()] == list(range(32))
    timing = response.timing_ms
    assert timing.total >= timing.prefill + timing.thoughts + timing.decode > 0


def test_the_same_seed_gives_the_same_answer_and_a_smaller_budget_a_prefix(
    http: httpx.Client,
) -> None:
    whole = solve(http, budget=64, include=["trajectories"])
    assert what_counts(solve(http, budget=64, include=["trajectories"])) == what_counts(whole)
    part = solve(http, budget=8, include=["trajectories"])
    assert part["trajectories"] == whole["trajectories"][:8]


def test_a_seed_is_drawn_and_reported(http: httpx.Client) -> None:
    drawn = {http.post("/solve", json={"question": QUESTION}).json()["seed"] for _ in range(3)}
    assert len(drawn) == 3


@pytest.mark.parametrize("vote", ["majority", "confidence", "best", "centroid"])
def test_every_vote_is_served(http: httpx.Client, vote: str) -> None:
    response = solve(http, budget=16, vote=vote)
    assert sum(candidate["share"] for candidate in response["candidates"]) == pytest.approx(1.0)


def test_an_adaptive_budget_stops_at_a_checkpoint_and_equals_that_budget(
    http: httpx.Client, server: RunningServer
) -> None:
    before = server.metric("gts_trajectories_total")
    adaptive = solve(http, budget=128, stop={"certainty": 0.6})
    assert adaptive["stop_reason"] == "certainty"
    assert adaptive["budget_used"] in (4, 8, 16, 32, 64)
    assert server.metric("gts_trajectories_total") - before <= max(16, adaptive["budget_used"])
    fixed = solve(http, budget=adaptive["budget_used"])
    assert adaptive["candidates"] == fixed["candidates"]
    assert solve(http, budget=16, stop={"certainty": 0.9999999})["stop_reason"] == "budget"


def test_include_deterministic_and_a_budget_of_one(http: httpx.Client) -> None:
    one = solve(http, budget=1, include=["trajectories"])
    inside = solve(http, budget=4, include_deterministic=True, include=["trajectories"])
    assert [t["index"] for t in inside["trajectories"]] == [-1, 0, 1, 2]
    assert inside["trajectories"][0] == one["trajectories"][0]


def test_the_deterministic_sampler_votes_once_whatever_the_budget(http: httpx.Client) -> None:
    found = solve(http, sampler="deterministic", budget=4, include=["trajectories"])
    assert [t["index"] for t in found["trajectories"]] == [-1]
    assert (found["budget"], found["budget_used"]) == (4, 1)


def test_a_bad_sampler_of_a_diagnosis_is_named_by_its_own_field(http: httpx.Client) -> None:
    answer = http.post("/diagnose", json={"question": QUESTION, "samplers": ["magic"]})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "samplers"


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain"])
def test_a_body_that_says_it_is_no_json_is_a_415(http: httpx.Client, kind: str) -> None:
    answer = http.post("/solve", content=b'{"question": "1"}', headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


def test_a_list_gives_results_in_order_and_a_bad_question_fails_alone(http: httpx.Client) -> None:
    questions = [QUESTION, "", "word " * 400, QUESTIONS[2]]
    answer = http.post("/solve", json={"question": questions, "seed": 3, "budget": 4})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [("error" in result) for result in results] == [False, True, True, False]
    assert results[1]["error"]["param"] == results[2]["error"]["param"] == "question"
    assert what_counts(results[0]) == what_counts(solve(http, budget=4))


def test_diagnose_measures_every_sampler(http: httpx.Client) -> None:
    body = {"question": QUESTION, "answer": 12, "budget": 16, "seed": 1}
    response = DiagnoseResponse.model_validate(http.post("/diagnose", json=body).json())
    assert [found.sampler for found in response.samplers] == ["dropout:0.1", "gaussian:1.0", "gts"]
    for found in response.samplers:
        assert found.gains is not None
        assert len(found.gains) == 16
        assert found.sampling_gain == max(found.gains)
        assert 0 <= found.js_divergence <= 0.694
        assert [point.budget for point in found.vote_curve] == [1, 2, 4, 8, 16]
        assert found.regime is not None
    assert response.samplers[2].snr == [0.0, 0.0, 0.0], "an untrained sampler has no mean"
    assert response.samplers[2].sigma == pytest.approx([1.0, 1.0, 1.0])
    assert response.samplers[0].snr is None


def test_diagnose_without_the_answer_gives_the_rest(http: httpx.Client) -> None:
    body = {"question": QUESTION, "budget": 4, "seed": 1, "samplers": ["gaussian:0.5"]}
    (found,) = http.post("/diagnose", json=body).json()["samplers"]
    assert found["sampling_gain"] is found["regime"] is found["gains"] is None
    assert found["vote_curve"][0]["passes"] is None
    assert found["js_divergence"] > 0


@pytest.mark.parametrize("answer", ["1" * 65, "1" * 60, "none", True, 1e300, 1e-05])
def test_an_answer_that_no_model_could_give_is_named(http: httpx.Client, answer: Any) -> None:
    refused = http.post("/diagnose", json={"question": QUESTION, "answer": answer, "budget": 4})
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "answer"


def test_numbers_are_read_as_they_are_meant(http: httpx.Client) -> None:
    def gains(answer: Any) -> Any:
        body = {
            "question": QUESTION,
            "budget": 4,
            "seed": 1,
            "samplers": ["gaussian"],
            "answer": answer,
        }
        found = http.post("/diagnose", json=body).json()["samplers"][0]
        return found["gains"], found["sampling_gain_whole_answer"]

    assert gains(12) == gains(12.0) == gains("12") == gains("$12.00")
    assert gains(0.01) == gains("0.01") != gains(-3)


def test_the_vote_curve_ends_at_the_budget(http: httpx.Client) -> None:
    body = {"question": QUESTION, "budget": 20, "samplers": ["gts"]}
    curve = http.post("/diagnose", json=body).json()["samplers"][0]["vote_curve"]
    assert [point["budget"] for point in curve] == [1, 2, 4, 8, 16, 20]


def test_a_text_reasoner_is_served_beside_it(http: httpx.Client) -> None:
    response = solve(http, model="texting", budget=4)
    assert response["sampler"] == "token:1.0"
    listed = http.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"][:2]] == ["counting", "texting"]
    assert all(model["parent"] for model in listed["data"][2:]), "the models come before variants"
    assert listed["data"][0]["samplers"][0]["spec"] == "gts"
    assert listed["data"][0]["limits"]["budget"] == 256
    latent, text = listed["data"][:2]
    assert (latent["default_sampler"], latent["default_vote"]) == ("gts", "majority")
    assert text["default_sampler"] == "token:1.0"
    assert "centroid" in latent["votes"]
    assert {"checked", "likelihood"} <= set(text["votes"])
    assert "likelihood" not in latent["votes"]


def test_the_answer_with_the_likeliest_reasoning_wins_by_that_vote(http: httpx.Client) -> None:
    body = {"model": "texting", "budget": 8, "vote": "likelihood", "include": ["trajectories"]}
    response = solve(http, **body)
    chains = {each["index"]: each["chain_logprob"] for each in response["trajectories"]}
    readable = [c for c in response["candidates"] if c["answer"] is not None]
    best = [max(chains[index] for index in c["trajectories"]) for c in readable]
    assert best == sorted(best, reverse=True)
    (*_, (name, streamed)) = read_events(http, **body)
    assert (name, streamed["candidates"]) == ("result", response["candidates"])
    assert streamed["trajectories"] == response["trajectories"]


def test_a_reasoner_without_a_trained_sampler_is_listed_with_those_it_has(folder: Path) -> None:
    own = ServedModel("bare", folder, read_format(folder), 32, "f" * 64, {}, Calibrations("f" * 64))
    assert model_out(own, Settings(), None, None).default_sampler is None
    listed = [variant.id for variant in variants(own, Settings())]
    assert listed[0] == "bare@dropout:0.1:8"
    assert not any("@gts" in each for each in listed)


def read_events(http: httpx.Client, **body: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    with http.stream(
        "POST", "/solve", json={"question": QUESTION, "seed": 3, "stream": True, **body}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def test_a_stream_sends_rounds_and_ends_with_the_result(http: httpx.Client) -> None:
    sent = list(read_events(http, budget=256, include=["trajectories"]))
    names = [name for name, _ in sent]
    assert names[-1] == "result"
    assert set(names[:-1]) <= {"round"}
    used = [data["budget_used"] for name, data in sent if name == "round"]
    assert used == sorted(set(used)), "no index is sent twice"
    whole = solve(http, budget=256, include=["trajectories"])
    assert what_counts(sent[-1][1]) == what_counts(whole)


def test_a_failure_after_the_headers_is_an_error_event(http: httpx.Client) -> None:
    (event,) = read_events(http, question="word " * 400)
    assert event[0] == "error"
    assert event[1]["error"]["param"] == "question"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"question": ""}, 422, "question"),
        ({"question": " \n "}, 422, "question"),
        ({"question": "x" * 20_001}, 422, "question"),
        ({"question": "word " * 400}, 422, "question"),
        ({}, 422, "question"),
        ({"question": 7}, 422, "question"),
        ({"question": []}, 422, "question"),
        ({"question": "Q", "budget": 0}, 422, "budget"),
        ({"question": "Q", "budget": 257}, 422, "budget"),
        ({"question": "Q", "budget": "8"}, 422, "budget"),
        ({"question": "Q", "sampler": "magic"}, 422, "sampler"),
        ({"question": "Q", "sampler": "token:1"}, 422, "sampler"),
        ({"question": "Q", "sampler": "gts:../../etc"}, 422, "sampler"),
        ({"question": "Q", "sampler": "gts:/tmp/x"}, 422, "sampler"),
        ({"question": "Q", "vote": "loudest"}, 422, "vote"),
        ({"question": "Q", "stream": 0}, 422, "stream"),
        ({"question": "Q", "model": ""}, 422, "model"),
        ({"question": ["Q", 5]}, 422, "question"),
        ({"question": "Q", "vote": "best", "stop": {"certainty": 0.9}}, 422, "stop"),
        ({"question": "Q", "stop": {"certainty": 1.0}}, 422, "stop"),
        ({"question": "Q", "seed": -1}, 422, "seed"),
        ({"question": "Q", "seed": 2**63}, 422, "seed"),
        ({"question": "Q", "deadline_ms": 0}, 422, "deadline_ms"),
        ({"question": "Q", "include": ["everything"]}, 422, "include"),
        ({"question": "Q", "surprise": 1}, 422, "surprise"),
        ({"question": ["Q"], "stream": True}, 422, "stream"),
        ({"question": ["Q"] * 65}, 422, "question"),
        ({"question": "Q", "model": "nobody"}, 404, "model"),
        ({"question": "Q", "model": "/etc"}, 404, "model"),
        ({"question": "Q", "model": "texting", "vote": "centroid"}, 422, "vote"),
    ],
)
def test_a_bad_field_is_named(
    http: httpx.Client, body: dict[str, Any], status: int, param: str
) -> None:
    answer = http.post("/solve", json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"type", "message", "param", "code"}
    assert error["param"] == param
    assert error["type"] == "invalid_request"


@pytest.mark.parametrize(
    "content", [b"{", b'{"question": "a}', b"\xff\xfe", b"[1,", b"nul", b"[" * 100_000]
)
def test_broken_json_is_a_400(http: httpx.Client, content: bytes) -> None:
    answer = http.post("/solve", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "bad_json"


@pytest.mark.parametrize(
    "question",
    [
        "Ünïcödé? 你好 🙂 1 + 1",
        "tabs\tand\x00control\x1bcharacters 3",
        "<|start-latent|> 5 <|endoftext|>",
        "\u202e12",
    ],
)
def test_any_text_is_a_question(http: httpx.Client, question: str) -> None:
    assert http.post("/solve", json={"question": question, "budget": 2}).status_code == 200


def test_a_lone_surrogate_is_refused_not_a_crash(http: httpx.Client) -> None:
    content = b'{"question": "\\ud800"}'
    answer = http.post("/solve", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "question"


def test_large_bodies_are_refused_with_and_without_a_length(
    http: httpx.Client, server: RunningServer
) -> None:
    refused = 'endpoint="/solve",model="",outcome="too_large"'
    before = server.metric("gts_requests_total", refused)

    def chunks() -> Iterator[bytes]:
        yield b'{"question": "'
        for _ in range(20):
            yield b"x" * 100_000

    for content in (b"x" * 2_000_000, chunks()):
        answer = http.post("/solve", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"
    assert server.metric("gts_requests_total", refused) == before + 2


def test_unknown_paths_and_methods_have_the_same_shape(http: httpx.Client) -> None:
    unknown = http.get("/nowhere").json()["error"]
    assert unknown["code"] == "no_such_endpoint"
    for endpoint in ("POST /solve", "GET /v1/models/{model_id}", "POST /v1/chat/completions"):
        assert endpoint in unknown["message"]
    wrong = http.get("/solve")
    assert wrong.status_code == 405
    assert wrong.json()["error"]["code"] == "method_not_allowed"
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"]["message"] == "GET is not possible here; use POST"
    assert "GET / is a page" in unknown["message"]


def test_an_unknown_field_is_named(http: httpx.Client) -> None:
    refused = http.post("/solve", json={"question": QUESTION, "budgets": 8})
    assert refused.status_code == 422
    error = refused.json()["error"]
    assert (error["param"], error["message"]) == (
        "budgets",
        "budgets: there is no such field; leave it out",
    )


def test_a_request_id_is_taken_or_made_echoed_and_logged(
    http: httpx.Client, server: RunningServer
) -> None:
    answer = http.post(
        "/solve", json={"question": "a very secret question 5"}, headers={"X-Request-Id": "mine-1"}
    )
    assert answer.headers["x-request-id"] == answer.json()["id"] == "mine-1"
    assert http.get("/livez").headers["x-request-id"].startswith("req-")
    assert (
        http.get("/livez", headers={"X-Request-Id": "no spaces, please"})
        .headers["x-request-id"]
        .startswith("req-")
    )
    log = server.log()
    line = next(json.loads(x) for x in log.splitlines() if '"mine-1"' in x)
    assert line["model"] == "counting"
    assert line["outcome"] == "ok"
    assert "secret" not in log


def test_two_requests_may_bear_the_same_id(server: RunningServer) -> None:
    def ask(n: int) -> str | None:
        body = {"question": QUESTIONS[n % 2], "budget": 128, "seed": 1}
        answer = httpx.post(
            f"{server.url}/solve", json=body, headers={"X-Request-Id": "twin"}, timeout=60
        )
        assert answer.status_code == 200
        return answer.json()["answer"]  # type: ignore[no-any-return]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert answers == answers[:2] * 4


def test_metrics_count_what_happened(http: httpx.Client, server: RunningServer) -> None:
    before = server.metric("gts_trajectories_total")
    missed = server.metric("gts_prefix_cache_total", 'outcome="miss"')
    solve(http, question="4 + 15 =", budget=16)
    hit = server.metric("gts_prefix_cache_total", 'outcome="hit"')
    assert server.metric("gts_trajectories_total") == before + 16
    assert server.metric("gts_prefix_cache_total", 'outcome="miss"') == missed + 1
    solve(http, question="4 + 15 =", budget=16)
    assert server.metric("gts_prefix_cache_total", 'outcome="hit"') > hit
    assert server.metric("gts_prefix_cache_total", 'outcome="miss"') == missed + 1
    assert server.metric("gts_ready") == 1
    text = http.get("/metrics").text
    assert 'gts_vote_share_bucket{le="1.0",sampler="gts"}' in text
    assert 'gts_thought_snr{model="counting",thought="3"}' in text


def test_the_docs_and_the_schema_are_served(http: httpx.Client) -> None:
    assert http.get("/docs").status_code == 200
    schema = http.get("/openapi.json").json()
    assert "Server-sent events" in json.dumps(schema)
