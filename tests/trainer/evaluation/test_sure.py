"""The choice of a panel's `sure`: worked by hand, and a whole run that writes it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import latent
from latent.panel import Place
from latent.zoo import find_panel
from tests.trajectories import trajectory
from trainer.data.rows import Row
from trainer.evaluation.sure import Stages, choose, main, measure, stages_of

# Four questions and three stages. The second is right early and surely, the third surely and wrongly.
STAGES = Stages(
    np.array([[0.2, 0.5, 0.8], [0.9, 0.95, 0.99], [0.75, 0.7, 0.4], [-1.0, 0.85, 0.9]]),
    np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]),
    np.array([1.0, 1.0, 2.0]),
    4.0,
)


def test_a_question_ends_at_the_first_stage_that_is_sure() -> None:
    level = measure(STAGES, 0.8)
    assert level.accuracy == 1.0
    assert level.difference.value == 0.0
    assert level.asked == (1.0, 0.75, 0.5)
    assert level.time == (1 + 0.75 + 2 * 0.5) / 4
    low = measure(STAGES, 0.7)
    assert low.accuracy == 0.75
    assert low.difference.value == -0.25
    assert low.asked == (1.0, 0.5, 0.25)


def test_the_lowest_level_is_chosen_that_loses_no_more_than_allowed() -> None:
    levels = [measure(STAGES, sure) for sure in (0.95, 0.7, 0.8)]
    assert choose(levels, 0.0).sure == 0.8
    assert choose(levels, 0.25).sure == 0.7
    wrong = Stages(STAGES.probabilities, 1 - STAGES.is_right[:, ::-1], STAGES.seconds, 4.0)
    assert choose([measure(wrong, 0.6), measure(wrong, 0.7)], -1.0).sure == 0.7, "the highest"


def test_the_stages_vote_as_the_panel_does_when_it_solves() -> None:
    loaded = latent.load_panel("panel-tiny")
    question = "Ivan has 88 apples. He finds 10 on the ground. How many apples are there?"
    solved = loaded.solve(question, budget=6, seed=0)
    assert loaded.panel.split == "early"
    labels = loaded.panel.labels
    places = loaded.panel.places(6)
    drawn = {place: trajectory(place.index, 0) for place in places}
    drawn |= {
        Place(labels.index(each.member), each.member_index): replace(each, index=each.member_index)
        for each in solved.trajectories
        if each.member is not None and each.member_index is not None
    }
    row = Row(question, (), "98")
    stages = stages_of(loaded.panel, [row], [drawn], 6)
    stage = loaded.panel.stages(places).index(len(solved.trajectories))
    assert stages.probabilities[0, stage] == solved.confidence
    assert stages.is_right[0, stage] == (solved.answer == "98")


def test_a_run_prints_the_levels_and_writes_the_choice_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded = find_panel("panel-tiny")
    assert embedded is not None
    folder = shutil.copytree(embedded, tmp_path / "mine")
    arguments = ["--model", str(folder), "--limit", "4", "--budget", "3", "--loss", "100"]
    before = (folder / "panel.json").read_text()
    assert main(arguments) == 0
    assert "chosen: 0.6" in capsys.readouterr().out
    assert (folder / "panel.json").read_text() == before
    assert main([*arguments, "--write"]) == 0
    assert json.loads((folder / "panel.json").read_text()) == json.loads(before) | {"sure": 0.6}
    latent.load_panel(str(folder))
    (folder / "calibration.json").unlink()
    assert main(arguments) == 2
    assert "has no calibration; run gts calibrate first" in capsys.readouterr().err
