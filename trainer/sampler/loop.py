"""Training loop of a sampler: sample → score → update → record. Knows only an Environment, no reasoner.

Where the default preset differs from the paper's, and why:
1. objective pass@k: best-of-N needs coverage; the mean objective raises mean accuracy and shrinks σ.
2. ratio old: an importance ratio is against the policy that drew the samples; against the EMA
   reference it drifts. The EMA stays as the reference of the KL.
3. clip ppo: follows from 2.
4. skip_uniform_groups, sigma_floor 0.6: where all are wrong only the shaping varies; divided by the
   group's small σ it pushes towards low confidence at full strength, until the policy collapses.
5. lr 3e-4 with cosine decay, two updates per batch: 1e-4 barely moves in the steps that a small
   machine has, and 1e-3 is too much. On an earlier coconut-tiny (validation pass@32, 0.672 before
   training, one seed each), 1e-3 gave 0.707 after 100 steps with α = 0.2 and 0.594 with α = 0, where
   3e-4 gave 0.719 and 0.695 after 50.
6. the confidence shaping (α) is added to the pass@k scores too: every trajectory has a confidence,
   where few are right; α = 0 leaves pure pass@k.
7. validation of 32 trajectories every 50 steps: a run here is a few hundred steps.
Reasons 1, 2 and 4 were measured in a prototype.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from latent.errors import InputError
from latent.files import write_json
from latent.noise import derive_seed
from trainer.data.questions import Question, digest, draws_of
from trainer.runs.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    RunLog,
    optimizer_tensors,
    restore_optimizer,
)
from trainer.runs.progress import Progress
from trainer.runs.ranks import Ranks
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment, Episodes, joined_episodes
from trainer.sampler.objective import Policy, learning_rate, update
from trainer.sampler.rewards import Scores, is_uniform, score
from trainer.sampler.screening import screen
from trainer.sampler.start import start_heads
from trainer.sampler.validation import Validation, best_of, describe, stop_reason, validate

__all__ = ["TrainingResult", "train"]

_SHOWN_EVERY = 10
_SHOWN = ("reward", "mean@1", "pass@N", "uniform_share", "confidence", "kl", "entropy")


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended, and the sampler it chose."""

    steps: int
    reason: str
    best: Validation
    untrained: Validation
    deterministic: float  # accuracy of the unperturbed trajectory on the validation questions
    seconds: float
    weights: dict[str, torch.Tensor]


@dataclass
class _State:
    """All that changes during training, beside the log."""

    policy: Policy
    best: dict[str, torch.Tensor]  # weights of the heads at the best validation
    step: int = 0
    seconds: float = 0.0
    deterministic: float = 0.0
    validations: list[Validation] = field(default_factory=list)
    kept: list[int] | None = None  # numbers of the questions to train on, once they are screened


def train(
    environment: Environment,
    questions: Sequence[Question],
    validation: Sequence[Question],
    out: Path,
    config: SamplerConfig,
    *,
    ranks: Ranks | None = None,
    progress: Progress | None = None,
    checkpoint_every: int = 25,
) -> TrainingResult:
    """Train until all steps are done or validation says stop; resume from a checkpoint in `out`."""
    ranks = ranks or Ranks()
    total = config.step_count(len(questions))
    identity = {
        **config.to_json(),
        "reasoner": environment.fingerprint,
        "data": digest(questions),
        "validation": digest(validation),
    }
    folder = CheckpointFolder(out, "sampler", identity)
    if (out / "sampler.json").exists() and not folder.exists:
        raise InputError(
            f"{out} holds a sampler but no checkpoint of it; choose another --out", param="out"
        )
    state = _new_state(environment, config)
    if not folder.exists:  # else the checkpoint has what this would set
        start_heads(state.policy.heads, environment, questions, config)
        state.policy.reference.load_state_dict(state.policy.heads.state_dict())
        state.best = _copied(state.policy.heads)
    log_bytes = folder.resume(lambda saved: _restore(state, saved))
    ranks.wait()  # every rank has read the checkpoint before the first one writes
    if state.step and progress is not None:
        progress.note(f"going on from step {state.step}")
    if ranks.is_first:
        write_json(out / "config.json", config.to_json())
    if config.screen:
        if state.kept is None:
            state.kept = screen(environment, state.policy.heads, questions, config, ranks, progress)
            if progress is not None:
                progress.note(f"screened: {len(state.kept)} of {len(questions)} questions are kept")
        questions = [questions[number] for number in state.kept]
    with RunLog(out / "log.jsonl", log_bytes) if ranks.is_first else nullcontext() as log:
        recorder = _Recorder(log, folder, progress, config.validation_budget)
        while True:
            started = time.perf_counter()
            if _is_validation_due(state, config, total):
                _validate(state, environment, validation, config, ranks)
                recorder.validation(state)
            reason = stop_reason(state.validations, config)
            if reason is not None or state.step >= total:
                break
            draws = draws_of(questions, state.step, config.prompts, config.seed)
            sampled = environment.sample(state.policy.heads, ranks.share(draws), config.group_size)
            episodes = joined_episodes(sampled, len(draws), ranks)
            scores = score(episodes.is_correct, episodes.logprobs, config)
            rate = learning_rate(state.step, total, config)
            metrics = update(state.policy, episodes, scores.advantages, config, rate, state.step)
            metrics |= _outcomes(episodes, scores)
            state.step += 1
            seconds = time.perf_counter() - started
            state.seconds += seconds
            recorder.step(state, {**metrics, "seconds": seconds})
            if state.step % checkpoint_every == 0:
                recorder.checkpoint(state)
        recorder.checkpoint(state)
    ranks.wait()
    return TrainingResult(
        steps=state.step,
        reason=reason or f"all {total} steps are done",
        best=best_of(state.validations),
        untrained=state.validations[0],
        deterministic=state.deterministic,
        seconds=state.seconds,
        weights=state.best,
    )


class _Recorder:
    """Writes log and checkpoints and shows progress; without a log (ranks but the first), nothing."""

    def __init__(
        self, log: RunLog | None, folder: CheckpointFolder, progress: Progress | None, budget: int
    ) -> None:
        self._log = log
        self._folder = folder
        self._progress = progress
        self._budget = budget

    def step(self, state: _State, metrics: dict[str, Any]) -> None:
        if self._log is None:
            return
        self._log.write({"kind": "step", "step": state.step, **metrics})
        if self._progress is not None and state.step % _SHOWN_EVERY == 0:
            shown = {name: metrics[name] for name in (*_SHOWN, "seconds")}
            self._progress.show(state.step, shown)

    def validation(self, state: _State) -> None:
        if self._log is None:
            return
        last = state.validations[-1]
        record = {"kind": "validation", **asdict(last), "deterministic": state.deterministic}
        self._log.write(record)
        if self._progress is not None:
            self._progress.note(f"step {last.step}: validation {describe(last, self._budget)}")

    def checkpoint(self, state: _State) -> None:
        if self._log is None:
            return
        tensors = {
            "heads": state.policy.heads.state_dict(),
            "reference": state.policy.reference.state_dict(),
            "optimizer": optimizer_tensors(state.policy.optimizer),
            "best": state.best,
        }
        values = {
            "seconds": state.seconds,
            "deterministic": state.deterministic,
            "kept": state.kept,
            "validations": [asdict(validation) for validation in state.validations],
        }
        self._folder.save(Checkpoint(state.step, self._log.sync(), tensors, values))


def _new_state(environment: Environment, config: SamplerConfig) -> _State:
    start = (config.log_std_bias, config.log_std_floor, config.directions)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "heads"))
        heads = environment.new_heads(*start)
    reference = environment.new_heads(*start)
    reference.requires_grad_(False)
    reference.load_state_dict(heads.state_dict())
    optimizer = torch.optim.Adam(heads.parameters(), lr=config.lr)
    return _State(Policy(heads, reference, optimizer), best=_copied(heads))


def _restore(state: _State, saved: Checkpoint) -> None:
    state.policy.heads.load_state_dict(saved.tensors["heads"])
    state.policy.reference.load_state_dict(saved.tensors["reference"])
    restore_optimizer(state.policy.optimizer, saved.tensors.get("optimizer", {}))
    state.best = saved.tensors["best"]
    state.step = saved.step
    state.seconds = saved.values["seconds"]
    state.deterministic = saved.values["deterministic"]
    state.kept = saved.values.get("kept")
    state.validations = [Validation(**entry) for entry in saved.values["validations"]]


def _is_validation_due(state: _State, config: SamplerConfig, total: int) -> bool:
    is_due = state.step % config.validation_every == 0 or state.step >= total
    return is_due and not any(v.step == state.step for v in state.validations)


def _validate(
    state: _State,
    environment: Environment,
    questions: Sequence[Question],
    config: SamplerConfig,
    ranks: Ranks,
) -> None:
    if not state.validations:
        right = ranks.gather(environment.deterministic(ranks.share(questions)))
        state.deterministic = sum(right) / len(right)
    heads = state.policy.heads
    measured = validate(environment, heads, questions, state.step, config, ranks)
    state.validations.append(measured)
    if best_of(state.validations) is measured:
        state.best = _copied(heads)


def _outcomes(episodes: Episodes, scores: Scores) -> dict[str, float]:
    """Batch means of rewards and correctness."""
    is_correct = episodes.is_correct
    means = {
        "reward": scores.rewards,
        "mean@1": is_correct,
        "pass@N": is_correct.any(-1),
        "uniform_share": is_uniform(is_correct),
        "all_wrong_share": ~is_correct.any(-1),
        "confidence": episodes.logprobs.exp(),
    }
    return {name: values.double().mean().item() for name, values in means.items()}


def _copied(heads: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in heads.state_dict().items()}
