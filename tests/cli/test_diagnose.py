"""`gts diagnose` as typed: here and on a server."""

import json
from pathlib import Path

import pytest

from service.api.diagnose_schemas import DiagnoseResponse
from tests.cli.conftest import Gts
from tests.reasoners import QUESTIONS, make_counting_reasoner
from tests.service.server import RunningServer, save_with_sampler

ASKED = ("diagnose", QUESTIONS[0], "--answer", 12, "--seed", 1, "-n", 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_sampler(
        make_counting_reasoner(), tmp_path_factory.mktemp("models") / "counting"
    )


def test_it_prints_measures_votes_and_snr(gts: Gts, folder: Path) -> None:
    code, out, err = gts(*ASKED, "-m", folder, "-s", "gts, dropout:0.1")
    assert (code, err) == (0, "")
    for text in ("SG > 0.5", "JS", "the vote as it grows", "SNR per thought", "seed 1"):
        assert text in out
    votes = next(line for line in out.splitlines() if line.split()[1:] == ["1", "2", "4", "8"])
    assert votes.split()[0] == "sampler"
    without = gts("diagnose", QUESTIONS[0], "-n", 4, "-m", folder, "-s", "dropout:0.1")[1]
    assert "SG" not in without
    assert "SNR" not in without


def test_here_and_on_a_server_it_measures_the_same(gts: Gts, folder: Path) -> None:
    here = gts(*ASKED, "-m", folder, "--json")[1]
    with RunningServer(folder) as server:
        there = gts(*ASKED, "--url", server.url, "--json")[1]
    local, remote = (DiagnoseResponse.model_validate_json(text) for text in (here, there))
    assert [one.sampler for one in local.samplers] == ["dropout:0.1", "gaussian:1.0", "gts"]
    assert local.deterministic_answer == remote.deterministic_answer
    for mine, theirs in zip(local.samplers, remote.samplers, strict=True):
        assert mine.vote_curve == theirs.vote_curve
        assert mine.gains == pytest.approx(theirs.gains)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--answer", "many"), "has no number"),
        (("-s", "magic"), "unknown sampler 'magic'"),
        (("-n", "70000"), "budget must be"),
        (("--token", "x"), "--token goes with --url"),
        (("--url", "http://127.0.0.1:1", "--device", "cpu"), "is the server's to choose"),
    ],
)
def test_bad_input_is_one_line(gts: Gts, folder: Path, words: tuple[str, ...], said: str) -> None:
    code, out, err = gts("diagnose", QUESTIONS[0], "-m", folder, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_the_members_of_a_panel_are_measured_each_with_its_own_sampler(gts: Gts) -> None:
    words = ("diagnose", QUESTIONS[0], "-m", "panel-tiny", "-n", 2, "--seed", 3)
    code, out, err = gts(*words, "--json")
    assert (code, err) == (0, "")
    labels = ["coconut-tiny:gts@auto", "codi-tiny:gts@auto", "cot-tiny:token:1.0"]
    assert [one["sampler"] for one in json.loads(out)["samplers"]] == labels
    code, _, err = gts(*words, "--samplers", "gts")
    assert (code, err.count("leave --samplers out")) == (2, 1)
