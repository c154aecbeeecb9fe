"""Runs `gts train sampler`: loads data and reasoner, trains on the ranks, publishes the result."""

import shlex
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from latent.store import load_reasoner
from latent.zoo import resolve_model
from trainer.data.questions import QuestionSets, load_questions
from trainer.data.sources import EMBEDDED
from trainer.runs.output_folder import claimed
from trainer.runs.progress import Progress
from trainer.runs.ranks import Ranks, joined_ranks, rank_device
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import ReasonerEnvironment, rollout_dtype
from trainer.sampler.loop import TrainingResult, train
from trainer.sampler.publish import Provenance, publish
from trainer.sampler.validation import describe

__all__ = ["SamplerRun", "run_sampler"]


@dataclass(frozen=True)
class SamplerRun:
    """Arguments of the command."""

    model: str
    data: str
    problems: int | None
    out: Path
    config: SamplerConfig
    checkpoint_every: int = 25
    device: str = "cpu"
    threads: int | None = None


def run_sampler(run: SamplerRun) -> TrainingResult:
    """Train a sampler, or resume its training, and publish it in the run's folder."""
    if run.threads is not None:
        torch.set_num_threads(run.threads)
    folder, device = resolve_model(run.model), rank_device(run.device)
    # Before the reasoner, which takes seconds to load: data that can't be used is refused at once.
    wanted = run.config.validation_size
    sets = load_questions(run.data, run.problems, wanted, run.config.seed)
    run = replace(run, config=replace(run.config, validation_size=len(sets.validation)))
    with (
        joined_ranks(device) as ranks,
        claimed(run.out, "a sampler's training", is_first=ranks.is_first),
    ):
        reasoner = load_reasoner(folder, device=str(device), dtype=rollout_dtype(device))
        environment = ReasonerEnvironment(reasoner, run.config.sites)
        if run.data != EMBEDDED:
            environment.check([*sets.train, *sets.validation])
        total = run.config.step_count(len(sets.train))
        with Progress(total, 0) if ranks.is_first else nullcontext() as progress:
            if progress is not None and len(sets.validation) < wanted:
                progress.note(
                    f"validation_size is {len(sets.validation)}, not {wanted}: {run.data} has "
                    f"{len(sets.train) + len(sets.validation)} rows, and a fifth are held out"
                )
            return _train(run, environment, sets, ranks, progress)


def _train(
    run: SamplerRun,
    environment: ReasonerEnvironment,
    sets: QuestionSets,
    ranks: Ranks,
    progress: Progress | None,
) -> TrainingResult:
    result = train(
        environment,
        sets.train,
        sets.validation,
        run.out,
        run.config,
        ranks=ranks,
        progress=progress,
        checkpoint_every=run.checkpoint_every,
    )
    if progress is not None:  # on the first rank
        provenance = Provenance(shlex.join(["gts", *sys.argv[1:]]), run.data, len(sets.train))
        publish(environment, result, run.config, provenance, run.out)
        figures = describe(result.best, run.config.validation_budget)
        progress.note(f"{result.reason}; kept step {result.best.step}: {figures}")
        progress.note(f"sampler in {run.out}")
    ranks.wait()
    return result
