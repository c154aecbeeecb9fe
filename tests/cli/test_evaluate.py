"""`gts evaluate` as typed: what it leaves, what it prints, and how it refuses."""

import json
from pathlib import Path

import pytest

from latent.store import save_reasoner
from latent.zoo import DEFAULT_LATENT_MODEL
from tests.cli.conftest import Gts
from tests.reasoners import QUESTIONS, make_counting_reasoner
from trainer.evaluation.config import EvaluationConfig


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "counting"
    reasoner = make_counting_reasoner()
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer)
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"question": question, "answer": 12}) for question in QUESTIONS]
    path.write_text("\n".join([*lines, "{torn"]) + "\n")
    return path


def test_a_run_leaves_its_files_and_json_alone_on_standard_output(
    gts: Gts, model: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("evaluate", "-m", model, "--data", rows, "--samplers", "deterministic,gaussian")
    code, printed, err = gts(*words, "--budget", 4, "--out", out, "--json")
    assert code == 0, err
    summary = json.loads(printed)
    assert summary == json.loads((out / "summary.json").read_text())
    assert list(summary["samplers"]) == ["deterministic", "gaussian:1.0"]
    assert summary["config"]["budgets"] == [1, 2, 4]
    assert [row["line"] for row in summary["data"]["malformed"]] == [5]
    assert len((out / "results.jsonl").read_text().splitlines()) == 8
    assert (out / "report.html").is_file()
    assert "rows.jsonl, line 5: not JSON" in err
    assert "8/8" in err


def test_model_and_data_have_defaults(
    gts: Gts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[EvaluationConfig] = []
    monkeypatch.setattr("trainer.evaluation.run.evaluate", lambda config, _: configs.append(config))
    code, _, err = gts("evaluate", "--samplers", "gts", "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert [(one.model, one.data) for one in configs] == [(DEFAULT_LATENT_MODEL, "embedded:test")]


def test_the_progress_bar_says_that_it_evaluates(
    gts: Gts, model: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws the bar
    monkeypatch.setattr("trainer.evaluation.report.page.write_report", lambda out: out)
    words = ("-m", model, "--data", rows, "--samplers", "deterministic", "--out", tmp_path / "out")
    code, printed, err = gts("evaluate", *words)
    assert (code, err) == (0, "")
    assert "evaluating" in printed
    assert "training" not in printed


def test_a_run_ends_with_a_table_and_the_path_of_the_report(
    gts: Gts, model: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(
        "trainer.evaluation.report.page.write_report", lambda out: out / "report.html"
    )
    words = ("-m", model, "--data", rows, "--samplers", "gaussian", "--budget", 4, "--out", out)
    code, printed, err = gts("evaluate", *words)
    assert (code, err) == (0, "")
    assert "4 questions, 1 left out; deterministic accuracy" in printed
    assert "majority@4" in printed
    assert "gaussian:1.0" in printed
    assert f"report in {out / 'report.html'}" in printed.replace("\n", " ")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("--samplers", "magic"), "unknown sampler 'magic'"),
        (("--samplers", ","), "no sampler is named"),
        (("--samplers", "gts"), "no sampler 'default'"),
        (("--budget", "1"), "budget must be at least 2"),
        (("--limit", "0"), "limit must be at least 1"),
        (("--timed", "0"), "timed must be at least 1"),
        (("--data", "nowhere"), "no such data file"),
        (("--data", "embedded:dev"), "embedded:dev is unknown"),
        (("--model", "nobody"), "neither embedded nor a folder"),
        (("--model", "panel-tiny"), "leave --samplers out"),
        (("--device", "tpu"), "unknown device"),
    ],
)
def test_bad_options_are_one_clear_line(
    gts: Gts, model: Path, rows: Path, tmp_path: Path, changed: tuple[str, str], said: str
) -> None:
    words = {
        "--model": model,
        "--data": rows,
        "--samplers": "gaussian",
        "--out": tmp_path / "out",
        changed[0]: changed[1],
    }
    code, _, err = gts("evaluate", *(word for pair in words.items() for word in pair))
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_reasoner_without_samplers_is_refused(gts: Gts, model: Path, tmp_path: Path) -> None:
    code, _, err = gts("evaluate", "--model", model, "--out", tmp_path / "out")
    assert (code, err.count("say what to measure")) == (2, 1)


def test_a_panel_is_measured_beside_its_members(
    gts: Gts, model: Path, rows: Path, tmp_path: Path
) -> None:
    samplers = ("gaussian:1.0", "dropout:0.1")
    members = [{"model": str(model), "sampler": sampler, "share": 1} for sampler in samplers]
    panel = tmp_path / "both"
    panel.mkdir()
    described = {"format": 1, "members": members, "split": "fixed", "sure": 0.9}
    (panel / "panel.json").write_text(json.dumps(described))
    words = ("--data", rows, "--budget", 4, "--out", tmp_path / "out")
    code, out, err = gts("evaluate", "-m", panel, *words)
    assert (code, err) == (0, "")
    assert "counting:dropout:0.1 alone" in out
    assert "panel, adaptive" in out
    assert "of the time" in out
    code, out, _ = gts("evaluate", "-m", panel, *words, "--json")
    assert json.loads(out)["data"]["rows"] == 4
