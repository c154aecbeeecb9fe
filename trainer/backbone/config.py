"""The settings of a backbone run, what they must satisfy, and the learning rate they imply."""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from latent.errors import InputError
from trainer.backbone.model import Architecture

OPTIMIZERS = ("adamw", "muon")
RECIPES = ("coconut", "codi", "cot")


@dataclass(frozen=True)
class BackboneConfig:
    """Everything that decides the result of a backbone run."""

    recipe: str
    stage_steps: tuple[int, ...]
    settle_steps: int = 500  # coconut and codi: the last steps, with dropout
    architecture: Architecture = field(default_factory=Architecture)
    init: str | None = None
    data: str = "embedded:train"
    validation: str = "embedded:validation"
    test: str | None = "embedded:test"
    train_problems: int = 150_000
    validation_problems: int = 500
    test_problems: int = 1000
    thoughts_per_step: int = 2
    with_thoughts: bool = True
    supervised_steps: int = 0  # 0: thoughts learn from the answer alone
    codi_thoughts: int = 6
    projection_hidden: int = 256
    gamma: float = 1.0
    review_share: float = 0.15
    batch: int = 32
    optimizer: str = "muon"  # muon or adamw
    learning_rate: float = 4e-3
    final_rate_share: float = 0.03
    warmup_steps: int = 100
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    seed: int = 0
    log_every: int = 50
    examine_every: int = 500
    checkpoint_every: int = 250

    def as_plain(self) -> dict[str, Any]:
        """Return the settings as JSON and checkpoints hold them."""
        return {**asdict(self), "stage_steps": list(self.stage_steps)}


def check_config(config: BackboneConfig) -> None:
    """Refuse what can't be trained, naming the option."""
    if config.recipe not in RECIPES:
        raise InputError(f"recipe is {config.recipe!r}; it must be one of {', '.join(RECIPES)}")
    given = len(config.stage_steps)
    if config.supervised_steps:
        _check_supervised(config)
    elif config.recipe == "codi" and given < 2:
        raise InputError(
            f"stage_steps has {given} entries; codi needs 2 or more: teacher, perhaps one for each "
            "further step replaced by thoughts, thoughts only"
        )
    elif config.recipe == "coconut" and given < 3:
        raise InputError(
            f"stage_steps has {given} entries; coconut needs 3 or more: text, one for each "
            "further step replaced by thoughts, thoughts only"
        )
    # What --init brings need not be learned again.
    needed = config.stage_steps[1:] if config.init and given > 1 else config.stage_steps
    if min(needed, default=0) < 1 or config.stage_steps[0] < 0:
        raise InputError("every entry of stage_steps must be 1 or more (with --init, the first 0)")
    if config.optimizer not in OPTIMIZERS:
        raise InputError(f"optimizer is {config.optimizer!r}; it must be adamw or muon")
    if config.settle_steps < 0:
        raise InputError(f"settle_steps is {config.settle_steps}; it must be 0 or more")
    _check_sizes(config)


def _check_sizes(config: BackboneConfig) -> None:
    shape = config.architecture
    counts = {
        "width": shape.width,
        "layers": shape.layers,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "mlp_width": shape.mlp_width,
        "projection": config.projection_hidden,
        "thoughts": config.codi_thoughts,
        "thoughts_per_step": config.thoughts_per_step,
        "batch": config.batch,
        "problems": config.train_problems,
    }
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more", param=name)
    if shape.family == "llama" and shape.heads % shape.kv_heads:
        raise InputError(
            f"heads {shape.heads} is not a multiple of kv_heads {shape.kv_heads}", param="kv_heads"
        )
    if not 0.0 <= shape.dropout < 1.0:
        raise InputError(f"dropout is {shape.dropout}; it must be from 0 to below 1")
    if not 0.0 < config.learning_rate < math.inf:
        raise InputError(f"lr is {config.learning_rate}; it must be above 0", param="lr")
    if config.seed < 0:
        raise InputError(f"seed is {config.seed}; it must be 0 or more", param="seed")


def _check_supervised(config: BackboneConfig) -> None:
    if config.supervised_steps < 0:
        raise InputError(f"supervised_steps is {config.supervised_steps}; it must be 0 or more")
    if config.recipe == "cot" or not config.with_thoughts:
        raise InputError("supervised_steps needs thoughts: leave it out")
    if len(config.stage_steps) != 3:
        raise InputError(
            f"stage_steps has {len(config.stage_steps)} entries; with supervised_steps it needs 3: "
            "text, steps told, thoughts only"
        )


def learning_rate(config: BackboneConfig, within: int, steps: int, rate_share: float) -> float:
    """Return the rate of a step of a stage: linear warm-up, then a cosine to the final share."""
    warm = min(1.0, (within + 1) / max(1, min(config.warmup_steps, steps // 5)))
    share = config.final_rate_share
    cosine = share + (1 - share) * 0.5 * (1 + math.cos(math.pi * within / steps))
    return config.learning_rate * rate_share * warm * cosine


def fit_plan(config: BackboneConfig, planned_seconds: float, minutes: float) -> BackboneConfig:
    """Scale the steps of all stages alike so that together they take about `minutes`.

    A stage that was left out stays out.
    """
    if not 0.0 < minutes < math.inf:
        raise InputError(f"minutes is {minutes}; it must be above 0", param="minutes")
    share = minutes * 60 / planned_seconds

    def fitted(steps: int) -> int:
        return max(1, round(steps * share)) if steps else 0

    return replace(
        config,
        stage_steps=tuple(map(fitted, config.stage_steps)),
        settle_steps=fitted(config.settle_steps),
    )
