"""Settings of backbone training, and the schedules that follow from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval, MinLen
from typing_extensions import Doc

from latent.errors import InputError
from trainer.runs.settings import Settings

__all__ = [
    "RECIPE_DEFAULTS",
    "Architecture",
    "BackboneConfig",
    "fit_plan",
    "learning_rate",
    "recipe_config",
]

_Count = Annotated[int, Ge(1)]
_NotNegative = Annotated[int, Ge(0)]


@dataclass(frozen=True)
class Architecture(Settings):
    """Sizes of a decoder made from scratch."""

    family: Annotated[Literal["gpt2", "llama"], Doc("Decoder family.")] = "gpt2"
    width: Annotated[_Count, Doc("Width of the decoder.")] = 128
    layers: Annotated[_Count, Doc("Layers of the decoder.")] = 4
    heads: Annotated[_Count, Doc("Attention heads.")] = 4
    kv_heads: Annotated[_Count, Doc("Key-value heads (llama).")] = 2
    mlp_width: Annotated[_Count, Doc("Width of the SwiGLU layer (llama).")] = 344
    dropout: Annotated[
        float,
        Interval(ge=0, lt=1),
        Doc("Dropout in the last stage: of a GPT-2, or of what CODI's projection reads."),
    ] = 0.1
    positions: Annotated[_Count, Doc("Longest sequence.")] = 512
    vocabulary: Annotated[_Count, Doc("Tokens of the tokenizer.")] = 1600

    def relations(self) -> Sequence[tuple[str, bool, str]]:
        """Conditions between fields."""
        is_grouped = self.family == "gpt2" or self.heads % self.kv_heads == 0
        return (
            ("width", self.width % self.heads == 0, f"a multiple of heads ({self.heads})"),
            ("kv_heads", is_grouped, f"a divisor of heads ({self.heads})"),
        )


@dataclass(frozen=True)
class BackboneConfig(Settings):
    """Everything that decides the result of a backbone run."""

    recipe: Annotated[Literal["coconut", "codi", "cot"], Doc("Kind of reasoner.")]
    stage_steps: Annotated[
        tuple[_NotNegative, ...],
        Doc("Steps of each stage, with commas; 0 for the first with --init."),
    ]
    settle_steps: Annotated[_NotNegative, Doc("Last steps, with dropout; 0: none.")] = 500
    architecture: Architecture = field(default_factory=Architecture)
    init: Annotated[
        str | None,
        Doc("What to start from: a folder, or package:NAME with a GGUF file in that package."),
    ] = None
    lora_rank: Annotated[
        _NotNegative,
        Doc("Train a low-rank adapter of the decoder from --init; 0: all of its weights."),
    ] = 0
    bare_steps: Annotated[
        bool, Doc("Write a step as 12+5=17, which is fewer tokens than <<12+5=17>>.")
    ] = False
    calculator: Annotated[
        bool,
        Doc("The results of equations are computed, not generated: they are no part of the loss."),
    ] = False
    precision: Annotated[
        Literal["fp32", "bf16"],
        Doc("Of the matrix products in training; bf16 is faster where the device has it."),
    ] = "fp32"
    data: Annotated[
        tuple[str, ...],
        MinLen(1),
        Doc("A data file or embedded[:split], drills, everyday; may be repeated, as PATH=WEIGHT."),
    ] = ("embedded:train",)
    redraw_numbers: Annotated[
        bool, Doc("Draw the numbers of the data anew again and again, with their equations.")
    ] = False
    distractors: Annotated[
        float,
        Interval(ge=0, le=1),
        Doc("Share of drawn problems that get a sentence of another one, which does not matter."),
    ] = 0.0
    exclude: Annotated[
        tuple[str, ...],
        Doc(
            "Test files whose questions, numbers masked, are left out of the training; repeatable."
        ),
    ] = ()
    validation: Annotated[
        str,
        Doc("Data for the measure during training; held-out: a part of the training templates."),
    ] = "embedded:validation"
    test: Annotated[str | None, Doc("Data for the final measure; empty: none.")] = "embedded:test"
    train_problems: Annotated[_Count, Doc("How many rows of each data source to use.")] = 150_000
    max_tokens: Annotated[
        _NotNegative, Doc("Leave out problems of more tokens; 0: only what the decoder can't take.")
    ] = 0
    validation_problems: Annotated[_Count, Doc("How many rows to validate on.")] = 500
    test_problems: Annotated[_Count, Doc("How many rows to test on.")] = 1000
    thoughts_per_step: Annotated[_Count, Doc("Thoughts for a replaced step.")] = 2
    with_thoughts: Annotated[bool, Doc("--no-thoughts trains the control.")] = True
    supervised_steps: Annotated[
        _NotNegative, Doc("Teach the thoughts up to so many equations, two thoughts each; 0: none.")
    ] = 0
    spelled_thoughts: Annotated[
        bool, Doc("Teach each thought a token of the equations, in place of the distillation.")
    ] = False
    markers: Annotated[
        str | None,
        Doc("Tokens of the vocabulary of --init that begin and end the thoughts: START,END."),
    ] = None
    codi_thoughts: Annotated[_Count, Doc("Thoughts before the answer.")] = 6
    projection_hidden: Annotated[_Count, Doc("Hidden width of the projection.")] = 256
    gamma: Annotated[float, Ge(0), Doc("Weight of the distillation.")] = 1.0
    review_share: Annotated[
        float, Interval(ge=0, le=1), Doc("Share of batches that repeat an earlier stage.")
    ] = 0.15
    batch: Annotated[_Count, Doc("Problems in a batch.")] = 32
    optimizer: Annotated[
        Literal["adamw", "muon"], Doc("muon (from scratch) or adamw (pretrained).")
    ] = "muon"
    learning_rate: Annotated[float, Gt(0), Doc("Highest learning rate of each stage.")] = 4e-3
    final_rate_share: Annotated[
        float,
        Interval(ge=0, le=1),
        Doc("Last learning rate of a stage, as a share of its highest."),
    ] = 0.03
    warmup_steps: Annotated[_NotNegative, Doc("Steps of linear warm-up in each stage.")] = 100
    weight_decay: Annotated[float, Ge(0), Doc("Weight decay.")] = 0.01
    clip_norm: Annotated[float, Gt(0), Doc("Largest gradient norm.")] = 1.0
    seed: Annotated[_NotNegative, Doc("Decides weights, batches and dropout.")] = 0
    log_every: Annotated[_Count, Doc("Steps between lines of the log.")] = 50
    examine_every: Annotated[_Count, Doc("Steps between validations.")] = 500
    checkpoint_every: Annotated[_Count, Doc("Steps between checkpoints.")] = 250

    def relations(self) -> Sequence[tuple[str, bool, str]]:
        """Conditions between fields."""
        given, first = len(self.stage_steps), self.stage_steps[:1]
        is_supervised, is_codi = self.supervised_steps > 0, self.recipe == "codi"
        is_forced = is_supervised or self.spelled_thoughts
        # A decoder from --init can omit the first stage.
        required = self.stage_steps[1:] if self.init and given > 1 else self.stage_steps
        if self.spelled_thoughts:  # either stage may be a run of its own
            required = (max(self.stage_steps[1:], default=0),)
        return (
            ("lora_rank", not self.lora_rank or self.init is not None, "0 without init"),
            (
                "lora_rank",
                not self.lora_rank or self.optimizer == "adamw",
                "0 with the optimizer muon, which is for whole matrices; use adamw",
            ),
            (
                "calculator",
                not self.calculator
                or self.spelled_thoughts
                or (self.recipe == "cot" and self.bare_steps),
                "off unless the recipe is cot with bare_steps, or codi with spelled_thoughts",
            ),
            (
                "distractors",
                not self.distractors or self.redraw_numbers,
                "0 without redraw_numbers",
            ),
            (
                "supervised_steps",
                not is_supervised or (self.recipe != "cot" and self.with_thoughts),
                "0 without thoughts",
            ),
            (
                "spelled_thoughts",
                not self.spelled_thoughts or (is_codi and not is_supervised),
                "off unless the recipe is codi without supervised_steps",
            ),
            (
                "spelled_thoughts",
                not self.spelled_thoughts or self.init is not None,
                "off without init: it is for a decoder that can write equations",
            ),
            (
                "markers",
                self.markers is None or (self.init is not None and self.markers.count(",") == 1),
                "two tokens of the vocabulary of init with a comma between, as START,END",
            ),
            (
                "redraw_numbers",
                not (is_supervised and self.redraw_numbers),
                "off with supervised_steps, whose codes hold small numbers only",
            ),
            (
                "stage_steps",
                not is_forced or given == 3,
                "3 entries with supervised_steps or spelled_thoughts: text, codes or tokens in place of "
                "thoughts, thoughts only",
            ),
            (
                "stage_steps",
                is_forced or self.recipe == "cot" or given >= (2 if is_codi else 3),
                f"at least {'2 entries: teacher' if is_codi else '3 entries: text'}, one for each "
                "further step replaced by thoughts, thoughts only",
            ),
            (
                "stage_steps",
                bool(first) and min(required) >= 1,
                "1 or more in every entry (with --init, the first may be 0)",
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Values of all fields, as config.json and checkpoints hold them."""
        lists = {name: list(getattr(self, name)) for name in ("stage_steps", "data", "exclude")}
        return {**super().to_json(), **lists}


# Where a recipe's defaults differ from the fields'; `family` is the architecture's.
RECIPE_DEFAULTS: dict[str, dict[str, Any]] = {
    "coconut": {"stage_steps": (1400, 700, 700, 700, 2400)},
    "codi": {"stage_steps": (1300, 800, 1600), "learning_rate": 3e-3, "family": "llama"},
    "cot": {"stage_steps": (1400,)},
}


def recipe_config(recipe: str, **values: Any) -> BackboneConfig:
    """Settings of a recipe; those of the architecture are given beside the others."""
    values = {**RECIPE_DEFAULTS[recipe], **values}
    names = {field.name for field in fields(Architecture)} & values.keys()
    architecture = Architecture(**{name: values.pop(name) for name in names})
    return BackboneConfig(recipe=recipe, architecture=architecture, **values)  # type: ignore[arg-type]


def learning_rate(config: BackboneConfig, within: int, steps: int, rate_share: float) -> float:
    """Learning rate at step `within` of a stage: linear warm-up, then cosine to the final share."""
    warm = min(1.0, (within + 1) / max(1, min(config.warmup_steps, steps // 5)))
    share = config.final_rate_share
    cosine = share + (1 - share) * 0.5 * (1 + math.cos(math.pi * within / steps))
    return config.learning_rate * rate_share * warm * cosine


def fit_plan(config: BackboneConfig, planned_seconds: float, minutes: float) -> BackboneConfig:
    """Scale the steps of all stages by one factor so that together they take about `minutes`.

    A stage of 0 steps stays omitted.
    """
    if not 0.0 < minutes < math.inf:
        raise InputError(f"minutes must be above 0, got {minutes}", param="minutes")
    share = minutes * 60 / planned_seconds

    def fitted(steps: int) -> int:
        return max(1, round(steps * share)) if steps else 0

    return replace(
        config,
        stage_steps=tuple(map(fitted, config.stage_steps)),
        settle_steps=fitted(config.settle_steps),
    )
