"""`gts train backbone`: options, errors, and a small run to the end."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.train_backbone import app
from latent.errors import FormatError, InputError
from trainer.backbone.config import BackboneConfig, recipe_config
from trainer.runs.settings import descriptions


def test_a_small_run_from_nothing_leaves_a_reasoner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text('{"question": "1 + 1?", "steps": ["1+1=2"], "answer": 2}\n' * 5)
    arguments = ["cot", "--out", str(tmp_path / "run"), "--steps", "2", "--problems", "50"]
    arguments += [
        "--validation",
        str(few),
        "--width",
        "16",
        "--layers",
        "1",
        "--heads",
        "2",
        "--batch",
        "4",
        "--test",
        "",
    ]
    monkeypatch.setattr("sys.argv", ["gts", "train", "backbone", *arguments])
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "accuracy 0.000 of 5 " in result.output
    card = json.loads((tmp_path / "run" / "reasoner" / "reasoner.json").read_text())
    assert card["provenance"]["command"].startswith("gts train backbone cot --out ")


def test_numbers_are_drawn_anew_from_several_files_and_a_part_is_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gsm8k, mawps, test = tmp_path / "a.jsonl", tmp_path / "b.csv", tmp_path / "test.jsonl"
    things = [f"{first}{second}s" for first in "bcdfghklm" for second in "aeiou"]
    rows = [
        {"question": f"Tom has 30 {thing} and 25 more?", "answer": "<<30+25=55>>\n#### 55"}
        for thing in things
    ]
    gsm8k.write_text("\n".join(map(json.dumps, rows)))
    mawps.write_text(
        "Question,Numbers,Equation,Answer\n"
        "amy has number0 pens and gets number1 . how many ?,12 3,+ number0 number1,15\n"
    )
    test.write_text(json.dumps({"question": "Tom has 7 bas and 9 more?", "answer": 16}))
    arguments = ["cot", "--out", str(tmp_path / "run"), "--steps", "3", "--test", ""]
    arguments += ["--data", f"{gsm8k}=0.75", "--data", f"{mawps}=0.25", "--redraw-numbers"]
    arguments += ["--validation", "held-out", "--exclude", str(test)]
    arguments += ["--width", "16", "--layers", "1", "--heads", "2", "--batch", "4"]
    monkeypatch.setattr("sys.argv", ["gts", "train", "backbone", *arguments])
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    first, second = json.loads((tmp_path / "run" / "result.json").read_text())["data"]
    assert first["weight"] == 0.75
    assert first["excluded"] == 1
    assert first["templates"] == first["drawn anew"] == len(things) - 1 - first["held out"]
    assert first["held out"] >= 1
    assert (second["templates"], second["drawn anew"]) == (1, 1)


def test_stage_steps_that_are_no_numbers_are_a_usage_error(tmp_path: Path) -> None:
    arguments = ["codi", "--out", str(tmp_path), "--stage-steps", "2,x"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "numbers with commas" in result.output


def test_a_malformed_row_is_named_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"question": "q"}\n')
    arguments = ["cot", "--out", str(tmp_path / "run"), "--data", str(data)]
    monkeypatch.setattr("sys.argv", ["gts", "train", "backbone", *arguments])
    with pytest.raises(FormatError, match="line 1"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("recipe", ["coconut", "codi", "cot"])
def test_help_gives_the_defaults_and_descriptions_of_the_settings(recipe: str) -> None:
    shown = CliRunner().invoke(app, [recipe, "--help"], env={"COLUMNS": "250"}).output
    config = recipe_config(recipe)
    for option, name in (("--lr", "learning_rate"), ("--batch", "batch"), ("--data", "data")):
        line = next(line for line in shown.splitlines() if f" {option} " in line)
        assert descriptions(BackboneConfig)[name] in line
        default = ", ".join(config.data) if name == "data" else getattr(config, name)
        assert f"[default: {default}]" in line
    assert ("--kv-heads" in shown) == (recipe == "codi")
    assert ("--no-thoughts" in shown) == (recipe == "coconut")
    steps = ",".join(map(str, config.stage_steps))
    assert f"[default: {steps}]" in shown


def test_an_invalid_option_is_named_as_the_user_wrote_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lr must be greater than 0, got -1") as raised:
        CliRunner().invoke(
            app, ["codi", "--out", str(tmp_path), "--lr", "-1"], catch_exceptions=False
        )
    assert raised.value.param == "lr"
