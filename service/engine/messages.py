"""Messages between the API process and a worker, and its configuration. Plain data, no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from latent.trajectory import Timing, Trajectory

__all__ = [
    "Failure",
    "Group",
    "Kind",
    "LaneReport",
    "ModelPlace",
    "OutOfMemory",
    "Ready",
    "RoundReport",
    "RoundTask",
    "Task",
    "View",
    "WorkerConfig",
]

Kind = Literal["solve", "diagnose", "trace"]
View = Literal["paths", "readings"]  # of the thoughts, for a trace
Group = tuple[Kind, str, str]  # kind of work, model, sampler: the same for all lanes of a round


@dataclass(frozen=True)
class ModelPlace:
    """A reasoner to load. Its fingerprint comes along, so that a restart hashes no weights."""

    name: str
    folder: Path
    fingerprint: str


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is started with."""

    models: tuple[ModelPlace, ...]
    device: str
    dtype: str
    threads: int
    prefix_cache_bytes: int
    log_format: Literal["auto", "json", "text"] = "auto"
    compiled_lanes: int = 0  # passes of up to so many lanes are compiled; 0: none


@dataclass(frozen=True)
class Task:
    """One job's lanes in a round."""

    job_id: str
    question: str
    seed: int
    indices: tuple[int, ...]
    wants_thoughts: bool = False  # the centroid vote needs the final thoughts
    answer: str | None = None  # the true answer, for a diagnosis
    views: tuple[View, ...] = ()  # for a trace
    wants_tokens: bool = False  # the decoded tokens, as text, with their log-probabilities
    wants_score: bool = False  # the verifier's, for its vote


@dataclass(frozen=True)
class RoundTask:
    """A round for a worker: one model, one sampler, one kind of work."""

    round_id: int
    group: Group
    tasks: tuple[Task, ...]
    lane_limit: int  # lanes on the device at once; a diagnosis or a trace may take several passes

    @property
    def lanes(self) -> int:
        """Lanes of all its tasks."""
        return sum(len(task.indices) for task in self.tasks)


@dataclass(frozen=True)
class LaneReport:
    """The finished lanes of one job. Their tokens stay in the worker unless the task wants them."""

    trajectories: tuple[Trajectory, ...]
    answer_tokens: tuple[int, ...]  # tokens decoded, per trajectory
    prompt_tokens: int
    timing: Timing
    snr: tuple[float, ...] | None = None  # per thought; of one question in a round
    findings: Mapping[str, Any] | None = None  # of a diagnosis or a trace

    def __reduce__(self) -> tuple[Any, ...]:
        """Send lanes as columns, and each text once: objects take the API process longer to read."""
        texts: dict[tuple[Any, ...], int] = {}
        codes = [
            texts.setdefault((each.text, each.answer, each.answer_start), len(texts))
            for each in self.trajectories
        ]
        finals = [each.final_thought for each in self.trajectories]
        scores = [each.score for each in self.trajectories]
        chains = [each.chain_logprob for each in self.trajectories]
        columns = (
            [each.index for each in self.trajectories],
            codes,
            [each.logprob for each in self.trajectories],
            self.answer_tokens,
            None if any(final is None for final in finals) else np.array(finals),
            None if any(score is None for score in scores) else scores,
            None if any(chain is None for chain in chains) else chains,
        )
        tokens = [
            (each.tokens, each.token_logprobs, each.token_texts) for each in self.trajectories
        ]
        is_bare = all(each.token_texts is None for each in self.trajectories)
        rest = (self.prompt_tokens, self.timing, self.snr, self.findings)
        return _unpack, (columns, tuple(texts), None if is_bare else tokens, rest)


def _unpack(
    columns: tuple[Any, ...],
    texts: tuple[tuple[Any, ...], ...],
    tokens: list[tuple[Any, ...]] | None,
    rest: tuple[Any, ...],
) -> LaneReport:
    indices, codes, logprobs, counts, finals, scores, chains = columns
    trajectories = []
    for row, (index, code, logprob) in enumerate(zip(indices, codes, logprobs, strict=True)):
        text, answer, start = texts[code]
        final = None if finals is None else finals[row]
        ids, token_logprobs, token_texts = ((), (), None) if tokens is None else tokens[row]
        trajectories.append(
            Trajectory(
                index,
                text,
                answer,
                logprob,
                ids,
                token_logprobs,
                start,
                final,
                score=None if scores is None else scores[row],
                token_texts=token_texts,
                chain_logprob=None if chains is None else chains[row],
            )
        )
    return LaneReport(tuple(trajectories), counts, *rest)


@dataclass(frozen=True)
class Failure:
    """Why one job's lanes could not be run; `param` names the field if the request is at fault."""

    message: str
    param: str | None = None
    is_users: bool = False


@dataclass(frozen=True)
class RoundReport:
    """A finished round: a result for each job in it, by job id."""

    round_id: int
    results: dict[str, LaneReport | Failure]
    seconds: float
    cache_hits: int = 0
    cache_misses: int = 0


@dataclass(frozen=True)
class OutOfMemory:
    """The round did not fit the device's memory."""

    round_id: int


@dataclass(frozen=True)
class Ready:
    """The worker has loaded its models and run each once, or failed to."""

    pid: int
    device: str  # the real one, where `auto` was asked for
    failure: str | None = None
    reproducible: Mapping[str, Literal["bits", "tokens"]] = field(default_factory=dict)  # by model
    dtypes: Mapping[str, str] = field(default_factory=dict)  # by model: what it computes in
