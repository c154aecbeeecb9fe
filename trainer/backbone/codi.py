"""CODI's loss: self-distillation of a teacher that reads the steps into a student that thinks.

loss = teacher's cross-entropy on steps and answer + student's on the answer + gamma * distance of
the hidden states, in all layers, at the token before the answer.

Readings, where the description is open:
1. The last step is left out of the teacher's text: it states the answer, which the teacher would
   only copy.
2. Both states are divided by the teacher's standard deviation before the distance, not the distance
   after: a small decoder's states begin near 0.02, where smooth-L1 is quadratic and would vanish.
3. From scratch, a student that at once has only thoughts had 4% after 500 steps, and its teacher
   59%. It may have COCONUT's curriculum (at first its thoughts stand for one step and the rest stays
   text), or step supervision (step_codes.py), as the embedded one had. Two stages are plain CODI.
4. Dropout comes last, at a low rate, as in COCONUT's plan (curriculum.py), and on what the projection
   reads, which is where a CODI has dropout (latent/dropout.py).
5. The question is prefilled once; teacher and student continue from the same keys and values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from trainer.backbone.curriculum import Curriculum, Stage
from trainer.backbone.step_codes import THOUGHTS_PER_STEP, code_targets
from trainer.backbone.thinking import (
    Prefix,
    add_thoughts,
    identity,
    read_out,
    read_prompt,
    think,
    token_loss,
)
from trainer.data.corpus import Batch, Example, Ids, TextFormat

TEACHER = Stage("teacher", 0, 0, 0, is_text=True)
LAYOUT = TextFormat(question_suffix="", answer_prefix="The answer is: ")


def hidden_distance(student: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
    """Mean smooth-L1 distance over layers, in units of the teacher's standard deviation.

    Each tensor is (B, D). No gradient flows to the teacher.
    """
    distances = []
    for state, goal in zip(student, teacher, strict=True):
        target = goal.detach()
        scale = target.std().clamp(min=1e-6)
        distances.append(F.smooth_l1_loss(state / scale, target / scale))
    return torch.stack(distances).mean()


@dataclass(frozen=True)
class Distillation(Curriculum):
    """The joint loss of teacher and student, in one model."""

    prefix_length: int = 0  # tokens of the answer prefix
    gamma: float = 1.0
    dropout: float = 0.0

    def loss(
        self,
        model: PreTrainedModel,
        projection: nn.Module | None,
        stage: int,
        examples: Sequence[Example],
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:
        """Loss of one batch and its parts."""
        teacher = self.batch(TEACHER, examples)
        if self.stages[stage].is_text:
            loss = token_loss(think(model, teacher, identity), teacher.labels)
            return {"loss": loss, "teacher": loss.detach()}
        assert projection is not None
        chosen = self.stages[self._review(stage, rng)]
        student = self.batch(chosen, examples)
        shared = read_prompt(model, teacher.prompt)
        prefix = shared.fork()
        taught = model.base_model(
            input_ids=teacher.inputs,
            past_key_values=shared.cache,
            use_cache=True,
            output_hidden_states=True,
        )
        # The student's prompt is the shared question, its last token, then <|start-latent|>.
        lead = model.base_model(
            input_ids=student.prompt[:, -2:], past_key_values=prefix.cache, use_cache=True
        )
        prefix = Prefix(prefix.cache, lead.last_hidden_state[:, -1:])
        targets = None
        if self.codes is not None:
            targets = code_targets(examples, student.thoughts // THOUGHTS_PER_STEP)
        if chosen.is_forced:
            assert self.codes is not None
            assert targets is not None
            codes = self.codes.results(targets.results)
            thoughts, layers = _answer_forced(model, prefix, student, codes)
        else:
            rate = self.dropout if chosen.has_dropout else 0.0
            thoughts, layers = _answer(model, prefix, student, projection, rate)
        teacher_loss = token_loss(read_out(model, taught.last_hidden_state), teacher.labels)
        student_loss = token_loss(read_out(model, layers[-1]), student.labels)
        rows = torch.arange(len(examples))
        student_at = self._before_answer(chosen, examples)
        teacher_at = self._before_answer(TEACHER, examples)
        distance = hidden_distance(
            [layer[rows, student_at] for layer in layers],
            [layer[rows, teacher_at] for layer in taught.hidden_states[1:]],
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
        """Stage of a batch: a share of the batches repeats an earlier stage of the student."""
        earlier = [n for n in range(stage) if not self.stages[n].is_text]
        if earlier and rng.random() < self.review_share:
            return earlier[int(rng.integers(len(earlier)))]
        return stage

    def target(self, example: Example, stage: Stage) -> Ids:
        """As the curriculum's, without the last step."""
        return super().target(replace(example, steps=example.steps[:-1]), stage)

    def _before_answer(self, stage: Stage, examples: Sequence[Example]) -> Tensor:
        # Index of the answer prefix's last token: the inputs are shifted by one.
        lengths = [
            len(self.target(e, stage)) - len(e.answer) + self.prefix_length for e in examples
        ]
        return torch.tensor(lengths)


def _answer(
    model: PreTrainedModel, prefix: Prefix, student: Batch, projection: nn.Module, dropout: float
) -> tuple[Tensor, Sequence[Tensor]]:
    """Think, then read the target: thoughts (B, K, D), and the target states of each layer (B, T, D)."""
    prefix = add_thoughts(
        model, prefix, student.thoughts, lambda state: projection(F.dropout(state, dropout))
    )
    output = model.base_model(
        input_ids=student.inputs,
        past_key_values=prefix.cache,
        use_cache=True,
        output_hidden_states=True,
    )
    assert prefix.thoughts is not None
    return prefix.thoughts, output.hidden_states[1:]


def _answer_forced(
    model: PreTrainedModel, prefix: Prefix, student: Batch, codes: Tensor
) -> tuple[Tensor, Sequence[Tensor]]:
    """As `_answer`, with codes (B, K, D) fed in place of the thoughts, in one pass."""
    embed = model.get_input_embeddings()
    output = model.base_model(
        inputs_embeds=torch.cat((codes, embed(student.inputs)), dim=1),
        past_key_values=prefix.cache,
        use_cache=True,
        output_hidden_states=True,
    )
    count = codes.shape[1]
    thoughts = torch.cat((prefix.state, output.last_hidden_state[:, : count - 1]), dim=1)
    return thoughts, [layer[:, count:] for layer in output.hidden_states[1:]]
