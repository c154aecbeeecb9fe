"""Writes what a finished sampler run leaves: the sampler with its JSON card, plots and a model card."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latent.files import write_text
from latent.store import SamplerCard, save_sampler
from trainer.runs.checkpoint import read_log
from trainer.runs.curves import Curve, CurvePanel, curve, draw_curves
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment
from trainer.sampler.loop import TrainingResult
from trainer.sampler.validation import Validation

__all__ = ["Provenance", "draw_plots", "model_card", "publish"]

# What the log calls these, and what they are.
_POLICY = {
    "kl": "distance from the\nreference, nats",
    "approx_kl": "change of the\npolicy, nats",
    "clipfrac": "share of clipped\nratios",
    "entropy": "entropy, nats\nper dimension",
}


@dataclass(frozen=True)
class Provenance:
    """Command and data that a sampler was trained with."""

    command: str
    data: str
    questions: int


def publish(
    environment: Environment,
    result: TrainingResult,
    config: SamplerConfig,
    provenance: Provenance,
    out: Path,
) -> None:
    """Write sampler, plots and model card into the run's folder."""
    heads = environment.new_heads(0.0, directions=config.directions)
    heads.load_state_dict(result.weights)
    card = SamplerCard(
        kind="gts",
        width=heads.width,
        log_std_floor=config.log_std_floor,
        directions=config.directions,
        reasoner_fingerprint=environment.fingerprint,
        training={
            "reasoner": environment.name,
            **asdict(provenance),
            "config": config.to_json(),
            "steps": result.steps,
            "ended": result.reason,
            "seconds": round(result.seconds, 1),
        },
        results={
            "split": "validation",
            "deterministic": result.deterministic,
            "untrained": asdict(result.untrained),
            "trained": asdict(result.best),
        },
    )
    draw_plots(out / "log.jsonl", out / "plots", config)
    text = model_card(environment.name, result, config, provenance)
    write_text(out / "README.md", text)
    save_sampler(out, heads, card)


def model_card(
    reasoner: str, result: TrainingResult, config: SamplerConfig, provenance: Provenance
) -> str:
    """Markdown text of the model card: recipe, validation figures and limits."""
    paper = SamplerConfig().to_json()
    ours = {name: value for name, value in config.to_json().items() if value != paper[name]}
    changed = ", ".join(f"`{name}` = {value}" for name, value in ours.items()) or "nothing"
    budget, k = config.validation_budget, config.k
    space = (
        f"{config.directions} principal directions of the thoughts"
        if config.directions
        else "the numbers of a thought"
    )
    start = f"log σ = {config.log_std_bias:g}"
    if config.start == "vocabulary":
        start = f"σ of what the vocabulary head expects, times {math.exp(config.log_std_bias):.2g}"
    objective = f"pass@{k}" if config.objective == "pass@k" else "the mean reward"
    return f"""# GTS sampler for {reasoner}

A Gaussian Thought Sampler: it perturbs the thoughts of `{reasoner}`, and of no other reasoner, so
that several trajectories of one question cover more answers worth having.

## Recipe
- Objective: {objective}, with confidence shaping α = {config.alpha}.
- A step: {config.prompts} questions × {config.group_size} trajectories.
- Data: `{provenance.data}`, {provenance.questions} questions; {config.validation_size} others validate.
- Steps: {result.steps} in {result.seconds / 60:.1f} minutes. It ended because: {result.reason}.
- The sampler of step {result.best.step} was kept, the best by validation pass@{budget}.
- Different from the paper's settings: {changed}.
- Command: `{provenance.command}`

## Measured on the validation questions
| | pass@{budget} | pass@{k} | mean@1 | confidence |
|---|---|---|---|---|
| before training ({start}) | {_row(result.untrained)} |
| trained | {_row(result.best)} |

The unperturbed trajectory answers {result.deterministic:.3f} of them. Validation chose the sampler, so
these figures flatter it: judge it by a test split.

## Limits
It was rewarded for right answers on data like the above, and knows nothing of other tasks. Its
density is a Gaussian, diagonal in {space}. It is bound to the reasoner's weights by their fingerprint.
"""


def _row(v: Validation) -> str:
    return f"{v.pass_at_n:.3f} | {v.pass_at_k:.3f} | {v.mean_at_1:.3f} | {v.confidence:.3f}"


def draw_plots(log: Path, folder: Path, config: SamplerConfig) -> list[Path]:
    """Draw the curves of a run's log as PNG and SVG; return the paths."""
    records = read_log(log)
    steps = [record for record in records if record["kind"] == "step"]
    validations = [record for record in records if record["kind"] == "validation"]
    trained = [
        curve(steps, "pass@N", f"at least one is right\n(pass@{config.group_size})"),
        curve(steps, "mean@1", "a trajectory is right\n(mean@1)"),
        curve(steps, "uniform_share", "all right or all wrong\n(uniform_share)"),
    ]
    validated = [
        curve(
            validations,
            "pass_at_n",
            f"one of {config.validation_budget} is right\n(pass@{config.validation_budget})",
        ),
        curve(validations, "pass_at_k", f"one of {config.k} is right\n(pass@{config.k})"),
        curve(validations, "mean_at_1", "a trajectory is right\n(mean@1)"),
    ]
    plots = {
        "reward": [CurvePanel("mean reward of a trajectory", [curve(steps, "reward", "reward")])],
        "accuracy": [
            CurvePanel("share of training questions, %", trained, is_share=True),
            CurvePanel("share of validation questions, %", validated, is_share=True),
        ],
        "thoughts": [
            CurvePanel(
                "spread of the noise\n(mean σ)", _by_thought(steps, "sigma"), is_ordered=True
            ),
            CurvePanel(
                "signal to noise\n(SNR = rms μ / rms σ)", _by_thought(steps, "snr"), is_ordered=True
            ),
        ],
        "policy": [
            CurvePanel(f"{words}\n({name})", [curve(steps, name, name)])
            for name, words in _POLICY.items()
        ],
    }
    return [path for name, panels in plots.items() for path in draw_curves(folder, name, panels)]


def _by_thought(records: Sequence[dict[str, Any]], name: str) -> list[Curve]:
    at = [record["step"] for record in records]
    thoughts = len(records[0][name]) if records else 0
    return [
        Curve(f"thought {k + 1}", at, [record[name][k] for record in records])
        for k in range(thoughts)
    ]
