"""What the API process and a worker say to each other. Plain data, no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from latent.trajectory import Timing, Trajectory

__all__ = [
    "Failure",
    "LaneReport",
    "ModelPlace",
    "OutOfMemory",
    "Ready",
    "RoundReport",
    "RoundTask",
    "Task",
    "WorkerConfig",
]


@dataclass(frozen=True)
class ModelPlace:
    """A reasoner to serve: its name and folder."""

    name: str
    folder: Path


@dataclass(frozen=True)
class WorkerConfig:
    """All that a worker is told at its start."""

    models: tuple[ModelPlace, ...]
    device: str
    dtype: str
    threads: int
    prefix_cache_bytes: int
    log_format: Literal["auto", "json", "text"] = "auto"


@dataclass(frozen=True)
class Task:
    """One job's lanes in a round."""

    job_id: str
    question: str
    seed: int
    indices: tuple[int, ...]
    wants_thoughts: bool = False  # the centroid vote needs the final ones
    answer: str | None = None  # for a diagnosis


@dataclass(frozen=True)
class RoundTask:
    """A round for a worker: one model, one sampler, one kind of work."""

    round_id: int
    kind: str  # "solve" or "diagnose"
    model: str
    sampler: str
    tasks: tuple[Task, ...]
    lane_limit: int  # of lanes on the device at once; a diagnosis may have more than one pass


@dataclass(frozen=True)
class LaneReport:
    """What came of one job's lanes."""

    trajectories: tuple[Trajectory, ...]
    prompt_tokens: int
    timing: Timing
    snr: tuple[float, ...] | None = None
    final_thoughts: NDArray[np.float64] | None = None
    diagnosis: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Failure:
    """Why one job's lanes could not be run; `param` names the field where the user is to blame."""

    message: str
    param: str | None = None
    is_users: bool = False


@dataclass(frozen=True)
class RoundReport:
    """A finished round."""

    round_id: int
    results: dict[str, LaneReport | Failure]
    seconds: float
    cache_hits: int = 0
    cache_misses: int = 0


@dataclass(frozen=True)
class OutOfMemory:
    """The device had no room for this round."""

    round_id: int


@dataclass(frozen=True)
class Ready:
    """The worker has loaded and warmed everything up."""

    pid: int
    device: str
    failure: str | None = None
