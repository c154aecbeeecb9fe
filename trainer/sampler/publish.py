"""What a finished sampler run leaves: the sampler, its plots, its card, all from its own records."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from latent.files import write_text
from latent.store import SamplerCard, save_sampler
from trainer.runs.checkpoint import read_log
from trainer.sampler.card import Provenance, model_card
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment
from trainer.sampler.loop import TrainingResult

__all__ = ["draw_plots", "publish"]


def publish(
    environment: Environment,
    result: TrainingResult,
    config: SamplerConfig,
    provenance: Provenance,
    out: Path,
) -> None:
    """Write the sampler, the plots and the card into the run's folder."""
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


def draw_plots(log: Path, folder: Path) -> list[Path]:
    """Draw the run's curves as PNG and SVG; give the files."""
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
