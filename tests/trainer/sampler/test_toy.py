import math
from dataclasses import replace

import pytest
import torch

from tests.trainer.sampler.toys import TargetToy, toy_questions
from trainer.sampler.config import PRESETS, SamplerConfig
from trainer.sampler.loop import TrainingResult, train

TOY = TargetToy()
CONFIG = replace(
    PRESETS["default"],
    steps=250,
    prompts=16,
    lr=0.03,
    warmup=10,
    alpha=0.0,
    validation_lanes=32,
    validation_every=250,
)


def trained(answers: list[int], config: SamplerConfig, tmp_path) -> TrainingResult:
    questions, validation = toy_questions(64, answers), toy_questions(16, answers, "v")
    return train(TOY, questions, validation, tmp_path / "run", config)


def learned(result: TrainingResult) -> tuple[float, float]:
    """μ and σ of the sampler that a run chose."""
    heads = TOY.new_heads(0.0)
    heads.load_state_dict(result.weights)
    mean, log_std = heads(torch.ones(1, dtype=torch.float64))
    return mean.item(), log_std.exp().item()


def test_the_pass_at_k_objective_covers_both_answers(tmp_path):
    """The context does not show whether 1 or 4 is right: best is μ = 2.5, with most mass 1 … 2 from it.

    The mass Φ(2/σ) − Φ(1/σ) is largest where 2 φ(2/σ) = φ(1/σ): σ² = 3 / (2 ln 2).
    """
    result = trained([1, 4], replace(CONFIG, log_std_bias=0.8), tmp_path)
    mean, std = learned(result)
    assert mean == pytest.approx(2.5, abs=0.2)
    assert std == pytest.approx(math.sqrt(3 / (2 * math.log(2))), abs=0.2)


def test_the_mean_objective_finds_the_one_answer_and_shrinks(tmp_path):
    config = replace(CONFIG, objective="mean")
    mean, std = learned(trained([2], config, tmp_path))
    assert mean == pytest.approx(2.0, abs=0.1)
    assert std < 0.3


def test_the_literal_recipe_learns_too(tmp_path):
    config = replace(
        PRESETS["paper"], steps=250, lr=0.01, warmup=10, validation_every=50, validation_lanes=32
    )
    mean, _ = learned(trained([2], config, tmp_path))
    assert mean == pytest.approx(2.0, abs=0.2)


def test_several_updates_a_batch_stay_within_the_clip(tmp_path):
    config = replace(CONFIG, updates=4, steps=60, validation_every=60)
    mean, _ = learned(trained([2], config, tmp_path))
    assert math.isfinite(mean)
    assert mean > 1.0
