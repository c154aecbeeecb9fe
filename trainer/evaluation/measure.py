"""Runs questions through the one rollout and judges what came. Knows no files and no ranks."""

import time
from collections.abc import Sequence
from dataclasses import replace

from latent.exploration import Exploration, explore, heads_of
from latent.lanes import Prefix
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import LearnedSampler, Sampler
from latent.solve import ballots_of
from latent.trajectory import DETERMINISTIC
from trainer.evaluation.config import EvaluationConfig
from trainer.evaluation.records import Question, Record, judge

__all__ = ["measure"]


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
        sampled = None if one.contexts is None else one.contexts[1:]
        explored = explore(one.probe, heads_of(sampler, sampled))
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
