"""Trains a sampler for a frozen reasoner: sample → score → update → record.

Where the default preset differs from the paper's, and why:
1. objective pass@k: best-of-N wants coverage; the mean objective raises mean accuracy and shrinks σ.
2. ratio old: an importance ratio is against the policy that drew the samples; against the EMA
   reference it drifts. The EMA stays as the anchor of the KL.
3. clip ppo: follows from 2.
4. skip_uniform_groups, sigma_floor 0.6: where all are wrong only the shaping varies, and dividing it by
   the group's σ is a full-strength push towards low confidence, until the policy collapses.
5. lr 3e-4 with cosine decay, two updates of a batch: 1e-4 barely moves in the steps that a small
   machine has, and 1e-3 is too much. On an earlier coconut-tiny (validation pass@32, 0.672 before
   training, one seed each), 1e-3 gave 0.707 after 100 steps with α = 0.2 and 0.594 with α = 0, where
   3e-4 gave 0.719 and 0.695 after 50.
6. the confidence shaping (α) is added to the pass@k scores too: it is a signal in every trajectory,
   where being right is one in many; α = 0 leaves pure pass@k.
7. validation of 32 trajectories every 50 steps: a run here is a few hundred steps.
Reasons 1, 2 and 4 are a prototype's measurements.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from latent.errors import InputError
from latent.noise import derive_seed
from trainer.data.questions import Question, digest, draws_of
from trainer.runs.ranks import Ranks
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import Environment, Episodes, joined_episodes
from trainer.sampler.record import Live, recording
from trainer.sampler.resume import Identity, RunFolder, RunState
from trainer.sampler.rewards import Scores, is_uniform, score
from trainer.sampler.update import learning_rate, update
from trainer.sampler.watch import Validation, best_of, stop_reason, validate

__all__ = ["TrainingResult", "train"]


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended, and the sampler it chose."""

    steps: int
    reason: str
    best: Validation
    untrained: Validation
    deterministic: float  # the unperturbed accuracy on the validation questions
    seconds: float
    weights: dict[str, torch.Tensor]


def train(
    environment: Environment,
    questions: Sequence[Question],
    validation: Sequence[Question],
    out: Path,
    config: SamplerConfig,
    *,
    ranks: Ranks | None = None,
    live: Live | None = None,
    checkpoint_every: int = 25,
) -> TrainingResult:
    """Train until the steps are done or validation says stop; go on from a checkpoint in `out`."""
    ranks = ranks or Ranks()
    total = config.step_count(len(questions))
    identity = Identity(
        config.to_json(), environment.fingerprint, digest(questions), digest(validation)
    )
    folder = RunFolder(out, identity)
    state = _new_state(environment, config)
    log_bytes = folder.load(state) if folder.has_checkpoint else _begin(out)
    ranks.wait()  # every rank has looked before the first one writes
    if state.step and live is not None:
        live.note(f"going on from step {state.step}")
    with recording(out, log_bytes, folder, live, config, is_first=ranks.is_first) as recorder:
        while True:
            started = time.perf_counter()
            if _is_validation_due(state, config, total):
                _validate(state, environment, validation, config, ranks)
                recorder.validation(state)
            reason = stop_reason(state.validations, config)
            if reason is not None or state.step >= total:
                break
            draws = draws_of(questions, state.step, config)
            sampled = environment.sample(state.heads, ranks.share(draws), config.group_size)
            episodes = joined_episodes(sampled, len(draws), ranks)
            scores = score(episodes.is_correct, episodes.logprobs, config)
            rate = learning_rate(state.step, total, config)
            measured = update(state, episodes, scores.advantages, config, rate)
            measured |= _outcomes(episodes, scores)
            state.step += 1
            state.seconds += time.perf_counter() - started
            recorder.step(state, measured, time.perf_counter() - started)
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


def _new_state(environment: Environment, config: SamplerConfig) -> RunState:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "heads"))
        heads = environment.new_heads(config.log_std_bias)
    reference = environment.new_heads(config.log_std_bias).requires_grad_(False)
    reference.load_state_dict(heads.state_dict())
    return RunState(
        heads=heads,
        reference=reference,
        optimiser=torch.optim.Adam(heads.parameters(), lr=config.lr),
        best=_copied(heads),
    )


def _begin(out: Path) -> int:
    """Make sure that a fresh run overwrites no finished sampler; its log begins at 0."""
    if (out / "sampler.json").exists():
        raise InputError(
            f"{out} holds a sampler but no checkpoint of it; choose another --out", param="out"
        )
    return 0


def _is_validation_due(state: RunState, config: SamplerConfig, total: int) -> bool:
    is_place = state.step % config.validation_every == 0 or state.step >= total
    return is_place and not any(v.step == state.step for v in state.validations)


def _validate(
    state: RunState,
    environment: Environment,
    questions: Sequence[Question],
    config: SamplerConfig,
    ranks: Ranks,
) -> None:
    if not state.validations:
        right = ranks.gather(environment.deterministic(ranks.share(questions)))
        state.deterministic = sum(right) / len(right)
    measured = validate(environment, state.heads, questions, state.step, config, ranks)
    state.validations.append(measured)
    if best_of(state.validations) is measured:
        state.best = _copied(state.heads)


def _outcomes(episodes: Episodes, scores: Scores) -> dict[str, float]:
    """Give the batch means of what was earned."""
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
