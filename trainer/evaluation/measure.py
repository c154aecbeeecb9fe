"""Runs questions through the one rollout and judges what came. Knows no files and no ranks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from latent import quality
from latent.lanes import Prefix
from latent.probing import Probe
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import LearnedSampler, Sampler
from latent.solve import ballots_of
from latent.trajectory import DETERMINISTIC
from trainer.evaluation.config import EvaluationConfig
from trainer.evaluation.records import Exploration, Question, Record, judge

__all__ = ["Heads", "explore", "measure"]


@dataclass(frozen=True)
class Heads:
    """What a learned sampler said at each thought, for N trajectories."""

    mean: torch.Tensor  # (N, K, D)
    std: torch.Tensor  # (N, K, D)


def measure(
    reasoner: Reasoner,
    sampler: Sampler,
    questions: Sequence[Question],
    config: EvaluationConfig,
    prefixes: dict[int, Prefix],
) -> list[Record]:
    """Draw and judge all trajectories of these questions; prompts prefilled here are left behind."""
    started = time.perf_counter()
    if sampler.spec.kind == "deterministic":
        done = _run(reasoner, sampler, questions, (DETERMINISTIC,), config, prefixes)
        records = [
            _judged(question, sampler, [one], Exploration())
            for question, one in zip(questions, done, strict=True)
        ]
    else:
        records = _measure_samples(reasoner, sampler, questions, config, prefixes)
    seconds = round((time.perf_counter() - started) / len(questions), 6)
    return [replace(record, seconds=seconds) for record in records]


def _measure_samples(
    reasoner: Reasoner,
    sampler: Sampler,
    questions: Sequence[Question],
    config: EvaluationConfig,
    prefixes: dict[int, Prefix],
) -> list[Record]:
    """Draw in two parts: only the first samples are probed, which costs them several more steps."""
    probed = (DETERMINISTIC, *range(config.gain_budget))
    first = _run(reasoner, sampler, questions, probed, config, prefixes, with_probe=True)
    others = tuple(range(config.gain_budget, config.budget))
    later = _run(reasoner, sampler, questions, others, config, prefixes) if others else []
    records = []
    for number, (question, one) in enumerate(zip(questions, first, strict=True)):
        assert one.probe is not None
        explored = explore(one.probe, _heads(sampler, one.contexts))
        parts = [one, later[number]] if others else [one]
        records.append(_judged(question, sampler, parts, explored))
    return records


def _run(
    reasoner: Reasoner,
    sampler: Sampler,
    questions: Sequence[Question],
    indices: tuple[int, ...],
    config: EvaluationConfig,
    prefixes: dict[int, Prefix],
    *,
    with_probe: bool = False,
) -> list[Rollout]:
    done = rollout(
        reasoner,
        sampler,
        [
            Ask(
                question.prompt,
                question.seed,
                indices,
                question.target if with_probe else None,
                prefixes.get(question.index),
            )
            for question in questions
        ],
        keep_thoughts=with_probe and isinstance(sampler, LearnedSampler),
        with_probe=with_probe,
        lane_limit=config.lanes,
    )
    for question, one in zip(questions, done, strict=True):
        prefixes[question.index] = one.prefix
    return done


def _judged(
    question: Question, sampler: Sampler, parts: Sequence[Rollout], explored: Exploration
) -> Record:
    """Judge rollouts of which the first begins with the deterministic trajectory."""
    ballots = [ballot for part in parts for ballot in ballots_of(part)]
    trajectories = [trajectory for part in parts for trajectory in part.trajectories]
    # The deterministic trajectory is not one of the samples, unless there are no others.
    skipped = 1 if len(ballots) > 1 else 0
    return judge(
        question,
        str(sampler.spec),
        ballots[0],
        ballots[skipped:],
        explored,
        tokens=sum(len(trajectory.tokens) for trajectory in trajectories[skipped:]),
        seconds=0.0,
    )


@torch.no_grad()
def explore(probe: Probe, heads: Heads | None = None) -> Exploration:
    """Measure how samples explore; row 0 of the probe is the deterministic trajectory."""
    first = probe.first_logprobs  # (1 + N, V)
    js = float(quality.js_divergence(first[1:], first[0]).mean())
    snr = sigma = None
    if heads is not None:
        snr = quality.signal_to_noise(heads.mean, heads.std).tolist()
        sigma = heads.std.square().mean(-1).sqrt().mean(0).tolist()
    if probe.target_logprobs is None or probe.target_complements is None:
        return Exploration(js=js, snr=snr, sigma=sigma)
    odds = probe.target_logprobs[:, 0] - probe.target_complements[:, 0]  # (1 + N,) of y₁*
    gains = odds[1:] - odds[0]
    whole = quality.answer_log_odds(probe.target_logprobs, probe.target_complements)
    return Exploration(
        gain=float(gains.max()),
        gain_whole=float(quality.sampling_gain(whole[1:], whole[0])),
        gain_share=quality.gain_rate(gains),
        js=js,
        snr=snr,
        sigma=sigma,
    )


def _heads(sampler: Sampler, contexts: torch.Tensor | None) -> Heads | None:
    if not isinstance(sampler, LearnedSampler) or contexts is None:
        return None
    sampled = contexts[1:].to(next(sampler.heads.parameters()).dtype)  # (N, K, D)
    mean, log_std = sampler.heads(sampled)
    return Heads(mean, log_std.exp())
