"""Step supervision: the codes of equations, and the pass with codes in place of thoughts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from latent.errors import InputError
from latent.reasoner import ProjectionMLP
from trainer.backbone.codi import Distillation
from trainer.backbone.config import Architecture, BackboneConfig
from trainer.backbone.curriculum import plan_stages
from trainer.backbone.model import build_decoder
from trainer.backbone.step_codes import Equation, StepCodes, code_targets, read_equation
from trainer.backbone.thinking import think_forced, think_through, token_loss
from trainer.data.corpus import IGNORED, Example, make_batch

START, END, EOS = 1, 2, 0
EXAMPLES = [
    Example((11, 12, 13), ((20, 21), (22, 23)), (30, 31, 5, EOS), ("12+30=42", "42*50=2100")),
    Example((14, 15, 16), ((25,), (26,)), (30, 31, 6, 7, EOS), ("9-2=7", "700/7=100")),
]


def test_an_equation_is_read_as_its_operation_and_two_digits_of_base_hundred() -> None:
    assert read_equation("12+30=42") == Equation(symbol=0, operand=30, low=42, high=0)
    assert read_equation("42*50=2100") == Equation(symbol=2, operand=50, low=0, high=21)


@pytest.mark.parametrize("step", ["12+300=312", "99*99=10000", "1.5+1=2.5", "12+30", "", "1+2+3=6"])
def test_a_step_that_two_codes_cannot_hold_is_refused_by_its_text(step: str) -> None:
    with pytest.raises(InputError, match="supervised-steps"):
        read_equation(step)


def test_after_the_last_step_the_thoughts_repeat_the_answer() -> None:
    targets = code_targets(EXAMPLES, steps=3)
    assert targets.results.tolist() == [[42, 0, 0, 21, 0, 21], [7, 0, 0, 1, 0, 1]]
    assert targets.operands.tolist() == [[30, 50, IGNORED], [2, 7, IGNORED]]
    assert targets.symbols.tolist() == [[0, 2, IGNORED], [1, 3, IGNORED]]


def test_thoughts_that_are_their_codes_are_right_and_others_are_not() -> None:
    torch.manual_seed(0)
    codes, targets = StepCodes(64), code_targets(EXAMPLES, steps=2)
    fed = codes.results(targets.results)
    assert codes.is_right(fed, targets).tolist() == [True, True]
    changed = fed.clone()
    changed[1, 2] = codes.results.weight[55]
    assert codes.is_right(changed, targets).tolist() == [True, False]
    assert codes.loss(fed, targets) < codes.loss(fed.roll(1, dims=0), targets)


class Given(nn.Module):
    """A feedback that returns given embeddings, whatever the state."""

    def __init__(self, embeddings: torch.Tensor) -> None:
        super().__init__()
        self.left = list(embeddings.split(1, dim=1))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return self.left.pop(0)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_forced_pass_is_the_loop_fed_with_codes(family: str) -> None:
    torch.manual_seed(0)
    shape = Architecture(family, width=16, layers=2, heads=4, mlp_width=24, dropout=0.0)
    model, codes = build_decoder(shape, tokens=40, eos=EOS), StepCodes(16)
    prompts, answers = [(*e.question, START) for e in EXAMPLES], [e.answer for e in EXAMPLES]
    batch = make_batch(prompts, answers, END, thoughts=4)
    fed = codes.results(code_targets(EXAMPLES, 2).results)
    once, looped = think_forced(model, batch, fed), think_through(model, batch, Given(fed))
    torch.testing.assert_close(once.logits, looped.logits, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(once.thoughts, looped.thoughts, atol=1e-5, rtol=1e-4)


def test_codi_s_forced_student_gives_the_losses_of_a_separate_pass() -> None:
    torch.manual_seed(0)
    shape = Architecture("llama", width=16, layers=2, heads=4, mlp_width=24)
    model, codes = build_decoder(shape, tokens=40, eos=EOS), StepCodes(16)
    config = BackboneConfig("codi", (0, 1, 1), settle_steps=0, supervised_steps=2, init="any")
    recipe = Distillation(plan_stages(config), START, END, 0.0, codes, 2, gamma=1.0, dropout=0.1)
    losses = recipe.loss(model, ProjectionMLP(16, 8), 0, EXAMPLES, np.random.default_rng(0))
    batch, targets = recipe.examination(0, EXAMPLES), code_targets(EXAMPLES, 2)
    thinking = think_forced(model, batch, codes.results(targets.results))
    student, steps = (
        token_loss(thinking.logits, batch.labels),
        codes.loss(thinking.thoughts, targets),
    )
    assert losses["student"].item() == pytest.approx(student.item(), abs=1e-5)
    assert losses["steps"].item() == pytest.approx(steps.item(), abs=1e-5)
    parts = sum(losses[name].item() for name in ("student", "teacher", "distance", "steps"))
    assert losses["loss"].item() == pytest.approx(parts, abs=1e-5)


def test_a_supervised_plan_forces_first_and_omits_the_text_that_init_brings() -> None:
    config = BackboneConfig("coconut", (5, 4, 3), settle_steps=2, supervised_steps=6)
    whole = plan_stages(config)
    assert [stage.name for stage in whole] == ["text", "forced", "thoughts-only", "settle"]
    assert [stage.thoughts for stage in whole] == [0, 12, 12, 12]
    assert [stage.is_forced for stage in whole] == [False, True, False, False]
    short = plan_stages(replace(config, stage_steps=(0, 4, 3), init="any"))
    assert [stage.name for stage in short] == ["forced", "thoughts-only", "settle"]
