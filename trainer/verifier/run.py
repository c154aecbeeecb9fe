"""Runs `gts train verifier`: draw and label trajectories, fit, measure on validation, publish."""

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from latent.device import resolve_device
from latent.errors import InputError
from latent.store import load_reasoner
from latent.verifier import Verifier, verifier_shape
from latent.verifier_file import folder_verifier, user_verifier
from latent.zoo import embedded_models, resolve_model
from trainer.data.questions import QuestionSets, load_questions
from trainer.data.sources import EMBEDDED
from trainer.runs.output_folder import claimed
from trainer.runs.progress import Progress
from trainer.sampler.episodes import ReasonerEnvironment, rollout_dtype
from trainer.verifier.config import VerifierConfig
from trainer.verifier.examples import Drawer, Examples, Labelled, joined_examples
from trainer.verifier.fit import fit, step_count
from trainer.verifier.measures import measure
from trainer.verifier.publish import publish, verdict

__all__ = ["VerifierResult", "VerifierRun", "run_verifier"]

_EMBEDDED_COUNT = 40_000
_LINE_SECONDS = 5.0  # between two lines in a log


@dataclass(frozen=True)
class VerifierRun:
    """Arguments of the command."""

    model: str
    data: str
    problems: int | None
    out: Path | None  # None: where the vote finds it
    config: VerifierConfig
    device: str = "cpu"
    threads: int | None = None


@dataclass(frozen=True)
class VerifierResult:
    """Where the verifier is, and what it reached on the validation questions."""

    out: Path
    results: dict[str, Any]
    verdict: str


def run_verifier(run: VerifierRun) -> VerifierResult:
    """Train a verifier, measure it, and write it to the run's folder."""
    if run.threads is not None:
        torch.set_num_threads(run.threads)
    started = time.monotonic()
    folder, config = resolve_model(run.model), run.config
    # Before the reasoner, which takes seconds to load: data that can't be used is refused at once.
    problems = run.problems or (_EMBEDDED_COUNT if run.data == EMBEDDED else None)
    sets = load_questions(run.data, problems, config.validation_size, config.seed)
    device = resolve_device(run.device)
    reasoner = load_reasoner(folder, device=str(device), dtype=rollout_dtype(device))
    torch.manual_seed(config.seed)
    shape = verifier_shape(reasoner, config.hidden)
    verifier = Verifier(shape, dropout=config.dropout).to(reasoner.device).eval()
    if run.data != EMBEDDED:
        ReasonerEnvironment(reasoner).check([*sets.train, *sets.validation])
    out = run.out or _place(run.model, folder, reasoner.fingerprint)
    with claimed(out, "a verifier's training"):
        sampler = reasoner.sampler(None)
        drawer = Drawer(reasoner, sampler, verifier, config.seed)
        examples = _draw(drawer, sets, config)
        _fit(verifier, examples, config)
        results = {"split": "validation"}
        results |= measure(_validate(drawer, sets, config), config.seed)
        training = {
            "reasoner": reasoner.name,
            "command": shlex.join(["gts", *sys.argv[1:]]),
            "data": run.data,
            "questions": len(sets.train),
            "mixed": len(examples.is_right),
            "sampler": str(sampler.spec),
            "config": config.to_json(),
            "seconds": round(time.monotonic() - started, 1),
        }
        publish(out, verifier, fingerprint=reasoner.fingerprint, training=training, results=results)
    return VerifierResult(out, results, verdict(results))


def _place(model: str, folder: Path, fingerprint: str) -> Path:
    """Where the vote finds it: in the reasoner's folder, or the user's own of an installed one."""
    if model in embedded_models():
        return user_verifier(folder.name, fingerprint)
    return folder_verifier(folder)


def _draw(drawer: Drawer, sets: QuestionSets, config: VerifierConfig) -> Examples:
    """Draw the training questions; keep those with right and wrong trajectories."""
    kept: list[Labelled] = []
    total, done = len(sets.train), 0
    with Progress(total, 0, "drawing", line_seconds=_LINE_SECONDS) as progress:
        if len(sets.validation) < config.validation_size:
            progress.note(
                f"validation_size is {len(sets.validation)}, not {config.validation_size}: there are "
                f"{total + len(sets.validation)} questions, and a fifth are held out"
            )
        for drawn in drawer.draw(sets.train, config.lanes):
            kept += [one for one in drawn if one.is_mixed]
            done += len(drawn)
            progress.show(done, {"mixed": str(len(kept))})
    if not kept:
        raise InputError(
            f"none of the {total} questions has right and wrong trajectories, so there is nothing to "
            "learn; give other questions, or more",
            param="data",
        )
    return joined_examples(kept)


def _fit(verifier: Verifier, examples: Examples, config: VerifierConfig) -> None:
    total = step_count(len(examples.is_right), config)
    with Progress(total, 0, "training", line_seconds=_LINE_SECONDS) as progress:
        fit(verifier, examples, config, lambda step, loss: progress.show(step, {"loss": loss}))
    verifier.half().float()  # as it is stored, so that this is what is measured


def _validate(drawer: Drawer, sets: QuestionSets, config: VerifierConfig) -> list[Labelled]:
    """Draw the validation questions; the rollout scores them, as it does when serving."""
    found: list[Labelled] = []
    total = len(sets.validation)
    with Progress(total, 0, "measuring", line_seconds=_LINE_SECONDS) as progress:
        for drawn in drawer.draw(sets.validation, config.validation_lanes):
            found += drawn
            progress.show(len(found), {"validation": str(len(found))})
    return found
