"""CODI: one model, as a teacher that reads the steps and as a student that thinks, in one loss.

loss = teacher's cross-entropy on steps and answer + student's on the answer + gamma * distance of
the hidden states, in all layers, at the token before the answer.

Readings, where the description is open:
1. The last step is left out of the teacher's text: it states the answer, and a teacher that copies
   has nothing to teach.
2. Both states are divided by the teacher's deviation before the distance, not the distance after:
   a small decoder's states begin near 0.02, where smooth-L1 is quadratic and would vanish.
3. From scratch, a student that at once has only thoughts had 4% after 500 steps beside a teacher of
   59%. It may have COCONUT's curriculum (at first its thoughts stand for one step and the rest stays
   text), or be taught its steps (step_codes.py), as the embedded one was. Two stages are plain CODI.
4. Dropout comes last, at a low rate, as in COCONUT's plan (curriculum.py), and where the projection
   reads a state, which is where a CODI drops (latent/dropout.py).
5. The question is read once; teacher and student continue from the same keys and values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from trainer.backbone.coconut import SETTLE_RATE, THOUGHT_RATE, Stage, without_empty
from trainer.backbone.step_codes import THOUGHTS_PER_STEP, StepCodes, code_targets
from trainer.backbone.thinking import (
    Prefix,
    add_thoughts,
    identity,
    read_out,
    read_prompt,
    think,
    token_loss,
)
from trainer.data.corpus import Batch, Example, Ids, TextFormat, make_batch

TEACHER = Stage("teacher", 0, 0, 0, is_text=True)
LAYOUT = TextFormat(question_suffix="", answer_prefix="The answer is: ")


def codi_stages(stage_steps: Sequence[int], settle_steps: int, thoughts: int) -> tuple[Stage, ...]:
    """Plan a teacher, perhaps a student's curriculum, thoughts only, and settling with dropout."""
    teacher, *middle, joint = stage_steps
    plan = (
        replace(TEACHER, steps=teacher),
        *(
            Stage(
                f"joint-{count}",
                steps,
                round(thoughts * count / len(middle)),
                count,
                rate_share=THOUGHT_RATE,
            )
            for count, steps in enumerate(middle, start=1)
        ),
        Stage("joint", joint, thoughts, None, rate_share=THOUGHT_RATE),
        _settling(settle_steps, thoughts),
    )
    return without_empty(plan)


def supervised_stages(
    stage_steps: Sequence[int], settle_steps: int, steps: int
) -> tuple[Stage, ...]:
    """Plan a teacher, a student told its steps, thoughts that are taught them, and settling."""
    teacher, told, joint = stage_steps
    thoughts = steps * THOUGHTS_PER_STEP
    plan = (
        replace(TEACHER, steps=teacher),
        Stage("told", told, thoughts, None, is_told=True),
        Stage("joint", joint, thoughts, None, rate_share=THOUGHT_RATE),
        _settling(settle_steps, thoughts),
    )
    return without_empty(plan)


def _settling(steps: int, thoughts: int) -> Stage:
    return Stage("settle", steps, thoughts, None, has_dropout=True, rate_share=SETTLE_RATE)


def hidden_distance(student: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
    """Return the mean smooth-L1 distance over layers, in units of the teacher's deviation.

    Each tensor is (B, D). The teacher takes no gradient.
    """
    distances = []
    for ours, theirs in zip(student, teacher, strict=True):
        goal = theirs.detach()
        scale = goal.std().clamp(min=1e-6)
        distances.append(F.smooth_l1_loss(ours / scale, goal / scale))
    return torch.stack(distances).mean()


@dataclass(frozen=True)
class Distillation:
    """The recipe: the joint loss, and how its student is measured."""

    stages: tuple[Stage, ...]
    start: int
    end: int
    prefix_length: int  # tokens of the answer prefix
    gamma: float
    review_share: float
    dropout: float
    codes: StepCodes | None = None

    def loss(
        self,
        model: PreTrainedModel,
        projection: nn.Module | None,
        stage: int,
        examples: Sequence[Example],
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:
        """Return the losses of one batch and their sum."""
        teacher = self._teacher_batch(examples)
        if self.stages[stage].is_text:
            loss = token_loss(think(model, teacher, identity), teacher.labels)
            return {"loss": loss, "teacher": loss.detach()}
        assert projection is not None
        chosen = self.stages[self._review(stage, rng)]
        student = self._student_batch(chosen, examples)
        shared = read_prompt(model, teacher.prompt)
        own = shared.fork()
        explained = model.base_model(
            input_ids=teacher.inputs,
            past_key_values=shared.cache,
            use_cache=True,
            output_hidden_states=True,
        )
        # The student's prompt is the shared question, its last token, then <|start-latent|>.
        lead = model.base_model(
            input_ids=student.prompt[:, -2:], past_key_values=own.cache, use_cache=True
        )
        own = Prefix(own.cache, lead.last_hidden_state[:, -1:])
        targets = None
        if self.codes is not None:
            targets = code_targets(examples, student.thoughts // THOUGHTS_PER_STEP)
        if chosen.is_told:
            assert self.codes is not None
            assert targets is not None
            given = self.codes.results(targets.results)
            thoughts, layers = _answer_told(model, own, student, given)
        else:
            rate = self.dropout if chosen.has_dropout else 0.0
            thoughts, layers = _answer(model, own, student, projection, rate)
        teacher_loss = token_loss(read_out(model, explained.last_hidden_state), teacher.labels)
        student_loss = token_loss(read_out(model, layers[-1]), student.labels)
        rows = torch.arange(len(examples))
        ours = self._before_answer(chosen, examples)
        theirs = self._before_answer(TEACHER, examples)
        distance = hidden_distance(
            [layer[rows, ours] for layer in layers],
            [layer[rows, theirs] for layer in explained.hidden_states[1:]],
        )
        losses = {
            "loss": teacher_loss + student_loss + self.gamma * distance,
            "teacher": teacher_loss.detach(),
            "student": student_loss.detach(),
            "distance": distance.detach(),
        }
        if self.codes is not None and targets is not None:
            steps = self.codes.loss(thoughts, targets)
            losses["loss"] = losses["loss"] + steps
            losses["steps"] = steps.detach()
        return losses

    def _review(self, stage: int, rng: np.random.Generator) -> int:
        """Choose the stage of a batch: now and then an earlier one of the student's."""
        earlier = [n for n in range(stage) if not self.stages[n].is_text]
        if earlier and rng.random() < self.review_share:
            return earlier[int(rng.integers(len(earlier)))]
        return stage

    def examination(self, stage: int, examples: Sequence[Example]) -> Batch:
        """Lay out examples for the measure of a stage: the student's, once there is one."""
        if self.stages[stage].is_text:
            return self._teacher_batch(examples)
        return self._student_batch(self.stages[stage], examples)

    def _teacher_batch(self, examples: Sequence[Example]) -> Batch:
        targets = [_target(TEACHER, example) for example in examples]
        return make_batch([e.question for e in examples], targets, None, 0)

    def _student_batch(self, stage: Stage, examples: Sequence[Example]) -> Batch:
        prompts = [(*e.question, self.start) for e in examples]
        targets = [_target(stage, example) for example in examples]
        return make_batch(prompts, targets, self.end, stage.thoughts)

    def _before_answer(self, stage: Stage, examples: Sequence[Example]) -> Tensor:
        # Inputs are shifted by one, so this index is that of the answer prefix's last token.
        lengths = [len(_target(stage, e)) - len(e.answer) + self.prefix_length for e in examples]
        return torch.tensor(lengths)


def _answer(
    model: PreTrainedModel, own: Prefix, student: Batch, projection: nn.Module, dropout: float
) -> tuple[Tensor, Sequence[Tensor]]:
    """Think, then read the target: the thoughts (B, K, D), and each layer's states (B, T, D)."""
    own = add_thoughts(
        model, own, student.thoughts, lambda state: projection(F.dropout(state, dropout))
    )
    output = model.base_model(
        input_ids=student.inputs,
        past_key_values=own.cache,
        use_cache=True,
        output_hidden_states=True,
    )
    assert own.thoughts is not None
    return own.thoughts, output.hidden_states[1:]


def _answer_told(
    model: PreTrainedModel, own: Prefix, student: Batch, told: Tensor
) -> tuple[Tensor, Sequence[Tensor]]:
    """Read what is told in the thoughts' places, then the target, in one pass."""
    embed = model.get_input_embeddings()
    output = model.base_model(
        inputs_embeds=torch.cat((told, embed(student.inputs)), dim=1),
        past_key_values=own.cache,
        use_cache=True,
        output_hidden_states=True,
    )
    count = told.shape[1]
    thoughts = torch.cat((own.state, output.last_hidden_state[:, : count - 1]), dim=1)
    return thoughts, [layer[:, count:] for layer in output.hidden_states[1:]]


def _target(stage: Stage, example: Example) -> Ids:
    kept = () if stage.replaced is None else example.steps[stage.replaced : -1]
    return (*(token for line in kept for token in line), *example.answer)
