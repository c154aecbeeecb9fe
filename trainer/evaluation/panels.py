"""Evaluates a panel: each member alone with the whole budget, and all together under each split.

Members are rolled out once, question by question; the splits are computed from the same trajectories.
Only their time is measured apart, on some of the questions.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

import latent
from latent.answers import show_answer
from latent.errors import FormatError, InputError
from latent.files import write_json
from latent.noise import derive_seed
from latent.panel import SPLITS, Place
from latent.reasoner import Reasoner
from latent.reasoner_panel import ReasonerPanel
from latent.rollout import Ask, rollout
from latent.trajectory import DETERMINISTIC, Trajectory
from latent.votes import VoteKind
from trainer.data.sources import Malformed, Placed, load_dataset
from trainer.evaluation.config import EvaluationConfig
from trainer.evaluation.panel_measures import Asked, summarise_panel, vote_in_stages
from trainer.evaluation.panel_times import Times, times_alone, times_together
from trainer.evaluation.records import EvaluationFolder, first_error
from trainer.runs.output_folder import claimed
from trainer.runs.progress import Progress

__all__ = ["MemberRecord", "evaluate_panel"]

# Votes that can be counted from the records of members, which keep no text, thoughts or scores.
_COUNTED: tuple[VoteKind, ...] = ("majority", "confidence", "best", "likelihood")


@dataclass(frozen=True)
class MemberRecord:
    """One line of members.jsonl: a member's trajectories of a question, the deterministic one first."""

    member: str
    index: int
    truth: str
    answers: list[str | None]
    logprobs: list[float]
    tokens: int
    prompt_tokens: int
    seconds: float  # of the processor, all trajectories together
    chain_logprobs: list[float] | None = None  # of the same trajectories, if the member has chains


_RECORD = TypeAdapter(MemberRecord)


def evaluate_panel(config: EvaluationConfig, out: Path) -> dict[str, Any]:
    """Draw what is missing in `out` and write the summary there."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    data = load_dataset(config.data, config.limit)  # first: it takes less time to be refused
    loaded = latent.load_panel(config.model, device=config.device, dtype=config.dtype)
    rows, malformed = _fitting(loaded, data.rows)
    folder = EvaluationFolder(out)
    identity = {
        "panel members": loaded.panel.labels,
        "fingerprints": [reasoner.fingerprint for reasoner in loaded.reasoners],
        "data": data.name,
        "limit": config.limit,
        "budget": config.budget,
        "seed": config.seed,
    }
    with claimed(out, "an evaluation", is_first=True):
        folder.check(identity)
        folder.begin(identity)
        records = _draw(loaded, rows, config, out / "members.jsonl")
        asked = _asked(loaded, rows, records)
        summary = summarise_panel(
            loaded.panel,
            asked,
            config.budget,
            _times(loaded, rows, asked, config),
            votes={
                label: _vote_alone(reasoner)
                for label, reasoner in zip(loaded.panel.labels, loaded.reasoners, strict=True)
            },
            seconds={
                label: sum(one.seconds for one in records if one.member == label)
                / sum(len(one.answers) for one in records if one.member == label)
                for label in loaded.panel.labels
            },
            config=config.to_json(),
            data={
                "name": data.name,
                "rows": len(rows),
                "malformed": [{"line": row.line, "reason": row.reason} for row in malformed],
            },
        )
        write_json(out / "summary.json", summary)
    return summary


def _vote_alone(reasoner: Reasoner) -> VoteKind:
    """The reasoner's own vote, if the records of members are enough to count it."""
    vote = reasoner.format.vote_or_default(None)
    return vote if vote in _COUNTED else "majority"


def _fitting(
    loaded: ReasonerPanel, rows: Sequence[Placed]
) -> tuple[dict[int, Placed], list[Malformed]]:
    """The questions that every member can be asked, by the number of their row, and the others."""
    fitting, refused = {}, []
    for number, placed in enumerate(rows):
        try:
            for reasoner in loaded.reasoners:
                reasoner.encode(placed.row.question)
            fitting[number] = placed
        except InputError as error:
            refused.append(Malformed(placed.line, str(error), placed.unit))
    if not fitting:
        raise FormatError(f"no question can be asked of all members ({refused[0]})")
    return fitting, refused


def _draw(
    loaded: ReasonerPanel, rows: dict[int, Placed], config: EvaluationConfig, path: Path
) -> list[MemberRecord]:
    """Roll out every member on the questions that `path` lacks, the longest first; append to it."""
    known = {(one.member, one.index): one for one in _read(path)}
    chunk_size = max(1, config.lanes // (1 + config.budget))
    total = len(rows) * len(loaded.panel.members)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        path.open("a", encoding="utf-8") as file,
        Progress(total, len(known), "evaluating") as progress,
    ):
        for label, reasoner, sampler in zip(
            loaded.panel.labels, loaded.reasoners, loaded.samplers, strict=True
        ):
            prompts = {n: reasoner.encode(placed.row.question) for n, placed in rows.items()}
            lacking = [number for number in rows if (label, number) not in known]
            lacking.sort(key=lambda number: (-len(prompts[number]), number))
            is_sampling = sampler.spec.kind != "deterministic"
            indices = (DETERMINISTIC, *range(config.budget if is_sampling else 0))
            for first in range(0, len(lacking), chunk_size):
                chunk, started = lacking[first : first + chunk_size], time.process_time()
                asks = [
                    Ask(prompts[n], derive_seed(config.seed, "evaluation", n), indices)
                    for n in chunk
                ]
                done = rollout(reasoner, sampler, asks, lane_limit=config.lanes)
                seconds = (time.process_time() - started) / len(chunk)
                for number, result in zip(chunk, done, strict=True):
                    drawn = result.trajectories
                    chains = [c for each in drawn if (c := each.chain_logprob) is not None]
                    record = MemberRecord(
                        member=label,
                        index=number,
                        truth=rows[number].row.answer,
                        answers=[show_answer(each.answer) for each in drawn],
                        logprobs=[round(each.logprob, 6) for each in drawn],
                        tokens=sum(len(each.tokens) for each in drawn[1:]),
                        prompt_tokens=len(prompts[number]),
                        seconds=round(seconds, 6),
                        chain_logprobs=[round(each, 6) for each in chains] or None,
                    )
                    known[label, number] = record
                    file.write(json.dumps(vars(record), separators=(",", ":")) + "\n")
                file.flush()
                progress.show(len(known), {"member": label})
    return [known[label, number] for label in loaded.panel.labels for number in rows]


def _read(path: Path) -> list[MemberRecord]:
    """Read the complete lines of a part that was written before."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    complete = text[: text.rfind("\n") + 1]
    if complete != text:
        path.write_text(complete, encoding="utf-8")
    records = []
    for number, line in enumerate(complete.splitlines(), start=1):
        try:
            records.append(_RECORD.validate_json(line))
        except ValidationError as error:
            raise FormatError(
                f"{path}, line {number} is no result: {first_error(error)}"
            ) from error
    return records


def _asked(
    loaded: ReasonerPanel, rows: dict[int, Placed], records: Sequence[MemberRecord]
) -> list[Asked]:
    """The drawn trajectories by question."""
    numbers = {label: number for number, label in enumerate(loaded.panel.labels)}
    drawn: dict[int, dict[Place, Trajectory]] = {number: {} for number in rows}
    for one in records:
        chains: Sequence[float | None] = one.chain_logprobs or [None] * len(one.answers)
        columns = zip(one.answers, one.logprobs, chains, strict=True)
        for index, (answer, logprob, chain) in enumerate(columns, start=DETERMINISTIC):
            read = None if answer is None else Decimal(answer)
            place = Place(numbers[one.member], index)
            trajectory = Trajectory(index, "", read, logprob, (), (), None, chain_logprob=chain)
            drawn[one.index][place] = trajectory
    return [
        Asked(
            Decimal(placed.row.answer),
            drawn[number],
            loaded.panel.familiarity(placed.row.question),
        )
        for number, placed in rows.items()
    ]


def _times(
    loaded: ReasonerPanel,
    rows: dict[int, Placed],
    asked: Sequence[Asked],
    config: EvaluationConfig,
) -> dict[str, list[Times]]:
    """Times of all splits on the first questions."""
    timed = list(rows.items())[: config.timed]
    questions = [placed.row.question for _, placed in timed]
    seeds = [derive_seed(config.seed, "evaluation", number) for number, _ in timed]
    taken = {
        split: [
            len(vote_in_stages(replace(loaded.panel, split=split), one, config.budget).places)
            for one in asked[: config.timed]
        ]
        for split in SPLITS
    }
    budget = config.budget
    with Progress(2 * len(timed), 0, "timing", line_seconds=10) as progress:
        return {
            "alone": times_alone(loaded, questions, seeds, budget, progress),
            "together": times_together(
                loaded, questions, seeds, taken, budget, config.lanes, progress
            ),
        }
