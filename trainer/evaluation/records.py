"""Results of an evaluation, one record per (sampler, question), and the folder that stores them."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from latent.answers import format_answer, same_answer, show_answer
from latent.calibration import Calibration, confidence_of
from latent.errors import FormatError, MismatchError
from latent.exploration import Exploration
from latent.familiarity import Familiarity
from latent.files import read_json, write_json, write_text
from latent.quality import unique_answers
from latent.trajectory import Trajectory
from latent.votes import VoteKind, certainty_of, tally
from trainer.evaluation.config import budgets_of
from trainer.runs.ranks import Ranks

__all__ = ["MEASURED_VOTES", "EvaluationFolder", "Question", "Record", "first_error", "judge"]

# Votes whose calibrated confidence is measured.
MEASURED_VOTES: tuple[VoteKind, ...] = ("majority", "likelihood", "verifier")
_DECIMALS = 6
# Folders with another version are refused: their records lack votes that are counted now.
_VERSION = {"record_version": 2}


@dataclass(frozen=True)
class Question:
    """An encoded question with its true answer."""

    index: int
    prompt: tuple[int, ...]
    truth: Decimal
    target: tuple[int, ...] | None  # tokens of the true answer; None if the format can't express it
    operations: int | None
    seed: int
    familiarity: Familiarity | None = None


@dataclass(frozen=True)
class Record:
    """One line of results.jsonl; budgets are dictionary keys."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    sampler: str
    index: int
    truth: str
    operations: int | None
    deterministic: str | None
    deterministic_correct: bool
    correct: list[int]  # indices of the correct trajectories
    unique: dict[str, int]
    votes: dict[
        str, dict[str, list[int | float]]
    ]  # vote → budget → [is correct, share, confidence]
    gain: float | None
    gain_whole: float | None
    gain_share: float | None
    js: float | None
    snr: list[float] | None
    sigma: list[float] | None
    tokens: int
    prompt_tokens: int
    trajectories: int
    seconds: float
    # budget → [calibrated confidence, certainty] of the majority; empty without a calibration
    served: dict[str, list[float]] = field(default_factory=dict)
    # vote → budget → calibrated confidence, of the others of `MEASURED_VOTES` that are calibrated
    confidences: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """Sampler and question: unique within a run."""
        return self.sampler, self.index

    def to_line(self) -> str:
        """JSON line, with its newline."""
        return json.dumps(vars(self), separators=(",", ":"), allow_nan=False) + "\n"

    @classmethod
    def from_line(cls, line: str | bytes) -> "Record":
        """Parse a JSON line; raises pydantic's ValidationError."""
        return _RECORD.validate_json(line)


_RECORD = TypeAdapter(Record)


def first_error(error: ValidationError) -> str:
    """Field and message of a validation's first error, in one line."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {first['msg']}" if field else first["msg"]


def judge(
    question: Question,
    sampler: str,
    deterministic: Trajectory,
    samples: Sequence[Trajectory],
    explored: Exploration,
    *,
    tokens: int,
    seconds: float,
    calibrations: Mapping[VoteKind, Calibration] | None = None,
) -> Record:
    """Compare the trajectories of a question with its true answer, at every budget.

    `calibrations` are those of the sampler, by vote.
    """
    budgets = budgets_of(len(samples))
    known, familiarity = calibrations or {}, question.familiarity
    answers = [trajectory.answer for trajectory in samples]
    return Record(
        sampler=sampler,
        index=question.index,
        truth=format_answer(question.truth),
        operations=question.operations,
        deterministic=show_answer(deterministic.answer),
        deterministic_correct=same_answer(deterministic.answer, question.truth),
        correct=[n for n, answer in enumerate(answers) if same_answer(answer, question.truth)],
        unique={str(budget): unique_answers(answers[:budget]) for budget in budgets},
        votes={
            kind: {str(budget): _vote(samples[:budget], kind, question.truth) for budget in budgets}
            for kind in _vote_kinds(samples)
        },
        gain=_finite(explored.gain),
        gain_whole=_finite(explored.gain_whole),
        gain_share=_finite(explored.gain_share),
        js=_finite(explored.js),
        snr=_rounded(explored.snr),
        sigma=_rounded(explored.sigma),
        tokens=tokens,
        prompt_tokens=len(question.prompt),
        trajectories=len(samples),
        seconds=seconds,
        served={}
        if "majority" not in known
        else {
            str(budget): _served(samples[:budget], known["majority"], familiarity)
            for budget in budgets
        },
        confidences={
            vote: {
                str(budget): _confidence(samples[:budget], known[vote], familiarity)
                for budget in budgets
            }
            for vote in MEASURED_VOTES
            if vote != "majority" and vote in known
        },
    )


def _served(
    trajectories: Sequence[Trajectory], calibration: Calibration, familiarity: Familiarity | None
) -> list[float]:
    voted = tally(trajectories, "majority")
    confidence = confidence_of(voted, calibration, familiarity).value
    return [round(value, _DECIMALS) for value in (confidence, certainty_of(voted.candidates))]


def _confidence(
    trajectories: Sequence[Trajectory], calibration: Calibration, familiarity: Familiarity | None
) -> float:
    voted = tally(trajectories, calibration.vote)
    return round(confidence_of(voted, calibration, familiarity).value, _DECIMALS)


def _vote(trajectories: Sequence[Trajectory], kind: VoteKind, truth: Decimal) -> list[int | float]:
    winner = tally(trajectories, kind).winner
    is_correct = int(same_answer(winner.answer, truth))
    return [is_correct, round(winner.share, _DECIMALS), round(winner.confidence, _DECIMALS)]


def _vote_kinds(samples: Sequence[Trajectory]) -> list[VoteKind]:
    """Votes that these samples allow: with final thoughts the centroid, else that of checked text.

    The likelihood's is there if their chains have probabilities, the verifier's if they have scores.
    """
    without = {"centroid" if samples[0].final_thought is None else "checked"}
    if samples[0].chain_logprob is None:
        without.add("likelihood")
    if samples[0].score is None:
        without.add("verifier")
    kinds: tuple[VoteKind, ...] = get_args(VoteKind)
    return [kind for kind in kinds if kind not in without]


def _finite(value: float | None) -> float | None:
    return round(value, _DECIMALS) if value is not None and math.isfinite(value) else None


def _rounded(values: Sequence[float] | None) -> list[float] | None:
    return None if values is None else [round(value, _DECIMALS) for value in values]


class EvaluationFolder:
    """Files of one evaluation: config.json, parts/, and in the end results.jsonl and summary.json.

    Each rank appends to its own file in parts/; a resumed run reads them all, whatever the number
    of ranks that wrote them.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._parts = out / "parts"

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse to resume another evaluation, naming the first setting that differs."""
        path, identity = self._out / "config.json", {**identity, **_VERSION}
        if not path.is_file():
            return
        saved = read_json(path)
        if not isinstance(saved, dict) or not saved.keys() & identity.keys():
            raise FormatError(f"{path} is not an evaluation's; use another --out", param="out")
        if any(saved.get(name) != value for name, value in _VERSION.items()):
            raise MismatchError(
                f"{self._out} was begun by another version of gts; use another --out", param="out"
            )
        for name in (*identity, *saved):
            if identity.get(name) != saved.get(name):
                raise MismatchError(
                    f"{self._out} was begun with {name} = {saved.get(name)!r}, not "
                    f"{identity.get(name)!r}; use the same command to go on, or another --out",
                    param="out",
                )

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Store the identity that `check` compares with."""
        write_json(self._out / "config.json", {**identity, **_VERSION})

    def read(self) -> list[Record]:
        """Read the complete lines of every part."""
        records = []
        for path in sorted(self._parts.glob("*.jsonl")):
            data = path.read_bytes()
            for number, line in enumerate(data[: _complete(data)].splitlines(), start=1):
                try:
                    records.append(Record.from_line(line))
                except ValidationError as error:
                    raise FormatError(
                        f"{path}, line {number} is no result: {first_error(error)}"
                    ) from error
        return records

    @contextmanager
    def appending(self, ranks: Ranks) -> Iterator[TextIO]:
        """Open this rank's part for appending, without a last line that was written only partly."""
        self._parts.mkdir(parents=True, exist_ok=True)
        path = self._parts / f"rank-{ranks.rank}-of-{ranks.size}.jsonl"
        path.touch()
        data = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(_complete(data))
        with path.open("a", encoding="utf-8") as part:
            yield part

    def finish(self, records: Sequence[Record], summary: Mapping[str, Any]) -> None:
        """Write the results, then the summary, whose presence marks a finished evaluation."""
        text = "".join(record.to_line() for record in records)
        write_text(self._out / "results.jsonl", text)
        write_json(self._out / "summary.json", dict(summary))


def _complete(data: bytes) -> int:
    """Number of bytes up to and with the last newline."""
    return data.rfind(b"\n") + 1
