import json
from dataclasses import fields, replace

import pytest
from typer.testing import CliRunner

from cli.train_sampler import app
from latent.errors import InputError
from trainer.sampler.config import PRESETS, SamplerConfig


def test_the_paper_preset_is_the_literal_recipe():
    paper = PRESETS["paper"]
    assert (paper.objective, paper.r0, paper.alpha, paper.tau) == ("mean", 1.0, 0.2, 1.0)
    assert (paper.prompts, paper.group_size, paper.steps) == (32, 32, 10_000)
    assert (paper.lr, paper.beta, paper.ema_decay) == (1e-4, 0.001, 0.999)
    assert (paper.ratio, paper.clip, paper.decay) == ("ema", "wide", "none")
    assert (paper.sigma_floor, paper.skip_uniform_groups, paper.log_std_bias) == (0.0, False, 0.0)


@pytest.mark.parametrize("name", PRESETS)
def test_a_configuration_survives_json(name):
    config = PRESETS[name]
    assert SamplerConfig(**json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clip": "ppo"}, "clip must be wide unless ratio is old"),
        ({"k": 33}, r"k must be at most group_size \(32\), got 33"),
        ({"objective": "max"}, "objective must be 'mean' or 'pass@k', got 'max'"),
        ({"steps": None}, "steps must be given, or epochs, not both"),
        ({"epochs": 1.0}, "steps must be given, or epochs, not both"),
        ({"lr": 0.0}, "lr must be greater than 0, got 0.0"),
        ({"lr": "fast"}, "lr must be a valid number, got 'fast'"),
        ({"lr": float("nan")}, "lr must be a finite number"),
        ({"alpha": float("inf")}, "alpha must be a finite number"),
        ({"steps": None, "epochs": 1e300}, "epochs must be less than or equal to 1000000"),
        ({"skip_uniform_groups": 1}, "skip_uniform_groups must be a valid boolean"),
        ({"group_size": 8.5}, "group_size must be a valid integer"),
        ({"group_size": True}, "group_size must be a valid integer"),
        ({"log_std_bias": -2.0}, r"log_std_bias must be above log_std_floor \(-2.0\)"),
        ({"validation_budget": 65}, "validation_budget must be at most validation_lanes"),
        ({"seed": -1}, "seed must be greater than or equal to 0, got -1"),
    ],
)
def test_an_invalid_setting_is_named_in_one_line(changes, message):
    with pytest.raises(InputError, match=message) as raised:
        replace(SamplerConfig(), **changes)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"{raised.value.param} must be ")


def test_every_field_can_be_set_by_name():
    config = SamplerConfig()
    for field in fields(SamplerConfig):
        value = json.dumps(getattr(config, field.name))
        if field.name != "epochs":
            assert config.changed([f"{field.name}={value}"]) == config


def test_settings_are_read_by_kind():
    config = PRESETS["default"].changed(["objective=mean", "alpha=0", "skip_uniform_groups=False"])
    assert (config.objective, config.alpha, config.skip_uniform_groups) == ("mean", 0, False)


def test_epochs_take_the_place_of_steps():
    config = SamplerConfig().changed(["epochs=1"])
    assert config.steps is None
    assert config.step_count(20_000) == 625
    assert config.changed(["steps=5"]).step_count(20_000) == 5


@pytest.mark.parametrize("setting", ["lr", "speed=3", "=1"])
def test_a_setting_that_is_no_field_is_refused(setting):
    with pytest.raises(InputError, match="not name=value"):
        SamplerConfig().changed([setting])


def test_every_setting_has_a_description_of_one_line():
    rows = PRESETS["default"].rows()
    assert [row.name for row in rows] == [field.name for field in fields(SamplerConfig)]
    assert rows[0] == ("objective", "pass@k", rows[0].description)
    for row in rows:
        assert row.description.endswith(".")
        assert "\n" not in row.description


def test_help_lists_every_setting_with_its_default_and_description():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})
    for name, value, description in PRESETS["default"].rows():
        assert f"{name}={value}: {description}" in shown.output
