"""Calibrated confidence over HTTP and from `gts solve --json`: one number, and how it is refused."""

import asyncio
import json
import math
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.main import main
from latent.calibration import Calibration, Calibrations, Evidence
from latent.calibration_file import FILE_NAME, write_calibrations
from latent.errors import FormatError, MismatchError
from latent.familiarity import make_reference
from latent.folders import fingerprint, weights_digest
from latent.solved import Solved
from latent.trajectory import Timing, Trajectory
from service.api.conversion import solve_response
from service.api.schemas import SolveResponse
from service.client import Client
from service.engine.job import Job
from service.engine.messages import LaneReport
from service.models import Catalog
from tests.calibrations import make_calibration
from tests.reasoners import QUESTIONS, make_counting_reasoner
from tests.service.server import RunningServer, save_with_sampler

QUESTION = QUESTIONS[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_sampler(
        make_counting_reasoner(), tmp_path_factory.mktemp("calibrated") / "counting"
    )


@pytest.fixture(scope="module")
def calibration(folder: Path) -> Calibration:
    own = weights_digest(folder / "samplers" / "default")
    return make_calibration(sampler="gts", sampler_fingerprint=own)


@pytest.fixture(scope="module")
def server(folder: Path, calibration: Calibration) -> Iterator[RunningServer]:
    reference, _ = make_reference(QUESTIONS)
    write_calibrations(
        folder / FILE_NAME, Calibrations(fingerprint(folder), (calibration,), reference)
    )
    with RunningServer(folder) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def solve(http: httpx.Client, **body: Any) -> SolveResponse:
    answer = http.post("/solve", json={"question": QUESTION, "seed": 3, **body})
    assert answer.status_code == 200, answer.text
    return SolveResponse.model_validate_json(answer.content)


def expected(calibration: Calibration, response: SolveResponse) -> float:
    """Work the probability out from what the response itself tells."""
    winner = response.candidates[0]
    is_alone = response.budget_used == 1 and winner.trajectories == [-1]
    evidence = Evidence(winner.share, winner.confidence, response.budget_used, is_alone)
    return calibration.probability(evidence)


@pytest.mark.parametrize(
    "body",
    [
        {"budget": 8},
        {"budget": 1, "question": QUESTIONS[3]},
        {"budget": 8, "include_deterministic": True},
        {"budget": 64, "stop": {"certainty": 0.6}},
        {"budget": 8, "sampler": "gts:default"},
    ],
    ids=["plain", "one", "with the deterministic one", "adaptive", "by its long name"],
)
def test_the_confidence_is_the_calibrated_probability(
    http: httpx.Client, calibration: Calibration, body: dict[str, Any]
) -> None:
    response = solve(http, **body)
    assert response.confidence_kind == "calibrated"
    assert response.confidence == pytest.approx(expected(calibration, response), abs=1e-12)
    assert response.confidence != pytest.approx(response.candidates[0].share)


def test_an_unfamiliar_question_is_told_and_has_less_confidence(
    server: RunningServer, http: httpx.Client, calibration: Calibration
) -> None:
    known = solve(http, budget=8)
    assert (known.familiarity, known.unfamiliar, known.warning) == (1.0, False, None)
    foreign = solve(http, budget=8, question="Explain which of seven dwarfs snored loudest tonight")
    assert (foreign.familiarity, foreign.unfamiliar) == (pytest.approx(0, abs=0.01), True)
    assert foreign.warning is not None
    assert foreign.warning.startswith("This question is unlike those")
    winner = foreign.candidates[0]
    evidence = Evidence(winner.share, winner.confidence, 8, False, novelty=1.0)
    if foreign.answer is not None:
        assert foreign.confidence == pytest.approx(calibration.probability(evidence), abs=1e-12)
    metrics = http.get("/metrics").text
    assert 'gts_unfamiliar_total{model="counting"} 1.0' in metrics


def test_a_confidence_stops_at_the_first_checkpoint_that_reaches_it(http: httpx.Client) -> None:
    by_count = {count: solve(http, budget=count).confidence for count in (4, 8, 16, 32)}
    level = sorted(by_count.values())[2] - 1e-9
    first = next(count for count, value in by_count.items() if value >= level)
    ended = solve(http, budget=32, stop={"confidence": level})
    assert ended.budget_used == first
    assert ended.stop_reason == ("confidence" if first < 32 else "budget")
    assert ended.confidence == by_count[first]


def test_an_answer_is_withheld_below_the_asked_confidence(http: httpx.Client) -> None:
    given = solve(http, budget=8)
    held = solve(http, budget=8, abstain_below=min(given.confidence + 0.01, 0.999))
    assert (held.answer, held.stop_reason) == (None, "abstained")
    assert held.candidates == given.candidates
    assert "gts_abstained_total 1.0" in http.get("/metrics").text


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"stop": {"confidence": 0.9}, "vote": "best"}, "stop", "needs a calibrated confidence"),
        ({"abstain_below": 0.5, "sampler": "gaussian:1.0"}, "abstain_below", "run gts calibrate"),
        ({"abstain_below": 1.5}, "abstain_below", "less than 1"),
        ({"stop": {}}, "stop", "give certainty or confidence"),
        ({"stop": {"certainty": 0.9, "confidence": 0.9}}, "stop", "give certainty or confidence"),
        ({"vote": "checked"}, "vote", "writes none"),
        ({"vote": "likelihood"}, "vote", "no calculator reads"),
    ],
    ids=str,
)
def test_a_stop_that_cannot_be_is_refused_by_name(
    http: httpx.Client, body: dict[str, Any], param: str, said: str
) -> None:
    answer = http.post("/solve", json={"question": QUESTION, **body})
    assert answer.status_code in (400, 422)
    error = answer.json()["error"]
    assert (error["param"], said in error["message"]) == (param, True), error


@pytest.mark.parametrize("body", [{"vote": "best"}, {"sampler": "gaussian:1.0"}], ids=str)
def test_what_is_not_calibrated_says_share(http: httpx.Client, body: dict[str, Any]) -> None:
    response = solve(http, budget=8, **body)
    assert response.confidence_kind == "share"
    assert response.confidence == response.candidates[0].share


def test_an_answer_that_cannot_be_read_has_no_chance(http: httpx.Client) -> None:
    response = solve(http, budget=1)
    assert response.answer is None
    assert (response.confidence, response.confidence_kind) == (0.0, "calibrated")


def test_lists_and_streams_are_calibrated_too(server: RunningServer, http: httpx.Client) -> None:
    alone = solve(http, budget=8)
    with Client(server.url) as client:
        *_, streamed = client.stream(QUESTION, budget=8, seed=3)
    assert isinstance(streamed, SolveResponse)
    body = {"question": [QUESTION], "seed": 3, "budget": 8}
    (listed,) = http.post("/solve", json=body).json()["results"]
    for found in (streamed.model_dump(), listed):
        assert (found["confidence"], found["confidence_kind"]) == (alone.confidence, "calibrated")


def test_gts_solve_json_gives_the_same_number(
    http: httpx.Client,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["solve", QUESTION, "-n", "8", "--seed", "3", "-m", str(folder), "--json"]
    monkeypatch.setattr(sys, "argv", ["gts", *words, "--threads", "1"])
    with pytest.raises(SystemExit, match="0"):
        main()
    local = SolveResponse.model_validate_json(capsys.readouterr().out)
    served = solve(http, budget=8)
    assert local.confidence_kind == served.confidence_kind == "calibrated"
    assert local.confidence == served.confidence


def test_models_lists_what_is_calibrated(http: httpx.Client) -> None:
    model = http.get("/v1/models").json()["data"][0]
    assert model["calibrations"] == [
        {
            "sampler": "gts",
            "vote": "majority",
            "ece": 0.02,
            "questions": 100,
            "data": "embedded:validation",
            "budgets": [1, 16],
        }
    ]


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return save_with_sampler(make_counting_reasoner(), tmp_path / "counting")


def test_a_foreign_calibration_stops_the_start(fresh: Path, calibration: Calibration) -> None:
    foreign = Calibrations("another", (calibration,))
    write_calibrations(fresh / FILE_NAME, foreign)
    with pytest.raises(MismatchError, match=r"calibration\.json.*another reasoner"):
        Catalog([str(fresh)])
    stale = make_calibration(sampler="gts", sampler_fingerprint="another")
    write_calibrations(fresh / FILE_NAME, Calibrations(fingerprint(fresh), (stale,)))
    with pytest.raises(MismatchError, match="'gts' has changed since it was calibrated"):
        Catalog([str(fresh)])


def test_a_malformed_calibration_stops_the_start(fresh: Path) -> None:
    (fresh / FILE_NAME).write_text(json.dumps({"format": 2, "fitted": []}))
    with pytest.raises(FormatError, match=r"calibration\.json: reasoner_fingerprint is missing"):
        Catalog([str(fresh)])


def test_a_partial_answer_is_calibrated_by_what_voted(calibration: Calibration) -> None:
    async def expired() -> Solved:
        indices = tuple(range(8))
        job = Job(
            request_id="r",
            kind="solve",
            model="counting",
            sampler="gts",
            thoughts=3,
            question=QUESTION,
            seed=3,
            indices=indices,
            budget=8,
            calibration=calibration,
        )
        job.result = asyncio.get_running_loop().create_future()
        lanes = [
            Trajectory(index, "7", Decimal(7), -0.5, (1,), (-0.5,), 0) for index in indices[:4]
        ]
        job.accept(LaneReport(tuple(lanes), (1,) * 4, 5, Timing()))
        job.expire()
        solved = job.result.result()
        assert isinstance(solved, Solved)
        return solved

    response = solve_response(asyncio.run(expired()), request_id="r", with_trajectories=False)
    assert (response.partial, response.budget_used) == (True, 4)
    assert response.confidence_kind == "calibrated"
    assert response.confidence == calibration.probability(Evidence(1.0, math.exp(-0.5), 4, False))
