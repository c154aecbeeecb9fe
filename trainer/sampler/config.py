"""Settings of sampler training: they decide what a run computes, and are saved with its sampler.

The defaults of the fields are the paper's; the preset `default` holds this project's, whose reasons
are listed in trainer/sampler/loop.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Interval, Le
from typing_extensions import Doc

from latent.folders import LOG_STD_FLOOR
from trainer.runs.settings import Settings

__all__ = ["PRESETS", "SamplerConfig"]

_Count = Annotated[int, Ge(1)]
_NotNegative = Annotated[float, Ge(0)]
_Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True)
class SamplerConfig(Settings):
    """Settings of one run; `gts train sampler --set name=value` changes any of them."""

    EXCLUSIVE: ClassVar[tuple[str, ...]] = ("steps", "epochs")

    # Reward
    objective: Annotated[
        Literal["mean", "pass@k"],
        Doc("mean (reward of a trajectory), or pass@k (chance that one of k is right)."),
    ] = "mean"
    k: Annotated[_Count, Doc("k of the pass@k objective.")] = 8
    r0: Annotated[_Positive, Doc("Reward of a right answer (wrong: −r0), mean objective.")] = 1.0
    alpha: Annotated[
        _NotNegative, Doc("Weight α of the confidence shaping; 0 rewards accuracy only.")
    ] = 0.2
    tau: Annotated[_Positive, Doc("Temperature τ of the confidence shaping, ±tanh(z/τ).")] = 1.0
    sigma_floor: Annotated[
        _NotNegative, Doc("Lower bound on the σ that a group's rewards are divided by.")
    ] = 0.0
    skip_uniform_groups: Annotated[
        bool, Doc("Ignore groups whose trajectories are all right or all wrong.")
    ] = False
    # Rollouts
    screen: Annotated[
        int,
        Ge(0),
        Doc("First draw so many trajectories of each question; omit those always or never right."),
    ] = 0
    prompts: Annotated[_Count, Doc("Questions per step.")] = 32
    group_size: Annotated[int, Ge(2), Doc("Trajectories per question.")] = 32
    steps: Annotated[_Count | None, Doc("Training steps.")] = 10_000
    epochs: Annotated[
        Annotated[float, Interval(gt=0, le=1e6)] | None,
        Doc("Passes over the questions, instead of steps."),
    ] = None
    sites: Annotated[_Count | None, Doc("Thoughts to perturb, from the first; null: all.")] = None
    log_std_bias: Annotated[
        float, Interval(gt=-20, le=5), Doc("log σ of the untrained sampler, above the floor.")
    ] = 0.0
    log_std_floor: Annotated[
        float, Interval(ge=-20, lt=5), Doc("Lowest log σ; lower it for small thoughts.")
    ] = LOG_STD_FLOOR
    directions: Annotated[
        int,
        Ge(0),
        Doc(
            "Perturb along so many principal directions of the thoughts; 0: along every dimension."
        ),
    ] = 0
    start: Annotated[
        Literal["constant", "vocabulary"],
        Doc(
            "σ before training: constant, or fitted to the spread of the tokens that the vocabulary "
            "head expects, times exp(log_std_bias)."
        ),
    ] = "constant"
    # Optimisation
    lr: Annotated[float, Interval(gt=0, le=1), Doc("Peak learning rate of Adam.")] = 1e-4
    warmup: Annotated[int, Ge(0), Doc("Steps of linear warm-up.")] = 100
    decay: Annotated[
        Literal["none", "cosine"],
        Doc("Learning rate after the warm-up: none (constant) or cosine (to 0)."),
    ] = "none"
    gradient_clip: Annotated[_Positive, Doc("Largest gradient norm.")] = 1.0
    updates: Annotated[_Count, Doc("Updates from each batch of trajectories.")] = 1
    ratio: Annotated[
        Literal["ema", "old"],
        Doc("Denominator of the importance ratio: ema (reference) or old (rollout policy)."),
    ] = "ema"
    clip: Annotated[
        Literal["wide", "ppo"],
        Doc("wide (log-ratio to ±20) or ppo (ratio to 1 ± epsilon_c; needs ratio=old)."),
    ] = "wide"
    epsilon_c: Annotated[float, Interval(gt=0, lt=1), Doc("Clipping range of clip=ppo.")] = 0.2
    ema_decay: Annotated[
        float, Interval(ge=0, lt=1), Doc("Decay of the EMA reference, per step.")
    ] = 0.999
    beta: Annotated[_NotNegative, Doc("Weight β of the KL to the EMA reference.")] = 0.001
    # Validation
    validation_size: Annotated[_Count, Doc("Questions held out for validation.")] = 256
    validation_lanes: Annotated[_Count, Doc("Trajectories per validation question.")] = 64
    validation_budget: Annotated[
        int, Ge(2), Doc("N of the validation pass@N that chooses the sampler.")
    ] = 32
    validation_every: Annotated[_Count, Doc("Steps between validations.")] = 100
    patience: Annotated[_Count, Doc("Stop after so many validations without a better pass@N.")] = 20
    seed: Annotated[int, Ge(0), Le(2**63 - 1), Doc("Seed of weights, order and noise.")] = 0

    def relations(self) -> Sequence[tuple[str, bool, str]]:
        """Conditions between fields."""
        lanes = self.validation_lanes
        return (
            (
                "log_std_bias",
                self.log_std_bias > self.log_std_floor,
                f"above log_std_floor ({self.log_std_floor})",
            ),
            (
                "start",
                self.start == "constant" or self.directions > 0,
                "constant unless directions are given",
            ),
            ("screen", self.screen != 1, "0, or at least 2"),
            ("k", self.k <= self.group_size, f"at most group_size ({self.group_size})"),
            ("steps", (self.steps is None) != (self.epochs is None), "given, or epochs, not both"),
            ("clip", self.clip == "wide" or self.ratio == "old", "wide unless ratio is old"),
            (
                "validation_budget",
                self.validation_budget <= lanes,
                f"at most validation_lanes ({lanes})",
            ),
        )

    def step_count(self, problems: int) -> int:
        """Number of steps that the run makes with that many training questions."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(1, round(self.epochs * problems / self.prompts))


_PAPER = SamplerConfig()
PRESETS = {
    "paper": _PAPER,
    "default": replace(
        _PAPER,
        objective="pass@k",
        ratio="old",
        clip="ppo",
        sigma_floor=0.6,
        skip_uniform_groups=True,
        lr=3e-4,
        warmup=20,
        updates=2,
        decay="cosine",
        steps=1_000,
        validation_lanes=32,
        validation_every=50,
    ),
}
