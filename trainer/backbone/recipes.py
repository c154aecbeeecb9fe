"""The kinds of backbone training behind one interface: the plan, the loss, and the measure."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.backbone import coconut, codi
from trainer.backbone.config import BackboneConfig
from trainer.backbone.step_codes import StepCodes
from trainer.data.corpus import Batch, Example, TextFormat


class Recipe(Protocol):
    """What differs between the kinds of training."""

    @property
    def stages(self) -> tuple[coconut.Stage, ...]:
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
    return codi.LAYOUT if config.recipe == "codi" else coconut.LAYOUT


def build_recipe(
    config: BackboneConfig, start: int, end: int, prefix_length: int, codes: StepCodes | None
) -> Recipe:
    """Return the recipe of a run; `prefix_length` counts the tokens of the answer prefix."""
    if config.recipe == "codi":
        if codes is None:
            stages = codi.codi_stages(config.stage_steps, config.settle_steps, config.codi_thoughts)
        else:
            stages = codi.supervised_stages(
                config.stage_steps, config.settle_steps, config.supervised_steps
            )
        return codi.Distillation(
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
        stages = coconut.text_stages(sum(config.stage_steps))
    elif codes is not None:
        stages = coconut.supervised_stages(
            config.stage_steps, config.settle_steps, config.supervised_steps
        )
    elif config.with_thoughts:
        stages = coconut.coconut_stages(
            config.stage_steps, config.settle_steps, config.thoughts_per_step
        )
    else:
        stages = coconut.control_stages(config.stage_steps, config.settle_steps)
    return coconut.Curriculum(stages, start, end, config.review_share, codes)
