"""Backbone runs of a few steps: their settings, a recipe that fails, and the weights they export."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.backbone.config import BackboneConfig
from trainer.backbone.curriculum import Curriculum, Stage
from trainer.data.corpus import Batch, Example


def run_config(decoder: str, recipe: str = "coconut", **changes: Any) -> BackboneConfig:
    """Settings of a run of a few steps, from a folder with a gpt2 and a llama."""
    base = BackboneConfig(
        recipe=recipe,
        stage_steps={"coconut": (3, 3, 3), "codi": (3, 2, 3), "cot": (6,)}[recipe],
        init=f"{decoder}/{'llama' if recipe == 'codi' else 'gpt2'}",
        train_problems=60,
        validation_problems=4,
        test_problems=4,
        settle_steps=2,
        codi_thoughts=2,
        projection_hidden=8,
        batch=4,
        log_every=2,
        examine_every=4,
        checkpoint_every=2,
    )
    return replace(base, **changes)


@dataclass(frozen=True)
class Failing:
    """A recipe whose n-th batch fails: the process is killed, or loss or gradient are not finite."""

    recipe: Curriculum
    limit: int
    failure: str = "kill"
    calls: list[int] = field(default_factory=list)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.recipe.stages

    def loss(
        self,
        model: PreTrainedModel,
        projection: nn.Module | None,
        stage: int,
        examples: Sequence[Example],
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:
        self.calls.append(stage)
        losses = self.recipe.loss(model, projection, stage, examples, rng)
        if len(self.calls) == self.limit:
            if self.failure == "kill":
                raise KeyboardInterrupt
            # √0 is finite and its derivative is not.
            zero = next(model.parameters()).sum() * 0.0
            bad = {"loss": zero * torch.nan, "gradient": zero.sqrt()}[self.failure]
            losses["loss"] = losses["loss"] + bad
        return losses

    def examination(self, stage: int, examples: Sequence[Example]) -> Batch:
        return self.recipe.examination(stage, examples)

    def exact_forced(
        self, model: PreTrainedModel, batch: Batch, examples: Sequence[Example]
    ) -> Tensor:
        return self.recipe.exact_forced(model, batch, examples)


def exported_weights(out: Path) -> dict[str, Tensor]:
    """Tensors of the exported reasoner: its weights or those of its adapter, and the projection's."""
    whole, adapter = (out / "reasoner" / f"{name}model.safetensors" for name in ("", "adapter_"))
    tensors = load_file(whole if whole.exists() else adapter)
    extra = out / "reasoner" / "projection.safetensors"
    return {**tensors, **(load_file(extra) if extra.exists() else {})}
