"""What an evaluation found, as its reports see it: the records that summary.json holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from latent.specs import SamplerSpec

__all__ = [
    "Bin",
    "Calibration",
    "Interval",
    "Malformed",
    "ModelFacts",
    "Paired",
    "Run",
    "SamplerResult",
    "Seeds",
    "Series",
]


@dataclass(frozen=True)
class Interval:
    """A measured value and its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear_of_zero(self) -> bool:
        """Tell whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


Series = Mapping[int, Interval]  # by budget N, ascending


@dataclass(frozen=True)
class Bin:
    """The questions whose winner had a share between low and high."""

    low: float
    high: float
    count: int
    share: float  # mean over the bin; 0 when it is empty
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """How often a vote's winner is right, by its share."""

    ece: float
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class SamplerResult:
    """What one sampler did on all questions."""

    spec: str
    pass_at: Series
    unique: Series
    votes: Mapping[str, Series]
    gain: Interval | None
    gain_whole: Interval | None  # SG of the whole answer, where a token is a digit
    gain_rate: Interval | None
    js: Interval | None
    regime: str | None
    calibration: Mapping[str, Calibration]
    tokens: int
    trajectories: int
    seconds: float

    @property
    def is_learned(self) -> bool:
        """Tell a GTS from the baselines."""
        return SamplerSpec.parse(self.spec).kind == "gts"

    @property
    def has_samples(self) -> bool:
        """Tell whether it draws, so that a budget means something."""
        return SamplerSpec.parse(self.spec).kind != "deterministic"


@dataclass(frozen=True)
class ModelFacts:
    """The reasoner that was measured."""

    name: str
    kind: str
    fingerprint: str
    thoughts: int
    width: int
    parameters: int


@dataclass(frozen=True)
class Malformed:
    """A row that was left out, and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class Paired:
    """A learned sampler less another one, on the same questions."""

    sampler: str
    against: str
    measure: str
    difference: Interval


@dataclass(frozen=True)
class Seeds:
    """Learned samplers that were trained alike but for the seed, taken together."""

    samplers: tuple[str, ...]
    measures: Mapping[str, Interval]
    paired: tuple[Paired, ...]  # `against` is the first of the samplers


@dataclass(frozen=True)
class Run:
    """One evaluation."""

    config: Mapping[str, Any]
    model: ModelFacts
    data_name: str
    rows: int
    malformed: tuple[Malformed, ...]
    accuracy: Interval  # of the deterministic trajectory
    accuracy_by_operations: Series
    samplers: tuple[SamplerResult, ...]  # in the order of the command
    paired: tuple[Paired, ...]
    seeds: tuple[Seeds, ...]
    seconds: float

    @property
    def budget(self) -> int:
        """The largest N."""
        return int(self.config["budget"])

    @property
    def sampling(self) -> tuple[SamplerResult, ...]:
        """The samplers that draw."""
        return tuple(sampler for sampler in self.samplers if sampler.has_samples)

    @property
    def learned(self) -> tuple[SamplerResult, ...]:
        """The samplers that were trained."""
        return tuple(sampler for sampler in self.samplers if sampler.is_learned)

    def without_repeats(self) -> "Run":
        """Leave out all but the first of samplers that were trained alike, for pictures."""
        repeats = {spec for one in self.seeds for spec in one.samplers[1:]}
        return replace(
            self,
            samplers=tuple(one for one in self.samplers if one.spec not in repeats),
            paired=tuple(p for p in self.paired if not {p.sampler, p.against} & repeats),
        )
