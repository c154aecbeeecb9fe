"""Puts a sampler run together from names: reasoner, data, ranks, progress; then trains and publishes."""

import shlex
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from latent.store import load_reasoner
from latent.zoo import resolve_model
from trainer.data.questions import load_questions
from trainer.data.sources import EMBEDDED
from trainer.runs.output_folder import claimed
from trainer.runs.progress import Progress
from trainer.runs.ranks import Ranks, joined_ranks, rank_device
from trainer.sampler.card import Provenance
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import ReasonerEnvironment
from trainer.sampler.loop import TrainingResult, train
from trainer.sampler.publish import publish
from trainer.sampler.record import describe

__all__ = ["SamplerRun", "launch"]


@dataclass(frozen=True)
class SamplerRun:
    """What the command line says."""

    model: str
    data: str
    problems: int | None
    out: Path
    config: SamplerConfig
    checkpoint_every: int = 25
    device: str = "cpu"
    threads: int | None = None


def launch(run: SamplerRun) -> TrainingResult:
    """Train a sampler, or go on with it, and write what it leaves."""
    if run.threads is not None:
        torch.set_num_threads(run.threads)
    device = rank_device(run.device)
    with (
        joined_ranks(device) as ranks,
        claimed(run.out, "a sampler's training", is_first=ranks.is_first),
    ):
        return _launch(run, device, ranks)


def _launch(run: SamplerRun, device: torch.device, ranks: Ranks) -> TrainingResult:
    reasoner = load_reasoner(resolve_model(run.model), device=str(device))
    environment = ReasonerEnvironment(reasoner, run.config.sites)
    sets = load_questions(run.data, run.problems, run.config)
    if run.data != EMBEDDED:
        environment.check([*sets.train, *sets.validation])
    total = run.config.step_count(len(sets.train))
    with Progress(total, 0) if ranks.is_first else nullcontext() as progress:
        result = train(
            environment,
            sets.train,
            sets.validation,
            run.out,
            run.config,
            ranks=ranks,
            live=progress,
            checkpoint_every=run.checkpoint_every,
        )
        if ranks.is_first:
            provenance = Provenance(shlex.join(["gts", *sys.argv[1:]]), run.data, len(sets.train))
            publish(environment, result, run.config, provenance, run.out)
            assert progress is not None
            budget = run.config.validation_budget
            progress.note(
                f"{result.reason}; kept step {result.best.step}: {describe(result.best, budget)}"
            )
            progress.note(f"sampler in {run.out}")
        ranks.wait()
    return result
