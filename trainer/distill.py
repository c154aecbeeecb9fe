"""CODI: one model, as a teacher that reads the steps and as a student that thinks, in one loss.

loss = teacher's cross-entropy on steps and answer + student's on the answer + gamma * distance of
the hidden states, in all layers, at the token before the answer.

Readings, where the description is open:
1. The last step is left out of the teacher's text: it states the answer, and a teacher that copies
   has nothing to teach.
2. Both states are divided by the teacher's deviation before the distance, not the distance after:
   a small decoder's states begin near 0.02, where smooth-L1 is quadratic and would vanish.
3. From scratch, a student that at once has only thoughts had 4% after 500 steps beside a teacher of
   59%, so it may have COCONUT's curriculum: at first its thoughts stand for one step and the rest
   stays text. Whether that helps is not known: no such run was finished. Two stages are plain CODI.
4. The question is read once; teacher and student continue from the same keys and values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from trainer.corpus import Batch, Example, Ids, TextFormat, make_batch
from trainer.curriculum import THOUGHT_RATE, Stage
from trainer.thinking import (
    Prefix,
    add_thoughts,
    identity,
    read_out,
    read_prompt,
    think,
    token_loss,
)

LAYOUT = TextFormat(question_suffix="", answer_prefix="The answer is: ")


def codi_stages(stage_steps: Sequence[int], thoughts: int) -> tuple[Stage, ...]:
    """Plan a teacher-only beginning, perhaps a student's curriculum, then thoughts only."""
    teacher, *middle, joint = stage_steps
    return (
        Stage("teacher", teacher, 0, 0, is_text=True),
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
    )


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

    def loss(
        self,
        model: PreTrainedModel,
        projection: nn.Module | None,
        stage: int,
        examples: Sequence[Example],
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:
        """Return the three losses of one batch and their sum."""
        teacher = self._teacher_batch(examples)
        if stage == 0:
            loss = token_loss(think(model, teacher, identity), teacher.labels)
            return {"loss": loss, "teacher": loss.detach()}
        assert projection is not None
        chosen = stage
        if stage > 1 and rng.random() < self.review_share:
            chosen = int(rng.integers(1, stage))
        student = self._student_batch(self.stages[chosen], examples)
        shared = read_prompt(model, teacher.prompt)
        own = shared.fork()
        told = model.base_model(
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
        own = add_thoughts(model, own, student.thoughts, projection)
        thought = model.base_model(
            input_ids=student.inputs,
            past_key_values=own.cache,
            use_cache=True,
            output_hidden_states=True,
        )
        teacher_loss = token_loss(read_out(model, told.last_hidden_state), teacher.labels)
        student_loss = token_loss(read_out(model, thought.last_hidden_state), student.labels)
        rows = torch.arange(len(examples))
        ours = self._before_answer(self.stages[chosen], examples)
        theirs = self._before_answer(self.stages[0], examples)
        distance = hidden_distance(
            [layer[rows, ours] for layer in thought.hidden_states[1:]],
            [layer[rows, theirs] for layer in told.hidden_states[1:]],
        )
        return {
            "loss": teacher_loss + student_loss + self.gamma * distance,
            "teacher": teacher_loss.detach(),
            "student": student_loss.detach(),
            "distance": distance.detach(),
        }

    def examination(self, stage: int, examples: Sequence[Example]) -> Batch:
        """Lay out examples for the measure of a stage: the student's, once there is one."""
        if stage == 0:
            return self._teacher_batch(examples)
        return self._student_batch(self.stages[stage], examples)

    def _teacher_batch(self, examples: Sequence[Example]) -> Batch:
        targets = [_target(self.stages[0], example) for example in examples]
        return make_batch([e.question for e in examples], targets, None, 0)

    def _student_batch(self, stage: Stage, examples: Sequence[Example]) -> Batch:
        prompts = [(*e.question, self.start) for e in examples]
        targets = [_target(stage, example) for example in examples]
        return make_batch(prompts, targets, self.end, stage.thoughts)

    def _before_answer(self, stage: Stage, examples: Sequence[Example]) -> Tensor:
        # Inputs are shifted by one, so this index is that of the answer prefix's last token.
        lengths = [len(_target(stage, e)) - len(e.answer) + self.prefix_length for e in examples]
        return torch.tensor(lengths)


def _target(stage: Stage, example: Example) -> Ids:
    kept = () if stage.replaced is None else example.steps[stage.replaced : -1]
    return (*(token for line in kept for token in line), *example.answer)
