"""Results in, summary out: every figure with its interval, samplers compared by question."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latent.quality import GAIN_THRESHOLD, pass_at, regime
from latent.specs import SamplerSpec
from trainer.evaluation.config import GAIN_BUDGET, budgets_of
from trainer.evaluation.records import Record
from trainer.evaluation.statistics import interval, intervals, reliability, spread

__all__ = ["SUMMARY_VERSION", "summarise"]

SUMMARY_VERSION = 1

Floats = NDArray[np.float64]


def summarise(
    records: Mapping[str, Sequence[Record]],
    *,
    config: Mapping[str, Any],
    model: Mapping[str, Any],
    data: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """Give summary.json of results by sampler, each in the order of the questions."""
    groups = {spec: _Group(spec, rows) for spec, rows in records.items()}
    return {
        "version": SUMMARY_VERSION,
        "config": dict(config),
        "model": dict(model),
        "data": dict(data),
        # Every sampler's results have it, and it is the same in all.
        "deterministic": _deterministic(next(iter(records.values())), seed),
        "samplers": {spec: _sampler(group, seed) for spec, group in groups.items()},
        "paired": list(_paired(list(groups.values()), seed)),
        "seconds": round(sum(record.seconds for rows in records.values() for record in rows), 3),
    }


@dataclass(frozen=True)
class _Group:
    """One sampler's results as columns of numbers."""

    spec: str
    records: Sequence[Record]

    @property
    def kind(self) -> str:
        return SamplerSpec.parse(self.spec).kind

    @property
    def budget(self) -> int:
        return self.records[0].trajectories

    def pass_at(self, budget: int) -> Floats:
        """Give pass@budget of each question, without bias."""
        table = [pass_at(self.budget, right, budget) for right in range(self.budget + 1)]
        return np.array([table[len(record.correct)] for record in self.records])

    def first_n(self, budget: int) -> Floats:
        """Tell of each question whether one of its first trajectories is right."""
        return np.array([float(min(r.correct, default=budget) < budget) for r in self.records])

    def unique(self, budget: int) -> Floats:
        return np.array([float(record.unique[str(budget)]) for record in self.records])

    def vote(self, kind: str, budget: int, place: int = 0) -> Floats:
        """Give a vote's correctness (0), share (1) or confidence (2) of each question."""
        return np.array([record.votes[kind][str(budget)][place] for record in self.records])

    def numbers(self, field: str) -> Floats:
        """Give a measure of each question, NaN where it is null."""
        values = [getattr(record, field) for record in self.records]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _deterministic(records: Sequence[Record], seed: int) -> dict[str, Any]:
    by_operations: defaultdict[int, list[float]] = defaultdict(list)
    for record in records:
        if record.operations is not None:
            by_operations[record.operations].append(float(record.deterministic_correct))
    right = [float(record.deterministic_correct) for record in records]
    return {
        "accuracy": asdict(interval(right, seed)),
        "by_operations": {
            str(count): asdict(interval(values, seed))
            for count, values in sorted(by_operations.items())
        },
    }


def _sampler(group: _Group, seed: int) -> dict[str, Any]:
    budgets, kinds = budgets_of(group.budget), list(group.records[0].votes)
    columns: dict[tuple[str, int], Floats] = {}
    for budget in budgets:
        columns["pass_at", budget] = group.pass_at(budget)
        columns["first_n", budget] = group.first_n(budget)
        columns["unique", budget] = group.unique(budget)
        for kind in kinds:
            columns[kind, budget] = group.vote(kind, budget)
    found = intervals(np.stack(list(columns.values()), axis=1), seed)
    measured = {key: asdict(one) for key, one in zip(columns, found, strict=True)}

    def series(name: str) -> dict[str, Any]:
        return {str(budget): measured[name, budget] for budget in budgets}

    gain, js = _mean(group.numbers("gain"), seed), _mean(group.numbers("js"), seed)
    majority = [group.vote("majority", group.budget, place) for place in (1, 0)]
    return {
        "pass_at": series("pass_at"),
        "first_n": series("first_n"),
        "unique": series("unique"),
        "votes": {kind: series(kind) for kind in kinds},
        "gain": gain,
        "gain_whole": _mean(group.numbers("gain_whole"), seed),
        "gain_rate": _mean(_above(group.numbers("gain"), GAIN_THRESHOLD), seed),
        "js": js,
        "regime": regime(gain["value"], js["value"]) if gain and js else None,
        "snr": _spread([record.snr for record in group.records]),
        "sigma": _spread([record.sigma for record in group.records]),
        "calibration": {"majority": asdict(reliability(*majority))},
        "tokens": sum(record.tokens for record in group.records),
        "trajectories": sum(record.trajectories for record in group.records),
        "seconds": round(sum(record.seconds for record in group.records), 3),
    }


def _mean(values: Floats, seed: int) -> dict[str, float] | None:
    """Give mean and interval over the questions that have the number; None if none has."""
    known = values[~np.isnan(values)]
    return asdict(interval(known.tolist(), seed)) if len(known) else None


def _above(values: Floats, threshold: float) -> Floats:
    return np.where(np.isnan(values), np.nan, values > threshold)


def _spread(rows: Sequence[Sequence[float] | None]) -> list[dict[str, float]] | None:
    there = [row for row in rows if row is not None]
    return [asdict(one) for one in spread(np.array(there))] if there else None


def _paired(groups: Sequence[_Group], seed: int) -> Iterator[dict[str, Any]]:
    """Compare each sampler with each learned one: the learned one less the other, by question."""
    sampled = [group for group in groups if group.kind != "deterministic"]
    for against in (group for group in sampled if group.kind == "gts"):
        theirs = _compared(against)
        for group in sampled:
            if group is against:
                continue
            for name, values in _compared(group).items():
                differences = theirs[name] - values
                known = differences[~np.isnan(differences)]
                if not len(known):
                    continue
                found = interval(known.tolist(), seed)
                yield {
                    "sampler": group.spec,
                    "against": against.spec,
                    "measure": name,
                    "difference": found.value,
                    "low": found.low,
                    "high": found.high,
                }


def _compared(group: _Group) -> dict[str, Floats]:
    budgets = sorted({8, 32, group.budget} & set(range(group.budget + 1)))
    voting = min(GAIN_BUDGET, group.budget)
    return {
        **{f"pass@{budget}": group.pass_at(budget) for budget in budgets},
        f"majority@{voting}": group.vote("majority", voting),
        "gain": group.numbers("gain"),
    }
