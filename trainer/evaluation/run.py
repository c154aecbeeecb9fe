"""One evaluation from its configuration to its summary: resumable, and split over ranks by question."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from latent.lanes import Prefix
from trainer.evaluation.config import EvaluationConfig
from trainer.evaluation.folder import EvaluationFolder
from trainer.evaluation.measure import measure
from trainer.evaluation.records import Question, Record
from trainer.evaluation.statistics import RESAMPLES
from trainer.evaluation.subject import Subject, load_subject
from trainer.evaluation.summary import summarise
from trainer.runs.output_folder import claimed
from trainer.runs.progress import Progress
from trainer.runs.ranks import Ranks, joined_ranks

__all__ = ["evaluate"]

_SHOWN_EVERY_SECONDS = 5.0
_TOLD = 10  # rows left out that are told one by one

Chunk = tuple[Question, ...]
Key = tuple[str, int]


def evaluate(config: EvaluationConfig, out: Path) -> dict[str, Any] | None:
    """Measure what is still missing, then write results and summary; None on ranks but the first."""
    subject = load_subject(config)
    folder, identity = EvaluationFolder(out), subject.identity(config)
    with (
        joined_ranks(subject.reasoner.device) as ranks,
        claimed(out, "an evaluation", is_first=ranks.is_first),
    ):
        folder.check(identity)
        # Gathered rather than only read: ranks on several machines may not share a disk. It also
        # keeps any rank from appending before all have read, so that all plan the same.
        known = {record.key: record for record in ranks.gather(folder.read())}
        if ranks.is_first:
            folder.begin(identity)
        mine = _missing(subject, known, config)[ranks.rank :: ranks.size]
        made = _measure_chunks(subject, config, folder, ranks, mine, known)
        known |= {record.key: record for record in ranks.gather(made)}
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
            alike=subject.alike,
        )
        folder.finish([record for rows in results.values() for record in rows], summary)
        return summary


def _missing(subject: Subject, known: dict[Key, Record], config: EvaluationConfig) -> list[Chunk]:
    """Give the chunks of questions that lack a result, those of the longest prompts first.

    Chunks never depend on what is known: a result is computed in the same company whether the
    run was interrupted or not. Equal lengths stand together, so that passes are full; the longest
    come first, so that what does not fit into memory is known at once.
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
    """Measure chunks with every sampler that lacks a result there; write each result as it comes."""
    missing = sum(1 for chunk in chunks for _ in _lacking(chunk, subject.samplers, known))
    made: list[Record] = []
    with (
        folder.appending(ranks) as part,
        Progress(len(known) + missing, len(known)) if ranks.is_first else nullcontext() as bar,
    ):
        watch = _Watch(bar, len(known), missing)
        watch.tell(subject)
        for chunk in chunks:
            prefixes: dict[int, Prefix] = {}  # the samplers share a chunk's prompts
            for spec, sampler in subject.samplers.items():
                lacking = set(_lacking(chunk, [spec], known))
                if not lacking:
                    continue
                measured = measure(subject.reasoner, sampler, chunk, config, prefixes)
                fresh = [record for record in measured if record.key in lacking]
                part.writelines(record.to_line() for record in fresh)
                part.flush()
                made += fresh
                watch.show(len(made), spec)
    return made


class _Watch:
    """Tells whoever watches, not too often, how far the run is and how long it will take."""

    def __init__(self, bar: Progress | None, done: int, missing: int) -> None:
        self._bar = bar
        self._done = done
        self._missing = missing
        self._started = self._shown = time.monotonic()

    def tell(self, subject: Subject) -> None:
        """Say what was left out, and that the run begins."""
        if self._bar is None:
            return
        left_out = subject.left_out
        for row in left_out[:_TOLD]:
            self._bar.note(f"{subject.data.name}, {row}; left out")
        if len(left_out) > _TOLD:
            self._bar.note(f"{len(left_out) - _TOLD} more rows left out; summary.json lists them")
        self._bar.show(self._done, {"questions": str(len(subject.questions))})

    def show(self, made: int, spec: str) -> None:
        """Hear of the number of results so far."""
        now = time.monotonic()
        is_last = made == self._missing
        if self._bar is None or (now - self._shown < _SHOWN_EVERY_SECONDS and not is_last):
            return
        self._shown = now
        left = (now - self._started) / made * (self._missing - made)
        minutes, seconds = divmod(round(left), 60)
        self._bar.show(self._done + made, {"sampler": spec, "left": f"{minutes}m{seconds:02d}s"})
