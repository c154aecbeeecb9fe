"""`gts compare`: the report, and what it refuses."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli.compare import compare_command
from latent.errors import InputError, MismatchError, NotFoundError
from tests.trainer.evaluation.evaluations import Simulated, write_run

SMALL = Simulated(budget=8, questions=6)
TEXT = SMALL.changed(
    kind="cot", model="cot-tiny", thoughts=0, samplers=("token:1.0", "dropout:0.1")
)


def compare(*arguments: object) -> str:
    app = typer.Typer()
    app.command()(compare_command)
    result = CliRunner().invoke(app, [str(part) for part in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [write_run(tmp_path / "a", SMALL), write_run(tmp_path / "b", TEXT)]


def test_runs_are_shown_side_by_side(runs, tmp_path):
    out = tmp_path / "out"
    assert compare(*runs, "--out", out).strip() == str(out / "report.html")
    text = (out / "report.html").read_text()
    for name in ("coconut-tiny on embedded:test", "cot-tiny on embedded:test"):
        assert f'<th scope="col">{name}</th>' in text
    summary = json.loads((runs[1] / "summary.json").read_text())
    value = summary["samplers"]["dropout:0.1"]["pass_at"]["8"]["value"]
    table = text[text.index('aria-label="pass@8, %"') :]
    row = table[table.index("dropout:0.1") :]
    assert f"<td>{value * 100:.1f}<small>" in row[: row.index("</tr>")]
    gts = table[table.index('<th scope="row">gts') :]
    assert gts[: gts.index("</tr>")].endswith("<td>–</td>")
    assert "pass@32" not in text
    names = {path.name for path in (out / "figures").iterdir()}
    assert names == {
        f"pass-at-by-{by}.{kind}" for by in ("run", "sampler") for kind in ("png", "svg")
    }


def test_runs_of_the_same_model_and_data_are_named_by_their_folders(tmp_path):
    runs = [write_run(tmp_path / name, SMALL.changed(seed=n)) for n, name in enumerate("xy")]
    compare(*runs, "--out", tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert '<th scope="row">x</th>' in text
    assert '<th scope="row">y</th>' in text


def test_samplers_that_no_two_runs_share_have_no_panel(tmp_path):
    runs = [
        write_run(tmp_path / "a", SMALL.changed(samplers=("gts",))),
        write_run(tmp_path / "b", TEXT),
    ]
    compare(*runs, "--out", tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Left out: no sampler is in two of the runs." in text


def test_a_folder_that_is_no_finished_evaluation_is_named(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"empty has no summary\.json"):
        compare(*runs, tmp_path / "empty", "--out", tmp_path / "out")
    with pytest.raises(NotFoundError, match="none is no folder"):
        compare(*runs, tmp_path / "none", "--out", tmp_path / "out")
    summary = runs[0] / "summary.json"
    summary.write_text(summary.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(MismatchError, match=r"a/summary\.json is of version 2"):
        compare(*runs, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_folder_is_named_even_if_it_is_the_only_one(tmp_path):
    with pytest.raises(NotFoundError, match="none is no folder"):
        compare(tmp_path / "none", "--out", tmp_path / "out")


def test_an_output_folder_that_is_a_file_is_refused(runs, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        compare(*runs, "--out", tmp_path / "file")


def test_one_folder_or_the_same_twice_is_refused(runs, tmp_path):
    for given in (runs[:1], [runs[0], runs[0]], [*runs, runs[0].parent / "b" / ".." / "a"]):
        with pytest.raises(InputError, match=f"two or more folders .*; got {runs[0]}"):
            compare(*given, "--out", tmp_path / "out")
