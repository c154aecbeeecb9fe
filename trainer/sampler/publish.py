"""Writes what a finished sampler run leaves: the sampler with its JSON card, plots and a model card."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latent.files import write_text
from latent.store import SamplerCard, save_sampler
from trainer.runs.checkpoint import read_log
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment
from trainer.sampler.loop import TrainingResult
from trainer.sampler.validation import Validation

__all__ = ["Provenance", "draw_plots", "model_card", "publish"]


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
    heads = environment.new_heads(0.0)
    heads.load_state_dict(result.weights)
    card = SamplerCard(
        kind="gts",
        width=heads.width,
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
    draw_plots(out / "log.jsonl", out / "plots")
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
| before training (log σ = {config.log_std_bias:g}) | {_row(result.untrained)} |
| trained | {_row(result.best)} |

The unperturbed trajectory answers {result.deterministic:.3f} of them. Validation chose the sampler, so
these figures flatter it: judge it by a test split.

## Limits
It was rewarded for right answers on data like the above, and knows nothing of other tasks. Its
density is a diagonal Gaussian. It is bound to the reasoner's weights by their fingerprint.
"""


def _row(v: Validation) -> str:
    return f"{v.pass_at_n:.3f} | {v.pass_at_k:.3f} | {v.mean_at_1:.3f} | {v.confidence:.3f}"


def draw_plots(log: Path, folder: Path) -> list[Path]:
    """Draw the curves of a run's log as PNG and SVG; return the paths."""
    records = read_log(log)
    steps = [record for record in records if record["kind"] == "step"]
    validations = [record for record in records if record["kind"] == "validation"]
    plots = {
        "reward": [("reward", _lines(steps, "reward"))],
        "accuracy": [
            ("training", _lines(steps, "mean@1", "pass@N", "uniform_share")),
            ("validation", _lines(validations, "mean_at_1", "pass_at_k", "pass_at_n")),
        ],
        "thoughts": [("σ", _by_thought(steps, "sigma")), ("SNR", _by_thought(steps, "snr"))],
        "policy": [
            (name, _lines(steps, name)) for name in ("kl", "approx_kl", "clipfrac", "entropy")
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    return [
        path
        for name, panels in plots.items()
        for path in _draw(panels, [folder / f"{name}.{kind}" for kind in ("png", "svg")])
    ]


_Curve = tuple[str, list[int], list[float]]


def _lines(records: Sequence[dict[str, Any]], *names: str) -> list[_Curve]:
    at = [record["step"] for record in records]
    return [(name, at, [record[name] for record in records]) for name in names]


def _by_thought(records: Sequence[dict[str, Any]], name: str) -> list[_Curve]:
    at = [record["step"] for record in records]
    thoughts = len(records[0][name]) if records else 0
    return [(f"thought {k + 1}", at, [r[name][k] for r in records]) for k in range(thoughts)]


def _draw(panels: Sequence[tuple[str, list[_Curve]]], paths: list[Path]) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6 * len(panels) + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, curves) in zip(
        figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True
    ):
        for name, at, values in curves:
            axes.plot(at, values, label=name, linewidth=1, marker="." if len(at) < 60 else None)
        axes.set_ylabel(title)
        if len(curves) > 1:
            axes.legend(fontsize="small")
    axes.set_xlabel("step")
    for path in paths:
        figure.savefig(path, dpi=120)
    return paths
