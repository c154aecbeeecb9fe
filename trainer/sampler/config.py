"""One frozen configuration of sampler training; what is saved with a sampler and checked on resume.

The field defaults are the paper's; `default` holds ours, whose reasons stand in trainer/sampler/loop.py.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from latent.errors import InputError

__all__ = ["PRESETS", "SamplerConfig"]

Objective = Literal["mean", "pass@k"]
Clip = Literal["wide", "ppo"]
Ratio = Literal["ema", "old"]
Decay = Literal["none", "cosine"]


@dataclass(frozen=True)
class SamplerConfig:
    """Everything that decides what a training run computes."""

    # What is rewarded.
    objective: Objective = "mean"
    k: int = 8  # of the pass@k objective
    r0: float = 1.0  # the weight of being right, in the mean objective
    alpha: float = 0.2  # the weight of the confidence shaping; 0 is accuracy only
    tau: float = 1.0
    sigma_floor: float = 0.0  # the least σ that a group's rewards are divided by
    skip_uniform_groups: bool = False
    # What is drawn.
    prompts: int = 32
    group_size: int = 32
    steps: int | None = 10_000
    epochs: float | None = None  # instead of steps
    sites: int | None = None  # how many thoughts are perturbed; all of them by default
    log_std_bias: float = 0.0  # log σ before training
    # How the sampler follows.
    lr: float = 1e-4
    warmup: int = 100
    decay: Decay = "none"
    gradient_clip: float = 1.0
    updates: int = 1  # passes over each batch of trajectories
    ratio: Ratio = "ema"
    clip: Clip = "wide"
    epsilon_c: float = 0.2
    ema_decay: float = 0.999
    beta: float = 0.001
    # When it is measured, and when that is enough.
    validation_size: int = 256
    validation_lanes: int = 64
    validation_budget: int = 32
    validation_every: int = 100
    patience: int = 20  # validations without a better pass@N
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(SamplerConfig).items():
            value = getattr(self, name)
            if not _has_kind(value, kind):
                raise InputError(f"{name} must be {_kind_name(kind)}, got {value!r}", param=name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{name} must be a finite number, got {value!r}", param=name)
        for name, is_right, wanted in self._checks():
            if not is_right:
                raise InputError(
                    f"{name} must be {wanted}, got {getattr(self, name)!r}", param=name
                )

    def _checks(self) -> tuple[tuple[str, bool, str], ...]:
        return (
            ("group_size", self.group_size >= 2, "at least 2"),
            ("k", 1 <= self.k <= self.group_size, f"1 … group_size ({self.group_size})"),
            ("r0", self.r0 > 0, "above 0"),
            ("alpha", self.alpha >= 0, "0 or more"),
            ("tau", self.tau > 0, "above 0"),
            ("sigma_floor", self.sigma_floor >= 0, "0 or more"),
            ("prompts", self.prompts >= 1, "at least 1"),
            ("steps", (self.steps is None) != (self.epochs is None), "given, or epochs, not both"),
            ("steps", self.steps is None or self.steps >= 1, "at least 1"),
            ("epochs", self.epochs is None or 0 < self.epochs <= 1e6, "above 0, to 1e6"),
            ("sites", self.sites is None or self.sites >= 1, "at least 1"),
            ("log_std_bias", -2 < self.log_std_bias <= 5, "above −2 (the floor of log σ), to 5"),
            ("lr", 0 < self.lr <= 1, "above 0, to 1"),
            ("warmup", self.warmup >= 0, "0 or more"),
            ("gradient_clip", self.gradient_clip > 0, "above 0"),
            ("updates", self.updates >= 1, "at least 1"),
            ("clip", self.clip == "wide" or self.ratio == "old", "wide unless ratio is old"),
            ("epsilon_c", 0 < self.epsilon_c < 1, "between 0 and 1"),
            ("ema_decay", 0 <= self.ema_decay < 1, "from 0 to below 1"),
            ("beta", self.beta >= 0, "0 or more"),
            ("validation_size", self.validation_size >= 1, "at least 1"),
            (
                "validation_budget",
                2 <= self.validation_budget <= self.validation_lanes,
                f"2 … validation_lanes ({self.validation_lanes})",
            ),
            ("validation_every", self.validation_every >= 1, "at least 1"),
            ("patience", self.patience >= 1, "at least 1"),
            ("seed", 0 <= self.seed < 2**63, "0 … 2^63 − 1"),
        )

    def step_count(self, problems: int) -> int:
        """Give how many updates the run makes on that many problems."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(1, round(self.epochs * problems / self.prompts))

    def to_json(self) -> dict[str, Any]:
        """Give what config.json holds."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SamplerConfig":
        """Read config.json, naming unknown fields."""
        unknown = sorted(set(data) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise InputError(f"unknown training settings: {', '.join(unknown)}", param=unknown[0])
        return cls(**data)

    def changed(self, settings: list[str]) -> "SamplerConfig":
        """Apply `field=value` settings; giving epochs takes steps away, and the reverse."""
        data = self.to_json()
        for setting in settings:
            name, equals, text = setting.partition("=")
            if not equals or name not in data:
                known = ", ".join(data)
                raise InputError(f"{setting!r} is not field=value with a field of: {known}")
            data[name] = _parse(text)
            if name in ("steps", "epochs") and data[name] is not None:
                data["epochs" if name == "steps" else "steps"] = None
        return SamplerConfig.from_json(data)


def _parse(text: str) -> Any:
    """Read a value as JSON ("0.1", "true", "null"), else as the text it is."""
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text


def _has_kind(value: Any, kind: Any) -> bool:
    options = get_args(kind)
    if options and all(isinstance(option, str) for option in options):
        return value in options
    allowed = options or (kind,)
    if isinstance(value, bool):
        return bool in allowed
    return isinstance(value, allowed) or (float in allowed and isinstance(value, int))


def _kind_name(kind: Any) -> str:
    options = get_args(kind)
    if options and all(isinstance(option, str) for option in options):
        return " or ".join(options)
    return " or ".join("null" if k is type(None) else k.__name__ for k in options or (kind,))


_PAPER = SamplerConfig()
PRESETS = {
    "paper": _PAPER,
    "default": dataclasses.replace(
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
