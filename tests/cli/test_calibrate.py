"""`gts calibrate` as typed: what it writes, what is shown with it, and how it refuses."""

import json
from pathlib import Path

import pytest

from latent.calibration_file import FILE_NAME
from service.api.schemas import SolveResponse
from tests.cli.conftest import Gts
from tests.reasoners import QUESTIONS, make_counting_reasoner
from tests.service.server import save_with_sampler


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "counting"
    return save_with_sampler(make_counting_reasoner(), folder)


def test_a_calibrated_folder_solves_with_a_probability(
    gts: Gts, folder: Path, tmp_path: Path
) -> None:
    rows = [{"question": f"{QUESTIONS[0]} {n}", "answer": n} for n in range(50)]
    data = tmp_path / "held-out.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ask = ("solve", QUESTIONS[0], "-n", 4, "-m", folder, "-s", "gaussian:1.0", "--seed", 3)
    assert "right with probability" not in gts(*ask)[1]
    words = ("--samplers", "gaussian:1.0", "--data", data, "--budgets", "1,2,4", "--threads", 1)
    code, out, err = gts("calibrate", "--model", folder, *words)
    assert (code, err) == (0, "")
    assert "centroid" in out
    assert out.splitlines()[-1] == str(folder / FILE_NAME)
    assert "right with probability" in gts(*ask)[1]
    response = SolveResponse.model_validate_json(gts(*ask, "--json")[1])
    assert response.confidence_kind == "calibrated"


def test_a_calibrated_panel_solves_with_a_probability(
    gts: Gts, folder: Path, tmp_path: Path
) -> None:
    rows = [{"question": f"{QUESTIONS[0]} {n}", "answer": n} for n in range(50)]
    data = tmp_path / "held-out.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    samplers = ("gts", "gaussian:1.0")
    members = [{"model": str(folder), "sampler": sampler, "share": 1} for sampler in samplers]
    panel = tmp_path / "both"
    panel.mkdir()
    described = {"format": 1, "members": members, "split": "fixed", "sure": 0.9}
    (panel / "panel.json").write_text(json.dumps(described))
    ask = ("solve", QUESTIONS[0], "-n", 4, "-m", panel, "--seed", 3, "--json", "--trajectories")
    before = SolveResponse.model_validate_json(gts(*ask)[1])
    assert before.confidence_kind == "share"
    words = ("--data", data, "--budgets", "1,2,4", "--threads", 1)
    code, out, err = gts("calibrate", "--model", panel, *words)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == str(panel / FILE_NAME)
    after = SolveResponse.model_validate_json(gts(*ask)[1])
    assert after.confidence_kind == "calibrated"
    assert after.trajectories == before.trajectories
    labels = ["counting:gts", "counting:gaussian:1.0"]
    assert [each.member for each in after.trajectories or ()] == labels * 2
    assert [each.member_index for each in after.trajectories or ()] == [-1, -1, 0, 0]
    assert [each.usage.trajectories for each in after.members or ()] == [2, 2]
    text = (panel / FILE_NAME).read_text()
    stale = json.loads(text)
    stale["members"]["counting:gts"] = "0" * 64
    (panel / FILE_NAME).write_text(json.dumps(stale))
    assert "counting:gts has changed since it was calibrated" in gts(*ask)[2]
    assert gts("calibrate", "--model", panel, *words)[0] == 0
    assert (panel / FILE_NAME).read_text() == text
    code, _, err = gts("calibrate", "--model", panel, "--samplers", "gts", *words)
    assert (code, err.count("leave --samplers out")) == (2, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "nobody"), "neither embedded nor a folder"),
        (("--model", "cot-tiny", "--out", "/no/such/place/c.json"), "cannot be written"),
        (("--model", "cot-tiny", "--out", ".", "--budgets", "0"), "as in 1,2,4,8"),
        (("--model", "cot-tiny", "--out", ".", "--samplers", "magic"), "unknown sampler"),
        (("--model", "cot-tiny", "--out", ".", "--samplers", "gaussian"), "reasons in text"),
    ],
    ids=["unknown", "unwritable", "budgets", "spec", "kind"],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    gts: Gts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = gts("calibrate", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / FILE_NAME).exists()


def test_an_embedded_reasoner_is_calibrated_in_the_users_folder(
    gts: Gts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    words = ("--samplers", "deterministic", "--limit", "50", "--threads", "1")
    code, out, err = gts("calibrate", "--model", "coconut-tiny", *words)
    assert (code, err) == (0, "")
    (written,) = (tmp_path / "gts" / "calibrations").glob("coconut-tiny-*.json")
    assert str(written) in out
    ask = ("solve", "How many?", "-m", "coconut-tiny", "-s", "deterministic", "--json")
    response = json.loads(gts(*ask)[1])
    assert response["confidence_kind"] == "calibrated"
