import json
from dataclasses import fields, replace

import pytest

from latent.errors import InputError
from trainer.sampler.config import PRESETS, SamplerConfig
from trainer.sampler.update import learning_rate
from trainer.sampler.watch import Validation, best_of, stop_reason


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
    assert SamplerConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clip": "ppo"}, "clip must be wide unless ratio is old"),
        ({"k": 33}, r"k must be 1 … group_size \(32\), got 33"),
        ({"objective": "max"}, "objective must be mean or pass@k, got 'max'"),
        ({"steps": None}, "steps must be given, or epochs, not both"),
        ({"epochs": 1.0}, "steps must be given, or epochs, not both"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": "fast"}, "lr must be float, got 'fast'"),
        ({"lr": float("nan")}, "lr must be a finite number"),
        ({"alpha": float("inf")}, "alpha must be a finite number"),
        ({"steps": None, "epochs": 1e300}, "epochs must be above 0, to 1e6"),
        ({"skip_uniform_groups": 1}, "skip_uniform_groups must be bool"),
        ({"group_size": 8.5}, "group_size must be int"),
        ({"group_size": True}, "group_size must be int"),
        ({"log_std_bias": -2.0}, "log_std_bias must be above −2"),
        ({"validation_budget": 65}, "validation_budget must be 2 … validation_lanes"),
        ({"seed": -1}, "seed must be 0"),
    ],
)
def test_settings_that_make_no_sense_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        replace(SamplerConfig(), **changes)


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
    with pytest.raises(InputError, match="not field=value"):
        SamplerConfig().changed([setting])


def test_unknown_fields_in_a_file_are_named():
    with pytest.raises(InputError, match="unknown training settings: speed"):
        SamplerConfig.from_json({"speed": 3})


def test_the_rate_warms_up_and_then_decays():
    config = replace(SamplerConfig(), lr=0.1, warmup=4)
    assert [learning_rate(s, 100, config) for s in (0, 1, 3, 50)] == pytest.approx(
        [0.025, 0.05, 0.1, 0.1]
    )
    cosine = replace(config, decay="cosine")
    assert learning_rate(50, 100, cosine) == pytest.approx(0.05)
    assert learning_rate(99, 100, cosine) < 1e-4


def seen(step: int, pass_at_n: float, confidence: float = 0.8, uniform: float = 0.3) -> Validation:
    return Validation(step, pass_at_n, pass_at_n / 2, 0.4, confidence, uniform)


CONFIG = replace(SamplerConfig(), patience=3)


def test_a_run_that_gets_better_goes_on():
    assert stop_reason([seen(0, 0.6)], CONFIG) is None
    assert stop_reason([seen(0, 0.6), seen(10, 0.7), seen(20, 0.72)], CONFIG) is None


def test_falling_confidence_is_a_collapse():
    reason = stop_reason([seen(0, 0.6), seen(10, 0.7, confidence=0.39)], CONFIG)
    assert reason == "collapse: mean confidence fell from 0.800 to 0.390"


def test_falling_pass_at_n_is_a_collapse_when_it_happens_twice():
    history = [seen(0, 0.6), seen(10, 0.7), seen(20, 0.55)]
    assert stop_reason(history, CONFIG) is None
    reason = stop_reason([*history, seen(30, 0.58)], CONFIG)
    assert reason == "collapse: validation pass@32 fell from 0.700 (step 10) to 0.580"


def test_uniform_groups_leave_no_signal():
    reason = stop_reason([seen(0, 0.6), seen(10, 0.6, uniform=0.96)], CONFIG)
    assert reason == "no signal: 96% of the groups are all right or all wrong"


def test_patience_runs_out():
    history = [seen(0, 0.6), seen(10, 0.7), seen(20, 0.69), seen(30, 0.7), seen(40, 0.68)]
    assert stop_reason(history[:-1], CONFIG) is None
    reason = stop_reason(history, CONFIG)
    assert reason == "no better validation pass@32 than 0.700 (step 10) in 3 validations"


def test_the_best_validation_has_the_highest_pass_at_n_and_comes_first():
    history = [seen(0, 0.6), seen(10, 0.7), seen(20, 0.7)]
    assert best_of(history).step == 10
