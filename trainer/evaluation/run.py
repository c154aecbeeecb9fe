"""Runs one evaluation: rolls out the questions that lack a result, writes results and summary.

Resumable, and split over ranks by question.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from latent.calibration import Calibration
from latent.exploration import Exploration, explore, heads_of
from latent.lanes import Prefix
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import LearnedSampler, Sampler
from latent.trajectory import DETERMINISTIC
from latent.votes import VoteKind
from trainer.evaluation.config import EvaluationConfig
from trainer.evaluation.measures import summarise
from trainer.evaluation.records import MEASURED_VOTES, EvaluationFolder, Question, Record, judge
from trainer.evaluation.statistics import RESAMPLES
from trainer.evaluation.subject import Subject, load_subject
from trainer.runs.output_folder import claimed
from trainer.runs.progress import Progress
from trainer.runs.ranks import Ranks, joined_ranks

__all__ = ["evaluate"]

_SHOW_EVERY_SECONDS = 5.0
_MALFORMED_SHOWN = 10

Chunk = tuple[Question, ...]
Key = tuple[str, int]


def evaluate(config: EvaluationConfig, out: Path) -> dict[str, Any] | None:
    """Measure what is missing in `out`, write results and summary; None on ranks other than 0."""
    subject = load_subject(config)
    folder, identity = EvaluationFolder(out), subject.identity(config)
    with (
        joined_ranks(subject.reasoner.device) as ranks,
        claimed(out, "an evaluation", is_first=ranks.is_first),
    ):
        folder.check(identity)
        # Gathered, because ranks on several machines may not share a disk. It also keeps a rank from
        # appending before all have read, so that all compute the same list of missing chunks.
        known = {record.key: record for record in ranks.gather(folder.read())}
        if ranks.is_first:
            folder.begin(identity)
        chunks = _missing(subject, known, config)[ranks.rank :: ranks.size]
        new = _measure_chunks(subject, config, folder, ranks, chunks, known)
        known |= {record.key: record for record in ranks.gather(new)}
        if not ranks.is_first:
            return None
        results = {
            spec: [known[spec, question.index] for question in subject.questions]
            for spec in subject.samplers
        }
        summary = summarise(
            results,
            config={
                **config.to_json(),
                "sampler_digests": subject.sampler_digests,
                "resamples": RESAMPLES,
            },
            model=subject.model_card(),
            data=subject.data_card(),
            seed=config.seed,
            seed_groups=subject.seed_groups,
            thresholds=subject.reasoner.regime_thresholds,
        )
        folder.finish([record for rows in results.values() for record in rows], summary)
        return summary


def _missing(subject: Subject, known: dict[Key, Record], config: EvaluationConfig) -> list[Chunk]:
    """Chunks of questions that lack a result.

    The division into chunks does not depend on `known`: a resumed run computes a result in the
    same batch as an uninterrupted one. Prompts of similar length share a chunk, to pad little; the
    longest come first, so that a lack of memory shows at once.
    """
    order = sorted(subject.questions, key=lambda question: (-len(question.prompt), question.index))
    chunks = [
        tuple(order[first : first + config.chunk_size])
        for first in range(0, len(order), config.chunk_size)
    ]
    return [chunk for chunk in chunks if any(_lacking(chunk, subject.samplers, known))]


def _lacking(chunk: Chunk, specs: Iterable[str], known: dict[Key, Record]) -> Iterator[Key]:
    return (
        (spec, question.index)
        for spec in specs
        for question in chunk
        if (spec, question.index) not in known
    )


def _measure_chunks(
    subject: Subject,
    config: EvaluationConfig,
    folder: EvaluationFolder,
    ranks: Ranks,
    chunks: Sequence[Chunk],
    known: dict[Key, Record],
) -> list[Record]:
    """Measure the samplers that lack a result in a chunk; append each result as it is computed."""
    missing = sum(1 for chunk in chunks for _ in _lacking(chunk, subject.samplers, known))
    new: list[Record] = []
    total, done = len(known) + missing, len(known)
    with (
        folder.appending(ranks) as part,
        Progress(total, done, "evaluating") if ranks.is_first else nullcontext() as bar,
    ):
        status = _Status(bar, done, missing)
        status.start(subject)
        for chunk in chunks:
            prefixes: dict[int, Prefix] = {}  # a prompt is prefilled once for all samplers
            for spec, sampler in subject.samplers.items():
                lacking = set(_lacking(chunk, [spec], known))
                if not lacking:
                    continue
                measured = _measure(subject.reasoner, sampler, chunk, config, prefixes)
                fresh = [record for record in measured if record.key in lacking]
                part.writelines(record.to_line() for record in fresh)
                part.flush()
                new += fresh
                status.update(len(new), spec)
    return new


class _Status:
    """Shows the number of results and the time left, at most every few seconds."""

    def __init__(self, bar: Progress | None, done: int, missing: int) -> None:
        self._bar = bar
        self._done = done
        self._missing = missing
        self._started = self._shown = time.monotonic()

    def start(self, subject: Subject) -> None:
        """List the rows that are left out, then show the number of questions."""
        if self._bar is None:
            return
        malformed = subject.malformed
        for row in malformed[:_MALFORMED_SHOWN]:
            self._bar.note(f"{subject.data.name}, {row}; left out")
        if len(malformed) > _MALFORMED_SHOWN:
            more = len(malformed) - _MALFORMED_SHOWN
            self._bar.note(f"{more} more rows left out; summary.json lists them")
        self._bar.show(self._done, {"questions": str(len(subject.questions))})

    def update(self, new: int, spec: str) -> None:
        """Show `new` results since the start, the last of them by sampler `spec`."""
        now = time.monotonic()
        is_last = new == self._missing
        if self._bar is None or (now - self._shown < _SHOW_EVERY_SECONDS and not is_last):
            return
        self._shown = now
        left = (now - self._started) / new * (self._missing - new)
        minutes, seconds = divmod(round(left), 60)
        self._bar.show(self._done + new, {"sampler": spec, "left": f"{minutes}m{seconds:02d}s"})


def _measure(
    reasoner: Reasoner,
    sampler: Sampler,
    questions: Sequence[Question],
    config: EvaluationConfig,
    prefixes: dict[int, Prefix],
) -> list[Record]:
    """Roll out all trajectories of these questions and judge them; adds to `prefixes`.

    Samples are drawn in two parts: only the first `gain_budget` are probed for SG and JS, which
    costs several more steps.
    """
    started = time.perf_counter()
    is_sampling = sampler.spec.kind != "deterministic"
    probed = (DETERMINISTIC, *range(config.gain_budget)) if is_sampling else (DETERMINISTIC,)
    rest = tuple(range(config.gain_budget, config.budget)) if is_sampling else ()
    parts = [
        _roll_out(reasoner, sampler, questions, probed, config, prefixes, with_probe=is_sampling)
    ]
    if rest:
        parts.append(_roll_out(reasoner, sampler, questions, rest, config, prefixes))
    fitted = reasoner.calibrations
    found = {vote: fitted.find(sampler.spec, vote) for vote in MEASURED_VOTES}
    calibrations = {vote: one for vote, one in found.items() if one is not None}
    records = [
        _judge(question, sampler, rollouts, calibrations)
        for question, *rollouts in zip(questions, *parts, strict=True)
    ]
    seconds = round((time.perf_counter() - started) / len(questions), 6)
    return [replace(record, seconds=seconds) for record in records]


def _roll_out(
    reasoner: Reasoner,
    sampler: Sampler,
    questions: Sequence[Question],
    indices: tuple[int, ...],
    config: EvaluationConfig,
    prefixes: dict[int, Prefix],
    *,
    with_probe: bool = False,
) -> list[Rollout]:
    asks = [
        Ask(
            question.prompt,
            question.seed,
            indices,
            question.target if with_probe else None,
            prefixes.get(question.index),
        )
        for question in questions
    ]
    done = rollout(
        reasoner,
        sampler,
        asks,
        keep_thoughts=with_probe and isinstance(sampler, LearnedSampler),
        with_probe=with_probe,
        verifier=reasoner.verifier,
        lane_limit=config.lanes,
    )
    for question, one in zip(questions, done, strict=True):
        prefixes[question.index] = one.prefix
    return done


def _judge(
    question: Question,
    sampler: Sampler,
    rollouts: Sequence[Rollout],
    calibrations: Mapping[VoteKind, Calibration],
) -> Record:
    """Judge the rollouts of a question; the first one starts with the deterministic trajectory."""
    probed = rollouts[0]
    explored = Exploration()
    if probed.probe is not None:
        contexts = None if probed.contexts is None else probed.contexts[1:]
        indices = [trajectory.index for trajectory in probed.trajectories[1:]]
        explored = explore(probed.probe, heads_of(sampler, contexts, indices))
    trajectories = [trajectory for one in rollouts for trajectory in one.trajectories]
    # The deterministic trajectory counts as a sample only for the deterministic sampler.
    first = 1 if len(trajectories) > 1 else 0
    return judge(
        question,
        str(sampler.spec),
        trajectories[0],
        trajectories[first:],
        explored,
        tokens=sum(len(trajectory.tokens) for trajectory in trajectories[first:]),
        seconds=0.0,
        calibrations=calibrations,
    )
