"""Settings of a run: invalid ones are named, and the schedules that follow from them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from latent.errors import GtsError, InputError
from tests.trainer.backbone.small_runs import run_config
from trainer.backbone.config import Architecture, BackboneConfig, fit_plan, learning_rate
from trainer.backbone.run import BackboneRun


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"recipe": "other"}, "recipe"),
        ({"stage_steps": (3, 3)}, "stage_steps"),
        ({"stage_steps": (3, 0, 3)}, "stage_steps"),
        ({"recipe": "codi", "stage_steps": (3,)}, "stage_steps"),
        ({"recipe": "cot", "stage_steps": (0,)}, "stage_steps"),
        ({"supervised_steps": -1}, "supervised_steps"),
        ({"supervised_steps": 2, "with_thoughts": False}, "supervised_steps"),
        ({"supervised_steps": 2, "redraw_numbers": True}, "redraw_numbers"),
        ({"data": ()}, "data"),
        ({"supervised_steps": 2, "stage_steps": (3, 3, 3, 3)}, "stage_steps"),
        ({"batch": 0}, "batch"),
        ({"settle_steps": -1}, "settle_steps"),
        ({"optimizer": "sgd"}, "optimizer"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"seed": -1}, "seed"),
        ({"train_problems": 0}, "problems"),
        ({"thoughts_per_step": 0}, "thoughts_per_step"),
        ({"recipe": "codi", "codi_thoughts": 0}, "thoughts"),
    ],
)
def test_an_invalid_setting_is_named(decoder: str, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(GtsError, match=named):
        BackboneRun(replace(run_config(decoder), **changes), Path("unused"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"family": "other"}, "family"),
        ({"layers": 0}, "layers"),
        ({"heads": 0}, "heads"),
        ({"heads": 3}, "width"),
        ({"family": "llama", "heads": 4, "kv_heads": 3}, "kv_heads"),
        ({"dropout": 2.0}, "dropout"),
    ],
)
def test_an_invalid_size_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=f"{named} must be") as raised:
        Architecture(**changes)
    assert raised.value.param == named


def test_every_setting_has_a_description() -> None:
    config = BackboneConfig("cot", (1,))
    rows = [row for row in config.rows() if row.name != "architecture"]
    assert all(row.description.endswith(".") for row in (*rows, *config.architecture.rows()))


def test_a_fitted_plan_keeps_its_proportions_and_what_it_leaves_out(decoder: str) -> None:
    config = run_config(decoder, stage_steps=(10, 20, 2), settle_steps=6)
    fitted = fit_plan(config, planned_seconds=20, minutes=1 / 6)
    assert (fitted.stage_steps, fitted.settle_steps) == ((5, 10, 1), 3)
    without = fit_plan(replace(config, stage_steps=(0, 20, 2), settle_steps=0), 20, 1 / 6)
    assert (without.stage_steps, without.settle_steps) == ((0, 10, 1), 0)


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_minutes_must_be_positive_and_finite(decoder: str, minutes: float) -> None:
    with pytest.raises(InputError, match="minutes"):
        fit_plan(run_config(decoder), planned_seconds=20, minutes=minutes)


def test_the_rate_warms_up_and_decays_within_each_stage(decoder: str) -> None:
    config = run_config(decoder, warmup_steps=10, learning_rate=1.0, final_rate_share=0.1)
    rates = [learning_rate(config, within, 100, rate_share=1.0) for within in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0, abs=0.05)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
