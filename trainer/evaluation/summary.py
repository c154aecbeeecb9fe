"""The format of summary.json: its version, its fields as pydantic models, and reading it."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from latent.errors import FormatError, MismatchError, NotFoundError, SpecError
from latent.files import read_json
from latent.specs import SamplerSpec
from trainer.data.sources import Malformed
from trainer.evaluation.records import first_error
from trainer.evaluation.statistics import Interval, Reliability

__all__ = [
    "SUMMARY_VERSION",
    "ModelCard",
    "Paired",
    "SamplerResult",
    "Seeds",
    "Series",
    "Summary",
    "read_run",
    "read_snr",
    "read_summary",
    "read_summary_of",
]

SUMMARY_VERSION = 1

# Intervals by budget N (or by number of operations), ascending.
Series = Annotated[dict[int, Interval], AfterValidator(lambda series: dict(sorted(series.items())))]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Config(_Frozen):
    """Settings of the run; settings that no report needs are kept as they are."""

    model_config = ConfigDict(extra="allow")

    model: str
    data: str
    samplers: list[str]
    budget: int
    seed: int
    gain_budget: int
    limit: int | None = None


class ModelCard(_Frozen):
    """The reasoner that was measured."""

    name: str
    kind: str
    fingerprint: str
    thoughts: int
    width: int
    parameters: int


class DataCard(_Frozen):
    """The questions that were asked, and the rows that could not be."""

    name: str
    rows: int
    malformed: tuple[Malformed, ...]


class Deterministic(_Frozen):
    """Accuracy of the deterministic trajectory."""

    accuracy: Interval
    by_operations: Series


class StopResult(_Frozen):
    """An adaptive budget: trajectories that it used on average, and how often it was right."""

    kind: Literal["certainty", "confidence"]
    level: float
    trajectories: Interval
    accuracy: Interval


class SamplerResult(_Frozen):
    """Measures of one sampler over all questions."""

    spec: str
    pass_at: Annotated[Series, Field(min_length=1)]
    unique: Annotated[Series, Field(min_length=1)]
    votes: dict[str, Series]
    gain: Interval | None
    gain_whole: Interval | None = None  # SG of the whole answer, for single-digit tokens
    gain_rate: Interval | None
    js: Interval | None
    regime: str | None
    # Of the majority's share; `served`: of its calibrated confidence; else: that of the vote named.
    calibration: dict[str, Reliability]
    stops: tuple[StopResult, ...] = ()
    tokens: int
    trajectories: int
    seconds: float

    @field_validator("spec")
    @classmethod
    def _check_spec(cls, spec: str) -> str:
        try:
            SamplerSpec.parse(spec)
        except SpecError as error:
            raise ValueError(str(error)) from error
        return spec

    @property
    def is_learned(self) -> bool:
        return SamplerSpec.parse(self.spec).kind == "gts"

    @property
    def has_samples(self) -> bool:
        return SamplerSpec.parse(self.spec).kind != "deterministic"

    @property
    def largest_pass_at(self) -> Interval:
        """pass@N at the largest N."""
        return self.pass_at[max(self.pass_at)]

    @property
    def majority(self) -> Series:
        """majority@N; empty where it was not measured."""
        return self.votes.get("majority", {})


class Paired(_Frozen):
    """A learned sampler (`against`) minus another one, paired by question."""

    sampler: str
    against: str
    measure: str
    difference: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        return Interval(self.difference, self.low, self.high)


class Seeds(_Frozen):
    """Mean over learned samplers whose trainings differ only in the seed."""

    samplers: tuple[str, ...]
    measures: dict[str, Interval]
    paired: tuple[Paired, ...]  # `against` is the first of the samplers


class Summary(_Frozen):
    """One evaluation."""

    config: Config
    model: ModelCard
    data: DataCard
    deterministic: Deterministic
    samplers: tuple[SamplerResult, ...]  # in the order of the command
    paired: tuple[Paired, ...]
    seeds: tuple[Seeds, ...] = ()
    seconds: float

    @field_validator("samplers", mode="before")
    @classmethod
    def _add_specs(cls, samplers: Any) -> Any:
        """Turn {spec: result} into a list of results with their spec."""
        if not isinstance(samplers, dict):
            raise ValueError("must be an object")
        return [
            {"spec": spec, **result} if isinstance(result, dict) else result
            for spec, result in samplers.items()
        ]

    @property
    def accuracy(self) -> Interval:
        """Accuracy of the deterministic trajectory."""
        return self.deterministic.accuracy

    @property
    def sampling(self) -> tuple[SamplerResult, ...]:
        """All samplers except the deterministic one."""
        return tuple(sampler for sampler in self.samplers if sampler.has_samples)

    @property
    def learned(self) -> tuple[SamplerResult, ...]:
        return tuple(sampler for sampler in self.samplers if sampler.is_learned)

    def first_seeds(self) -> "Summary":
        """Keep only the first sampler of each seed group, so that figures stay readable."""
        repeats = {spec for one in self.seeds for spec in one.samplers[1:]}
        return self.model_copy(
            update={
                "samplers": tuple(one for one in self.samplers if one.spec not in repeats),
                "paired": tuple(p for p in self.paired if not {p.sampler, p.against} & repeats),
            }
        )


def read_run(folder: Path) -> Summary:
    """Read the summary in the folder of a finished evaluation."""
    if not folder.is_dir():
        raise NotFoundError(f"{folder} is no folder; give one that gts evaluate wrote")
    if not (folder / "summary.json").is_file():
        raise NotFoundError(
            f"{folder} has no summary.json; gts evaluate writes one when it has finished"
        )
    return read_summary(folder / "summary.json")


def read_summary(path: Path) -> Summary:
    """Read a summary; errors name the file and the field."""
    data = read_json(path)
    version = data.get("version") if isinstance(data, dict) else None
    if version is None:
        raise FormatError(f"{path} is not a summary of gts evaluate: it has no version")
    if version != SUMMARY_VERSION:
        raise MismatchError(
            f"{path} is of version {version}, and this program reads {SUMMARY_VERSION}; "
            "run gts evaluate again"
        )
    try:
        return Summary.model_validate(data)
    except ValidationError as error:
        raise FormatError(f"{path}: {first_error(error)}") from error


def read_summary_of(path: Path, fingerprint: str, folder: Path) -> Summary:
    """Read a summary; refuse one of another reasoner than that of `folder`."""
    run = read_summary(path)
    if run.model.fingerprint != fingerprint:
        raise MismatchError(f"{path} is of another reasoner than {folder}")
    return run


class _SnrRecord(BaseModel):
    """The fields of a results.jsonl line that the SNR figure needs."""

    sampler: str
    snr: list[float] | None


def read_snr(results: Path) -> dict[str, list[list[float]]]:
    """SNR of each learned sampler, (questions, thoughts), from results.jsonl if it exists."""
    found: dict[str, list[list[float]]] = {}
    if not results.exists():
        return found
    for number, line in enumerate(results.read_bytes().splitlines(), start=1):
        try:
            record = _SnrRecord.model_validate_json(line)
        except ValidationError as error:
            raise FormatError(
                f"{results}, line {number} is no result: {first_error(error)}"
            ) from error
        if record.snr is not None:  # only learned samplers have one
            found.setdefault(record.sampler, []).append(record.snr)
    return found
