"""The vote `verifier` over real HTTP: the same as in one process, streamed, listed, and refused."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from latent.calibration import Calibrations
from latent.calibration_file import FILE_NAME, write_calibrations
from latent.errors import GtsError
from latent.folders import weights_digest
from latent.stopping import Stop
from latent.store import load_reasoner
from latent.verifier_file import folder_verifier
from service.api.schemas import SolveResponse
from service.client import Client
from service.models import Catalog
from tests.calibrations import COEFFICIENTS, make_calibration
from tests.reasoners import QUESTIONS
from tests.service.server import RunningServer
from tests.verifiers import add_verifier

QUESTION = QUESTIONS[0]


@pytest.fixture(scope="module")
def verified(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = shutil.copytree(folder, tmp_path_factory.mktemp("verified") / "verified")
    add_verifier(copy)
    return copy


@pytest.fixture(scope="module")
def calibrated(verified: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a calibration of the vote, which is sure of nearly every vote."""
    copy = shutil.copytree(verified, tmp_path_factory.mktemp("calibrated") / "calibrated")
    reasoner = load_reasoner(copy)
    one = make_calibration(
        sampler=str(reasoner.sampler().spec),
        vote="verifier",
        sampler_fingerprint=weights_digest(copy / "samplers" / "default"),
        verifier_fingerprint=weights_digest(folder_verifier(copy)),
        coefficients=replace(COEFFICIENTS, intercept=3.0),
    )
    write_calibrations(copy / FILE_NAME, Calibrations(reasoner.fingerprint, (one,)))
    return copy


@pytest.fixture(scope="module")
def server(verified: Path, folder: Path, calibrated: Path) -> Iterator[RunningServer]:
    """One reasoner with a verifier, the same without and calibrated, in rounds of few lanes."""
    with RunningServer(verified, folder, calibrated, flags=("--lane-limit", "16")) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def test_a_served_vote_equals_the_one_of_this_process(client: Client, verified: Path) -> None:
    served = client.solve(QUESTION, budget=48, seed=5, vote="verifier", include=["trajectories"])
    own = load_reasoner(verified).solve(QUESTION, budget=48, seed=5, vote="verifier")
    assert served.vote == "verifier"
    assert served.answer == own.answer
    assert [each.score for each in served.trajectories or ()] == pytest.approx(
        [each.score for each in own.trajectories]
    )
    shares = [candidate.share for candidate in served.candidates]
    assert shares == pytest.approx([candidate.share for candidate in own.candidates])
    majority = client.solve(QUESTION, budget=48, seed=5, include=["trajectories"])
    assert shares != [candidate.share for candidate in majority.candidates]
    assert [each.score for each in majority.trajectories or ()] == [None] * 48


def test_who_shares_a_round_changes_no_score_and_gets_none(client: Client) -> None:
    def solve(number: int) -> SolveResponse:
        vote: Any = "verifier" if number % 2 else "majority"
        include: Any = ["trajectories"]
        return client.solve(
            QUESTIONS[number % 4], budget=6, seed=number, vote=vote, include=include
        )

    alone = [solve(number).trajectories for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = [each.trajectories for each in pool.map(solve, range(8))]
    for before, after in zip(alone, together, strict=True):
        expected = [each.score for each in before or ()]
        assert [each.score for each in after or ()] == pytest.approx(expected, nan_ok=False)


def test_a_stream_tells_the_same_vote_as_it_grows(client: Client) -> None:
    *rounds, result = client.stream(QUESTION, budget=64, seed=5, vote="verifier")
    assert isinstance(result, SolveResponse)
    whole = client.solve(QUESTION, budget=64, seed=5, vote="verifier")
    assert result.candidates == whole.candidates
    assert rounds, "rounds of 16 lanes leave something to tell"


def test_a_calibrated_vote_has_a_probability_and_may_stop_or_abstain(
    client: Client, calibrated: Path
) -> None:
    asked: dict[str, Any] = {"budget": 48, "seed": 5, "vote": "verifier"}
    served = client.solve(QUESTION, model="calibrated", **asked)
    own = load_reasoner(calibrated).solve(QUESTION, **asked)
    assert served.confidence_kind == own.confidence_kind == "calibrated"
    assert served.confidence == pytest.approx(own.confidence)
    assert client.solve(QUESTION, model="verified", **asked).confidence_kind == "share"
    stopped = client.solve(QUESTION, model="calibrated", stop={"confidence": 0.6}, **asked)
    local = load_reasoner(calibrated).solve(QUESTION, stop=Stop("confidence", 0.6), **asked)
    assert stopped.stop_reason == local.stop_reason == "confidence"
    assert stopped.budget_used == len(local.trajectories) < 48
    withheld = client.solve(QUESTION, model="calibrated", abstain_below=0.999999, **asked)
    assert (withheld.answer, withheld.stop_reason) == (None, "abstained")


def test_only_a_model_with_a_verifier_lists_the_vote(client: Client) -> None:
    votes = {model.id: model.votes for model in client.models()}
    assert votes["verified"][-1] == "verifier"
    assert "verifier" not in votes["counting"]


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"model": "counting"}, "vote", "counting has none: gts train verifier"),
        ({"stop": {"certainty": 0.9}}, "stop", "goes with the majority vote"),
        ({"stop": {"confidence": 0.9}}, "stop", "run gts calibrate"),
        ({"abstain_below": 0.5}, "abstain_below", "run gts calibrate"),
        ({"model": ["verified", "counting"]}, "vote", "for one reasoner"),
    ],
)
def test_what_it_does_not_go_with_is_refused_in_one_line(
    server: RunningServer, body: dict[str, Any], param: str, words: str
) -> None:
    asked = {"question": QUESTION, "vote": "verifier", **body}
    answer = httpx.post(f"{server.url}/solve", json=asked, timeout=60)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["param"] == param
    assert words in error["message"]


def test_a_verifier_of_another_reasoner_stops_the_start(verified: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(verified, tmp_path / "it")
    card = copy / "verifiers" / "default" / "verifier.json"
    own = load_reasoner(verified).fingerprint
    card.write_text(card.read_text().replace(own, "0" * 64))
    with pytest.raises(GtsError, match="trained for another reasoner"):
        Catalog([str(copy)])
