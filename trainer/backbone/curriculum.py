"""Stages of every recipe, and the loss of COCONUT, its control and text chain-of-thought.

COCONUT starts with text, then puts thoughts in place of one more step per stage, then has thoughts
only. Dropout comes last, at a low rate, because runs with it from the start learned far more slowly.
One seed each, and never one change at a time: text with dropout and random positions had 0.4% of its
validation chains exact after 1000 steps, without dropout and with sinusoids (model.py) 13%; the first
stage of thoughts had 5% after 600 steps with dropout at twice the rate, 46% without.

By that plan alone no run learned to answer from thoughts only: none passed 5% on validation. The
supervised plan did: text; all thoughts forced to the codes of their steps (step_codes.py); thoughts
only, each still trained on its code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.backbone.config import BackboneConfig
from trainer.backbone.step_codes import THOUGHTS_PER_STEP, StepCodes, code_targets
from trainer.backbone.thinking import (
    identity,
    is_exact,
    think,
    think_forced,
    think_through,
    token_loss,
)
from trainer.data.corpus import Batch, Example, Ids, TextFormat, make_batch

THOUGHT_RATE, SETTLE_RATE = 0.75, 0.15
LAYOUT = TextFormat(question_suffix="\n", answer_prefix="### ")


@dataclass(frozen=True)
class Stage:
    """A part of the training with its own optimizer and learning-rate schedule."""

    name: str
    steps: int
    thoughts: int
    replaced: int | None  # number of steps that the thoughts stand for; None: all of them
    is_text: bool = False  # without latent markers
    is_forced: bool = False  # step codes or tokens are fed in place of the thoughts
    has_dropout: bool = False
    rate_share: float = 1.0  # of the run's learning rate


def plan_stages(config: BackboneConfig) -> tuple[Stage, ...]:
    """Stages of a run, without those of 0 steps."""
    if config.recipe == "cot":
        return (Stage("text", sum(config.stage_steps), 0, 0, is_text=True),)
    first, *middle, last = config.stage_steps
    is_codi = config.recipe == "codi"
    has_thoughts = is_codi or config.with_thoughts
    if config.supervised_steps:
        thoughts = config.supervised_steps * THOUGHTS_PER_STEP
    elif is_codi:
        thoughts = config.codi_thoughts
    else:
        thoughts = len(middle) * config.thoughts_per_step if has_thoughts else 0
    if has_thoughts:
        plan = [Stage("teacher" if is_codi else "text", first, 0, 0, is_text=True)]
        if config.supervised_steps or config.spelled_thoughts:
            plan.append(Stage("forced", middle[0], thoughts, None, is_forced=True))
        else:
            name = "joint" if is_codi else "replace"
            for count, steps in enumerate(middle, start=1):
                share = round(thoughts * count / len(middle))
                plan.append(Stage(f"{name}-{count}", steps, share, count, rate_share=THOUGHT_RATE))
        name = "joint" if is_codi else "thoughts-only"
        plan.append(Stage(name, last, thoughts, None, rate_share=THOUGHT_RATE))
    else:  # the control: as many steps, the answer right after the question
        steps = sum(middle) + last
        plan = [Stage("first", first, 0, None)]
        plan.append(Stage("no-thoughts", steps, 0, None, rate_share=THOUGHT_RATE))
    settle = config.settle_steps
    plan.append(Stage("settle", settle, thoughts, None, has_dropout=True, rate_share=SETTLE_RATE))
    return tuple(stage for stage in plan if stage.steps)


@dataclass(frozen=True)
class Curriculum:
    """Loss and batch layout of each stage; `start` and `end` are the ids of the latent markers."""

    stages: tuple[Stage, ...]
    start: int
    end: int
    review_share: float
    codes: StepCodes | None = None

    def loss(
        self,
        model: PreTrainedModel,
        projection: nn.Module | None,
        stage: int,
        examples: Sequence[Example],
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:
        """Loss of one batch and its parts; a share of the batches repeats an earlier stage."""
        chosen = stage
        if stage > 0 and rng.random() < self.review_share:
            chosen = int(rng.integers(stage))
        batch = self.examination(chosen, examples)
        if self.codes is None or not batch.thoughts:
            return {"loss": token_loss(think(model, batch, identity), batch.labels)}
        targets = code_targets(examples, batch.thoughts // THOUGHTS_PER_STEP)
        if self.stages[chosen].is_forced:
            thinking = think_forced(model, batch, self.codes.results(targets.results))
        else:
            thinking = think_through(model, batch, identity)
        answer = token_loss(thinking.logits, batch.labels)
        steps = self.codes.loss(thinking.thoughts, targets)
        return {"loss": answer + steps, "answer": answer.detach(), "steps": steps.detach()}

    def exact_forced(
        self, model: PreTrainedModel, batch: Batch, examples: Sequence[Example]
    ) -> Tensor:
        """Whether the answer is right given the true codes, and each thought predicts its own: (B,)."""
        assert self.codes is not None
        targets = code_targets(examples, batch.thoughts // THOUGHTS_PER_STEP)
        thinking = think_forced(model, batch, self.codes.results(targets.results))
        exact = is_exact(thinking.logits, batch.labels)
        return exact & self.codes.is_right(thinking.thoughts, targets)

    def examination(self, stage: int, examples: Sequence[Example]) -> Batch:
        """Batch for measuring the accuracy of a stage."""
        return self.batch(self.stages[stage], examples)

    def batch(self, stage: Stage, examples: Sequence[Example]) -> Batch:
        """Batch of examples of equal prompt length, in the layout of a stage."""
        targets = [self.target(example, stage) for example in examples]
        if stage.is_text:
            computed = [example.computed for example in examples]
            return make_batch([e.question for e in examples], targets, None, 0, computed)
        prompts = [(*e.question, self.start) for e in examples]
        return make_batch(prompts, targets, self.end, stage.thoughts)

    def target(self, example: Example, stage: Stage) -> Ids:
        """Tokens to predict after the thoughts: the steps that are not replaced, then the answer."""
        kept = () if stage.replaced is None else example.steps[stage.replaced :]
        return (*(token for line in kept for token in line), *example.answer)
