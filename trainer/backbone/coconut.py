"""The COCONUT curriculum: text first, then thoughts in place of ever more steps, then thoughts only.

Dropout comes last, at a low rate, because runs with it from the start learned far more slowly. One
seed each, and never one change at a time: text with dropout and learned positions had 0.4% of its
validation chains exact after 1000 steps, without dropout and with waves for positions (models.py)
13%; the first stage of thoughts had 5% after 600 steps with dropout at twice the rate, 46% without.

By that plan alone no run learned to answer from thoughts only: none passed 5% on validation. The
supervised plan did: text; the codes of all steps told in the thoughts' places (step_codes.py);
thoughts only, each still taught its code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.backbone.step_codes import THOUGHTS_PER_STEP, StepCodes, code_targets
from trainer.backbone.thinking import identity, think, think_on, think_told, token_loss
from trainer.data.corpus import Batch, Example, TextFormat, make_batch

THOUGHT_RATE, SETTLE_RATE = 0.75, 0.15
LAYOUT = TextFormat(question_suffix="\n", answer_prefix="### ")


@dataclass(frozen=True)
class Stage:
    """A part of the training with its own optimizer and learning-rate decay."""

    name: str
    steps: int
    thoughts: int
    replaced: int | None  # how many steps the thoughts stand for; None: all of them
    is_text: bool = False  # no latent markers at all
    is_told: bool = False  # codes stand in the thoughts' places
    has_dropout: bool = False
    rate_share: float = 1.0  # of the run's learning rate


def without_empty(plan: Sequence[Stage]) -> tuple[Stage, ...]:
    """Leave out the stages that were given no steps."""
    return tuple(stage for stage in plan if stage.steps)


def coconut_stages(
    stage_steps: Sequence[int], settle_steps: int, thoughts_per_step: int
) -> tuple[Stage, ...]:
    """Plan text, then one more replaced step per stage, thoughts only, and settling with dropout."""
    text, *middle, last = stage_steps
    thoughts = len(middle) * thoughts_per_step
    plan = (
        Stage("text", text, 0, 0, is_text=True),
        *(
            Stage(
                f"replace-{count}",
                steps,
                count * thoughts_per_step,
                count,
                rate_share=THOUGHT_RATE,
            )
            for count, steps in enumerate(middle, start=1)
        ),
        Stage("thoughts-only", last, thoughts, None, rate_share=THOUGHT_RATE),
        Stage("settle", settle_steps, thoughts, None, has_dropout=True, rate_share=SETTLE_RATE),
    )
    return without_empty(plan)


def supervised_stages(
    stage_steps: Sequence[int], settle_steps: int, steps: int
) -> tuple[Stage, ...]:
    """Plan text, codes told, thoughts only, and settling with dropout, for up to `steps` steps."""
    text, told, last = stage_steps
    thoughts = steps * THOUGHTS_PER_STEP
    plan = (
        Stage("text", text, 0, 0, is_text=True),
        Stage("told", told, thoughts, None, is_told=True),
        Stage("thoughts-only", last, thoughts, None, rate_share=THOUGHT_RATE),
        Stage("settle", settle_steps, thoughts, None, has_dropout=True, rate_share=SETTLE_RATE),
    )
    return without_empty(plan)


def text_stages(steps: int) -> tuple[Stage, ...]:
    """Plan plain chain-of-thought training."""
    return (Stage("text", steps, 0, 0, is_text=True),)


def control_stages(stage_steps: Sequence[int], settle_steps: int) -> tuple[Stage, ...]:
    """Plan the control: as many steps, no thoughts, the answer right after the question."""
    first, *others = stage_steps
    plan = (
        Stage("first", first, 0, None),
        Stage("no-thoughts", sum(others), 0, None, rate_share=THOUGHT_RATE),
        Stage("settle", settle_steps, 0, None, has_dropout=True, rate_share=SETTLE_RATE),
    )
    return without_empty(plan)


def stage_batch(examples: Sequence[Example], stage: Stage, start: int, end: int) -> Batch:
    """Lay out examples of equal prompt length as a stage wants them."""
    targets = []
    for example in examples:
        kept = () if stage.replaced is None else example.steps[stage.replaced :]
        targets.append((*(token for line in kept for token in line), *example.answer))
    if stage.is_text:
        return make_batch([e.question for e in examples], targets, None, 0)
    return make_batch([(*e.question, start) for e in examples], targets, end, stage.thoughts)


@dataclass(frozen=True)
class Curriculum:
    """The recipe: which stage a batch is made for, and its loss."""

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
        """Return the loss of one batch; now and then the batch reviews an earlier stage."""
        chosen = stage
        if stage > 0 and rng.random() < self.review_share:
            chosen = int(rng.integers(stage))
        batch = stage_batch(examples, self.stages[chosen], self.start, self.end)
        if self.codes is None or not batch.thoughts:
            return {"loss": token_loss(think(model, batch, identity), batch.labels)}
        targets = code_targets(examples, batch.thoughts // THOUGHTS_PER_STEP)
        if self.stages[chosen].is_told:
            thinking = think_told(model, batch, self.codes.results(targets.results))
        else:
            thinking = think_on(model, batch, identity)
        answer = token_loss(thinking.logits, batch.labels)
        steps = self.codes.loss(thinking.thoughts, targets)
        return {"loss": answer + steps, "answer": answer.detach(), "steps": steps.detach()}

    def examination(self, stage: int, examples: Sequence[Example]) -> Batch:
        """Lay out examples for the measure of a stage."""
        return stage_batch(examples, self.stages[stage], self.start, self.end)
