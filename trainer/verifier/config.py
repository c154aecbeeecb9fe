"""Settings of verifier training: they decide what a run computes, and are saved with its verifier."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Interval, Le, MultipleOf
from typing_extensions import Doc

from trainer.runs.settings import Settings

__all__ = ["VerifierConfig"]

_Count = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class VerifierConfig(Settings):
    """Settings of one run; `gts train verifier --set name=value` changes any of them."""

    lanes: Annotated[int, Ge(2), Doc("Trajectories per training question.")] = 8
    hidden: Annotated[
        int, Ge(16), MultipleOf(16), Doc("Units of a layer, in whole blocks of 16.")
    ] = 384
    dropout: Annotated[float, Interval(ge=0, lt=1), Doc("Share of units dropped in training.")] = (
        0.1
    )
    epochs: Annotated[_Count, Doc("Passes over the questions that are learned from.")] = 10
    prompts: Annotated[_Count, Doc("Questions per step.")] = 64
    lr: Annotated[float, Interval(gt=0, le=1), Doc("Peak learning rate of AdamW.")] = 1e-3
    warmup: Annotated[int, Ge(0), Doc("Steps of linear warm-up.")] = 50
    weight_decay: Annotated[float, Ge(0), Doc("Weight decay of AdamW.")] = 0.05
    gradient_clip: Annotated[float, Gt(0), Doc("Largest gradient norm.")] = 1.0
    validation_size: Annotated[_Count, Doc("Questions held out to measure the votes.")] = 2000
    validation_lanes: Annotated[int, Ge(4), Doc("Trajectories per validation question.")] = 32
    seed: Annotated[int, Ge(0), Le(2**63 - 1), Doc("Seed of weights, order and noise.")] = 0
