"""Computes a summary from the records of an evaluation: every measure with its bootstrap interval.

Learned samplers are compared with all others, paired by question.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from latent.quality import GAIN_THRESHOLD, pass_at
from latent.regimes import Thresholds, regime
from latent.specs import SamplerSpec
from latent.stopping import checkpoints
from trainer.evaluation.config import GAIN_BUDGET, budgets_of
from trainer.evaluation.records import Record
from trainer.evaluation.statistics import Floats, interval, intervals, reliability, spread
from trainer.evaluation.summary import SUMMARY_VERSION

__all__ = ["summarise"]

StopKind = Literal["certainty", "confidence"]
_STOP_LEVELS: dict[StopKind, tuple[float, ...]] = {
    "certainty": (0.8, 0.9, 0.95, 0.99),
    "confidence": (0.6, 0.7, 0.8, 0.9, 0.95),
}
Measures = Mapping[str, Floats]  # name → one number per question, NaN where it is not defined


def summarise(
    records: Mapping[str, Sequence[Record]],
    *,
    config: Mapping[str, Any],
    model: Mapping[str, Any],
    data: Mapping[str, Any],
    seed: int,
    seed_groups: Sequence[Sequence[str]] = (),
    thresholds: Thresholds | None = None,
) -> dict[str, Any]:
    """Compute summary.json from the records of each sampler, in the order of the questions.

    A seed group holds the specs of learned samplers whose trainings differ only in the seed. The
    thresholds are the reasoner's, for the regimes.
    """
    columns = {spec: _Columns(spec, rows) for spec, rows in records.items()}
    sampled = {spec: column for spec, column in columns.items() if column.kind != "deterministic"}
    measures = {spec: column.compared() for spec, column in sampled.items()}
    learned = [spec for spec, column in sampled.items() if column.kind == "gts"]
    return {
        "version": SUMMARY_VERSION,
        "config": dict(config),
        "model": dict(model),
        "data": dict(data),
        # The records of every sampler have the deterministic answer.
        "deterministic": _deterministic(next(iter(records.values())), seed),
        "samplers": {spec: _sampler(column, seed, thresholds) for spec, column in columns.items()},
        "paired": [pair for spec in learned for pair in _differences(spec, measures, seed)],
        "seeds": _over_seeds(measures, seed_groups, seed),
        "seconds": round(sum(record.seconds for rows in records.values() for record in rows), 3),
    }


@dataclass(frozen=True)
class _Columns:
    """Measures of one sampler as arrays with one entry per question."""

    spec: str
    records: Sequence[Record]

    @property
    def kind(self) -> str:
        return SamplerSpec.parse(self.spec).kind

    @property
    def budget(self) -> int:
        return self.records[0].trajectories

    def pass_at(self, budget: int) -> Floats:
        """pass@budget, the unbiased estimate over subsets of the trajectories.

        Those of gts@auto have different scales, so of them only the first ones count.
        """
        if SamplerSpec.parse(self.spec).is_auto:
            return self.first_n(budget)
        table = [pass_at(self.budget, correct, budget) for correct in range(self.budget + 1)]
        return np.array([table[len(record.correct)] for record in self.records])

    def first_n(self, budget: int) -> Floats:
        """1 where one of the first `budget` trajectories is correct."""
        return np.array([float(min(r.correct, default=budget) < budget) for r in self.records])

    def unique(self, budget: int) -> Floats:
        return np.array([float(record.unique[str(budget)]) for record in self.records])

    def vote(self, kind: str, budget: int, place: int = 0) -> Floats:
        """A vote's correctness (place 0), share (1) or confidence (2)."""
        return np.array([record.votes[kind][str(budget)][place] for record in self.records])

    @property
    def is_served(self) -> bool:
        """Whether the sampler has a calibration."""
        return bool(self.records[0].served)

    def served(self, budget: int, kind: StopKind) -> Floats:
        """The calibrated confidence, or the certainty, of the majority of a budget."""
        place = 0 if kind == "confidence" else 1
        return np.array([record.served[str(budget)][place] for record in self.records])

    def numbers(self, field: str) -> Floats:
        """A numeric field of the records, NaN for null."""
        return np.array([getattr(record, field) for record in self.records], dtype=np.float64)

    def compared(self) -> dict[str, Floats]:
        """Measures by which samplers are compared."""
        budgets = sorted({8, 32, self.budget} & set(range(self.budget + 1)))
        voting = min(GAIN_BUDGET, self.budget)
        return {
            **{f"pass@{budget}": self.pass_at(budget) for budget in budgets},
            f"majority@{voting}": self.vote("majority", voting),
            "gain": self.numbers("gain"),
        }


def _deterministic(records: Sequence[Record], seed: int) -> dict[str, Any]:
    by_operations: defaultdict[int, list[bool]] = defaultdict(list)
    for record in records:
        if record.operations is not None:
            by_operations[record.operations].append(record.deterministic_correct)
    return {
        "accuracy": _mean([record.deterministic_correct for record in records], seed),
        "by_operations": {
            str(count): _mean(values, seed) for count, values in sorted(by_operations.items())
        },
    }


def _sampler(columns: _Columns, seed: int, thresholds: Thresholds | None) -> dict[str, Any]:
    budgets, votes = budgets_of(columns.budget), list(columns.records[0].votes)
    values: dict[tuple[str, int], Floats] = {}
    for budget in budgets:
        values["pass_at", budget] = columns.pass_at(budget)
        values["first_n", budget] = columns.first_n(budget)
        values["unique", budget] = columns.unique(budget)
        for kind in votes:
            values[kind, budget] = columns.vote(kind, budget)
    found = intervals(np.stack(list(values.values()), axis=1), seed)
    measured = {key: asdict(one) for key, one in zip(values, found, strict=True)}

    def series(name: str) -> dict[str, Any]:
        return {str(budget): measured[name, budget] for budget in budgets}

    gains = columns.numbers("gain")
    gain, js = _mean(gains, seed), _mean(columns.numbers("js"), seed)
    share, is_correct = (columns.vote("majority", columns.budget, place) for place in (1, 0))
    calibration = {"majority": asdict(reliability(share, is_correct))}
    if columns.is_served:
        confidence = columns.served(columns.budget, "confidence")
        calibration["served"] = asdict(reliability(confidence, is_correct))
    last = str(columns.budget)
    for vote in columns.records[0].confidences:
        confidence = np.array([record.confidences[vote][last] for record in columns.records])
        calibration[vote] = asdict(reliability(confidence, columns.vote(vote, columns.budget)))
    return {
        "pass_at": series("pass_at"),
        "first_n": series("first_n"),
        "unique": series("unique"),
        "votes": {kind: series(kind) for kind in votes},
        "gain": gain,
        "gain_whole": _mean(columns.numbers("gain_whole"), seed),
        "gain_rate": _mean(np.where(np.isnan(gains), np.nan, gains > GAIN_THRESHOLD), seed),
        "js": js,
        "regime": regime(gain["value"], js["value"], thresholds) if gain and js else None,
        "snr": _spread([record.snr for record in columns.records]),
        "sigma": _spread([record.sigma for record in columns.records]),
        "calibration": calibration,
        "stops": list(_stops(columns, seed)) if columns.is_served else [],
        "tokens": sum(record.tokens for record in columns.records),
        "trajectories": sum(record.trajectories for record in columns.records),
        "seconds": round(sum(record.seconds for record in columns.records), 3),
    }


def _stops(columns: _Columns, seed: int) -> Iterator[dict[str, Any]]:
    """Trajectories used and accuracy of adaptive budgets with several levels of both stops."""
    ends = [*checkpoints(columns.budget), columns.budget]
    right = np.stack([columns.vote("majority", end) for end in ends])  # (ends, questions)
    for kind, levels in _STOP_LEVELS.items():
        reached = np.stack([columns.served(end, kind) for end in ends])
        for level in levels:
            is_enough = reached >= level
            is_enough[-1] = True
            place = is_enough.argmax(0)  # the first end that suffices, for each question
            yield {
                "kind": kind,
                "level": level,
                "trajectories": _mean(np.array(ends, dtype=np.float64)[place], seed),
                "accuracy": _mean(np.take_along_axis(right, place[None], 0)[0], seed),
            }


def _over_seeds(
    measures: Mapping[str, Measures], seed_groups: Sequence[Sequence[str]], seed: int
) -> list[dict[str, Any]]:
    """Mean of each seed group, and its difference to every other sampler or group.

    A question's value is the mean over the group's samplers, and questions are resampled. A group
    goes by the name of its first sampler.
    """
    merged = dict(measures)
    for specs in seed_groups:
        members = [merged.pop(spec) for spec in specs]
        merged[specs[0]] = {
            name: np.mean([each[name] for each in members], axis=0) for name in members[0]
        }
    return [
        {
            "samplers": list(specs),
            "measures": {
                name: mean
                for name, values in merged[specs[0]].items()
                if (mean := _mean(values, seed))
            },
            "paired": _differences(specs[0], merged, seed),
        }
        for specs in seed_groups
    ]


def _differences(learned: str, measures: Mapping[str, Measures], seed: int) -> list[dict[str, Any]]:
    """Paired differences, the learned sampler minus each other one, for every measure."""
    rows = []
    for spec, theirs in measures.items():
        if spec == learned:
            continue
        for name, values in theirs.items():
            found = _mean(measures[learned][name] - values, seed)
            if found is not None:
                names = {"sampler": spec, "against": learned, "measure": name}
                rows.append({**names, "difference": found.pop("value"), **found})
    return rows


def _mean(values: Floats | Sequence[bool], seed: int) -> dict[str, float] | None:
    found = interval(np.asarray(values, dtype=np.float64), seed)
    return asdict(found) if found else None


def _spread(rows: Sequence[Sequence[float] | None]) -> list[dict[str, float]] | None:
    known = [row for row in rows if row is not None]
    return spread(np.array(known)) if known else None
