"""Measures a backbone by teacher forcing: greedy decoding is right iff every label is the argmax."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from trainer.backbone.step_codes import THOUGHTS_PER_STEP, StepCodes, code_targets
from trainer.backbone.thinking import Feedback, is_exact, think, think_told
from trainer.data.corpus import Batch, Corpus, Example

ABLATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeroed": torch.zeros_like,
    "swapped": lambda thought: thought.roll(1, dims=0),  # a batch of one stays as it is
}


@dataclass(frozen=True)
class Examination:
    """The share of problems solved, in all and by number of steps."""

    accuracy: float
    by_steps: dict[int, float]
    problems: int


def describe(measured: Examination) -> str:
    """Say an accuracy in one line."""
    parts = " ".join(f"{steps}:{share:.2f}" for steps, share in measured.by_steps.items())
    return f"accuracy {measured.accuracy:.3f} of {measured.problems} (by steps {parts})"


@torch.no_grad()
def examine(
    model: PreTrainedModel,
    corpus: Corpus,
    lay_out: Callable[[Sequence[Example]], Batch],
    feedback: Feedback,
    ablation: str | None = None,
    told: StepCodes | None = None,
) -> Examination:
    """Return the accuracy of the deterministic trajectory; an ablation spoils every thought.

    With `told`, codes stand in the thoughts' places, and every step must be right as well.
    """
    alter = ABLATIONS[ablation] if ablation else None
    altered = (lambda state: alter(feedback(state))) if alter else feedback
    was_training = model.training
    model.train(False)
    right: defaultdict[int, list[bool]] = defaultdict(list)
    for examples in corpus.in_order(128):
        batch = lay_out(examples)
        if told is None:
            exact = is_exact(think(model, batch, altered), batch.labels)
        else:
            targets = code_targets(examples, batch.thoughts // THOUGHTS_PER_STEP)
            thinking = think_told(model, batch, told.results(targets.results))
            exact = is_exact(thinking.logits, batch.labels)
            exact &= told.is_right(thinking.thoughts, targets)
        for example, hit in zip(examples, exact.tolist(), strict=True):
            right[len(example.steps)].append(hit)
    model.train(was_training)
    hits = [hit for group in right.values() for hit in group]
    return Examination(
        accuracy=sum(hits) / len(hits),
        by_steps={count: sum(group) / len(group) for count, group in sorted(right.items())},
        problems=len(hits),
    )
