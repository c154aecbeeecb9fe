"""Results in, summary out: every figure with its interval, samplers compared by question."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from latent.quality import GAIN_THRESHOLD, regime
from trainer.evaluation.comparisons import over_seeds, paired
from trainer.evaluation.config import budgets_of
from trainer.evaluation.records import Record
from trainer.evaluation.report.columns import Columns, Floats
from trainer.evaluation.statistics import (
    interval,
    intervals,
    known_interval,
    reliability,
    spread,
)

__all__ = ["SUMMARY_VERSION", "summarise"]

SUMMARY_VERSION = 1


def summarise(
    records: Mapping[str, Sequence[Record]],
    *,
    config: Mapping[str, Any],
    model: Mapping[str, Any],
    data: Mapping[str, Any],
    seed: int,
    alike: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:
    """Give summary.json of results by sampler, each in the order of the questions.

    `alike` are learned samplers, by spec, that were trained alike but for the seed.
    """
    groups = {spec: Columns(spec, rows) for spec, rows in records.items()}
    sampled = {spec: group for spec, group in groups.items() if group.kind != "deterministic"}
    learned = [spec for spec, group in sampled.items() if group.kind == "gts"]
    measures = {spec: group.compared() for spec, group in sampled.items()}
    return {
        "version": SUMMARY_VERSION,
        "config": dict(config),
        "model": dict(model),
        "data": dict(data),
        # Every sampler's results have it, and it is the same in all.
        "deterministic": _deterministic(next(iter(records.values())), seed),
        "samplers": {spec: _sampler(group, seed) for spec, group in groups.items()},
        "paired": paired(measures, learned, seed),
        "seeds": over_seeds(measures, alike, seed),
        "seconds": round(sum(record.seconds for rows in records.values() for record in rows), 3),
    }


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


def _sampler(group: Columns, seed: int) -> dict[str, Any]:
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
    found = known_interval(values, seed)
    return asdict(found) if found else None


def _above(values: Floats, threshold: float) -> Floats:
    return np.where(np.isnan(values), np.nan, values > threshold)


def _spread(rows: Sequence[Sequence[float] | None]) -> list[dict[str, float]] | None:
    there = [row for row in rows if row is not None]
    return [asdict(one) for one in spread(np.array(there))] if there else None
