"""The README's results come from the committed summaries, and drift is noticed."""

import json
from pathlib import Path

import pytest

from tests.trainer.evaluation.evaluations import Simulated, write_summary
from trainer.evaluation.report.readme import BEGIN, END, main

BEFORE = f"# Title\n\ntext\n\n{BEGIN}\nold\n{END}\n\n## After\n"
SMALL = Simulated(
    budget=4, questions=6, samplers=("deterministic", "gts:./a_b/c_d", "gaussian:1.0")
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    results = tmp_path / "docs" / "results"
    results.mkdir(parents=True)
    write_summary(results / "coconut-tiny.json", SMALL)
    (tmp_path / "README.md").write_text(BEFORE)
    return tmp_path


def run(project: Path, *arguments: str) -> int:
    files = ["--readme", str(project / "README.md"), "--results", str(project / "docs/results")]
    return main([*files, *arguments])


def test_the_block_is_written_and_the_rest_stays(project):
    assert run(project) == 0
    text = (project / "README.md").read_text()
    assert text.startswith(f"# Title\n\ntext\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\n## After\n")
    assert "old" not in text
    assert "### coconut-tiny" in text
    assert "| sampler | mean@1 | pass@4 | majority@4 | SG | SG > 0.5 | JS |" in text
    assert "| `gaussian:1.0` | " in text
    assert "drawn with gts:./a\\_b/c\\_d at least" in text
    assert "](docs/results/coconut-tiny.svg)" in text
    command = (
        "gts evaluate --model coconut-tiny --data embedded:test --samplers deterministic,gts:./a_b"
    )
    assert f"    {command}/c_d,gaussian:1.0 --budget 4 --limit 6 --seed 0 --out runs/coc" in text
    assert (project / "docs/results/coconut-tiny.svg").exists()


def test_a_checked_readme_is_not_written(project, capsys):
    assert run(project, "--check") == 1
    assert (project / "README.md").read_text() == BEFORE
    assert not (project / "docs/results/coconut-tiny.svg").exists()
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert all("run: python -m trainer.evaluation.report.readme" in line for line in errors)


def test_the_check_passes_after_writing_and_fails_after_any_change(project):
    run(project)
    assert run(project, "--check") == 0
    written = (project / "README.md").read_text()
    (project / "README.md").write_text(written.replace("±", "+-", 1))
    assert run(project, "--check") == 1
    (project / "README.md").write_text(written)
    write_summary(project / "docs/results/coconut-tiny.json", SMALL.changed(seed=5))
    assert run(project, "--check") == 1


def test_a_figure_of_an_older_summary_is_noticed(project):
    run(project)
    figure = project / "docs/results/coconut-tiny.svg"
    old = figure.read_text()
    write_summary(project / "docs/results/coconut-tiny.json", SMALL.changed(seed=5))
    run(project)
    assert run(project, "--check") == 0
    figure.write_text(old)
    assert run(project, "--check") == 1


def test_writing_twice_changes_nothing(project):
    run(project)
    once = (project / "README.md").read_bytes()
    run(project)
    assert (project / "README.md").read_bytes() == once


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no markers", "must hold"),
        (f"{BEGIN}{BEGIN}{END}", "must hold"),
        (f"{END}{BEGIN}", "before"),
    ],
    ids=["none", "one twice", "the end first"],
)
def test_a_readme_without_sound_markers_is_refused(project, capsys, text, message):
    (project / "README.md").write_text(text)
    assert run(project) == 2
    assert message in capsys.readouterr().err
    assert (project / "README.md").read_text() == text


def test_missing_summaries_and_readmes_are_named(project, capsys):
    (project / "README.md").unlink()
    assert run(project) == 2
    assert "README.md is not readable" in capsys.readouterr().err
    (project / "docs/results/coconut-tiny.json").unlink()
    assert run(project) == 2
    assert "holds no summaries" in capsys.readouterr().err


def test_seeds_of_one_training_have_a_table(project):
    path = project / "docs/results/coconut-tiny.json"
    summary = json.loads(path.read_text())
    measured = {"pass@4": {"value": 0.5, "low": 0.4, "high": 0.6}}
    pair = {"sampler": "gaussian:1.0", "against": "gts:./a_b/c_d", "measure": "pass@4"}
    seeds = {
        "samplers": ["gts:./a_b/c_d", "gts:seed-1"],
        "measures": measured,
        "paired": [{**pair, "difference": 0.02, "low": -0.01, "high": 0.05}],
    }
    path.write_text(json.dumps({**summary, "seeds": [seeds]}))
    assert run(project) == 0
    text = (project / "README.md").read_text()
    assert "| gts:./a_b/c_d over 2 seeds | pass@4 |" in text
    assert "| mean | 50.0 (40.0–60.0) |" in text
    assert "| − gaussian:1.0 | +2.0 (−1.0 to +5.0) |" in text
