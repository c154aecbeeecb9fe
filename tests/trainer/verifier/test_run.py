"""`gts train verifier` from the command line to a vote with what it wrote, on a random reasoner."""

import json
import shutil
from pathlib import Path

import pytest

from latent.folders import fingerprint
from latent.store import load_reasoner
from latent.verifier_file import find_verifier, read_verifier_card, user_verifier
from tests.cli.conftest import Gts, gts
from tests.reasoners import QUESTIONS, make_counting_reasoner
from tests.service.server import save_with_sampler

__all__ = ["gts"]

SMALL = ("epochs=2", "prompts=4", "hidden=16", "lanes=4", "validation_lanes=4", "validation_size=6")
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "counting"
    return save_with_sampler(make_counting_reasoner(), place)


@pytest.fixture(scope="module")
def data(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions whose true answers are those of one trajectory of several."""
    reasoner, rows = load_reasoner(folder), []
    for n in range(24):
        question = f"{QUESTIONS[n % 4]} {n}"
        drawn = reasoner.solve(question, budget=4, seed=n).trajectories
        answer = next((each.answer for each in drawn if each.answer is not None), 0)
        rows.append({"question": question, "answer": int(answer)})
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_trained_verifier_is_measured_written_and_voted_with(
    gts: Gts, folder: Path, data: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(folder, tmp_path / "mine")
    code, out, err = gts("train", "verifier", "-m", model, "--data", data, *SETTINGS)
    assert (code, err) == (0, "")
    own = model / "verifiers" / "default"
    assert out.splitlines()[-1] == f"verifier in {own}"
    assert "than the majority: with 4 trajectories" in out
    assert sorted(path.name for path in own.iterdir()) == [
        "README.md",
        "verifier.json",
        "verifier.safetensors",
    ]
    card = read_verifier_card(own)
    assert card.reasoner_fingerprint == fingerprint(model)
    assert card.training["questions"] == 18
    assert 0 < card.training["mixed"] <= 18
    assert card.results["questions"] == 6
    assert set(card.results["verifier"]) == {"4"}
    assert str(card.training["mixed"]) in (own / "README.md").read_text()
    ask = ("solve", QUESTIONS[0], "-n", 4, "-m", model, "--seed", 1, "--json")
    answer = json.loads(gts(*ask, "--vote", "verifier")[1])
    assert answer["vote"] == "verifier"


def test_the_same_command_gives_the_same_verifier(
    gts: Gts, folder: Path, data: Path, tmp_path: Path
) -> None:
    words = ("train", "verifier", "-m", folder, "--data", data, *SETTINGS, "--json")
    found = [json.loads(gts(*words, "--out", tmp_path / name)[1]) for name in ("one", "two")]
    assert found[0]["results"] == found[1]["results"]
    weights = [(tmp_path / name / "verifier.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


def test_of_an_embedded_reasoner_it_goes_to_the_users_folder(
    gts: Gts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    words = ("train", "verifier", "-m", "coconut-tiny", "--problems", 24, *SETTINGS)
    assert gts(*words)[0] == 0
    embedded = load_reasoner(Path("latent/zoo/coconut-tiny"))
    own = user_verifier("coconut-tiny", embedded.fingerprint)
    assert find_verifier(Path("latent/zoo/coconut-tiny"), embedded.fingerprint) == own


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("-m", "cot-tiny"), "cot-tiny has no thoughts to verify"),
        (("-m", "coconut-tiny", "--data", "embedded:test"), "do not learn from embedded:test"),
        (("-m", "coconut-tiny", "--data", "nowhere.jsonl"), "nowhere.jsonl"),
        (("-m", "coconut-tiny", "--set", "hidden=20"), "hidden must be a multiple of 16"),
        (("-m", "panel-tiny"), "is a panel"),
    ],
)
def test_what_cannot_be_trained_is_one_clear_line(
    gts: Gts, words: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    code, _, err = gts("train", "verifier", *words, "--problems", 8, "--out", tmp_path / "out")
    assert code == 2
    assert named in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_questions_that_teach_nothing_and_a_foreign_folder_are_refused(
    gts: Gts, folder: Path, tmp_path: Path
) -> None:
    data = tmp_path / "wrong.jsonl"
    rows = [{"question": f"{QUESTIONS[0]} {n}", "answer": 123456} for n in range(10)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("train", "verifier", "-m", folder, "--data", data, *SETTINGS)
    code, _, err = gts(*words, "--out", tmp_path / "out")
    assert code == 2
    assert "nothing to learn" in err
    code, _, err = gts(*words, "--out", folder)
    assert code == 2
    assert "holds a reasoner" in err
