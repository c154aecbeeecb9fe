"""The kinds of backbone training behind one interface: the plan, the loss, and the measure."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer import curriculum, distill
from trainer.backbone_config import BackboneConfig
from trainer.corpus import Batch, Example, TextFormat
from trainer.step_codes import StepCodes


class Recipe(Protocol):
    """What differs between the kinds of training."""

    @property
    def stages(self) -> tuple[curriculum.Stage, ...]:
        """Return the plan."""

    def loss(
        self,
        model: PreTrainedModel,
        projection: nn.Module | None,
        stage: int,
        examples: Sequence[Example],
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:
        """Return `loss` and whatever else is worth logging."""

    def examination(self, stage: int, examples: Sequence[Example]) -> Batch:
        """Lay out examples for the measure of a stage."""


def layout_of(config: BackboneConfig) -> TextFormat:
    """Return how the recipe writes questions and answers."""
    return distill.LAYOUT if config.recipe == "codi" else curriculum.LAYOUT


def build_recipe(
    config: BackboneConfig, start: int, end: int, prefix_length: int, codes: StepCodes | None
) -> Recipe:
    """Return the recipe of a run; `prefix_length` counts the tokens of the answer prefix."""
    if config.recipe == "codi":
        if codes is None:
            stages = distill.codi_stages(
                config.stage_steps, config.settle_steps, config.codi_thoughts
            )
        else:
            stages = distill.supervised_stages(
                config.stage_steps, config.settle_steps, config.supervised_steps
            )
        return distill.Distillation(
            stages,
            start,
            end,
            prefix_length,
            config.gamma,
            config.review_share,
            config.architecture.dropout,
            codes,
        )
    if config.recipe == "cot":
        stages = curriculum.text_stages(sum(config.stage_steps))
    elif codes is not None:
        stages = curriculum.supervised_stages(
            config.stage_steps, config.settle_steps, config.supervised_steps
        )
    elif config.with_thoughts:
        stages = curriculum.coconut_stages(
            config.stage_steps, config.settle_steps, config.thoughts_per_step
        )
    else:
        stages = curriculum.control_stages(config.stage_steps, config.settle_steps)
    return curriculum.Curriculum(stages, start, end, config.review_share, codes)
