"""Screening: which questions a sampler run keeps, and that a resumed run keeps the same."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import trainer.sampler.loop
from latent.errors import InputError
from tests.trainer.sampler.test_resume import CONFIG, TOY, VALIDATION, KilledError, Killer
from tests.trainer.sampler.toys import toy_questions
from trainer.runs.ranks import Ranks
from trainer.sampler.loop import train
from trainer.sampler.screening import screen

SCREENED = replace(CONFIG, screen=32)
# The toy draws from N(0, 1) and is right within 0.5 of the answer: at times for 1, never for 50.
MIXED = toy_questions(40, [1, 50])


def test_only_questions_that_are_right_at_times_are_kept() -> None:
    assert screen(TOY, TOY.new_heads(0.0), MIXED, SCREENED, Ranks()) == list(range(0, 40, 2))


def test_questions_that_are_all_hopeless_are_refused() -> None:
    with pytest.raises(InputError, match="always or never in 32 trajectories"):
        screen(TOY, TOY.new_heads(0.0), toy_questions(8, [50]), SCREENED, Ranks())


def test_a_run_trains_on_the_kept_questions_alone(tmp_path: Path) -> None:
    result = train(TOY, MIXED, VALIDATION, tmp_path / "all", SCREENED)
    only = train(TOY, MIXED[::2], VALIDATION, tmp_path / "kept", CONFIG)
    assert all(torch.equal(result.weights[name], only.weights[name]) for name in only.weights)


def test_a_resumed_run_does_not_screen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(TOY, MIXED, VALIDATION, tmp_path / "whole", SCREENED)
    with pytest.raises(KilledError):
        train(
            TOY,
            MIXED,
            VALIDATION,
            tmp_path / "killed",
            SCREENED,
            progress=Killer(10),
            checkpoint_every=4,  # type: ignore[arg-type]
        )

    def fail(*_: object) -> None:
        raise AssertionError("screened twice")

    monkeypatch.setattr(trainer.sampler.loop, "screen", fail)
    resumed = train(TOY, MIXED, VALIDATION, tmp_path / "killed", SCREENED, checkpoint_every=4)
    assert all(torch.equal(whole.weights[name], resumed.weights[name]) for name in whole.weights)
