"""Samplers compared question by question, learned ones with all; seeds of one training together."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from trainer.evaluation.columns import Columns, Floats
from trainer.evaluation.statistics import interval

__all__ = ["over_seeds", "paired"]

Measures = Mapping[str, Floats]  # by name, a number for each question; NaN where there is none


def paired(sampled: Sequence[Columns], seed: int) -> list[dict[str, Any]]:
    """Compare each sampler with each learned one: the learned one less the other."""
    measures = {one.spec: one.compared() for one in sampled}
    return [
        row
        for against in sampled
        if against.kind == "gts"
        for row in _differences(against.spec, measures, seed)
    ]


def over_seeds(
    sampled: Sequence[Columns], alike: Sequence[Sequence[str]], seed: int
) -> list[dict[str, Any]]:
    """Give the mean over training seeds, and what it adds to each other sampler.

    A question's number is the mean of the seeds' own, and questions are resampled. Samplers that
    were trained alike are one on the other side too, under the first one's name.
    """
    measures: dict[str, Measures] = {one.spec: one.compared() for one in sampled}
    for specs in alike:
        together = [measures.pop(spec) for spec in specs]
        measures[specs[0]] = {
            name: np.mean([each[name] for each in together], axis=0) for name in together[0]
        }
    return [
        {
            "samplers": list(specs),
            "measures": {
                name: asdict(interval(known.tolist(), seed))
                for name, values in measures[specs[0]].items()
                if len(known := values[~np.isnan(values)])
            },
            "paired": _differences(specs[0], measures, seed),
        }
        for specs in alike
    ]


def _differences(against: str, measures: Mapping[str, Measures], seed: int) -> list[dict[str, Any]]:
    """Take each other sampler from this one, measure by measure."""
    rows = []
    for spec, theirs in measures.items():
        if spec == against:
            continue
        for name, values in theirs.items():
            differences = measures[against][name] - values
            known = differences[~np.isnan(differences)]
            if not len(known):
                continue
            found = interval(known.tolist(), seed)
            rows.append(
                {
                    "sampler": spec,
                    "against": against,
                    "measure": name,
                    "difference": found.value,
                    "low": found.low,
                    "high": found.high,
                }
            )
    return rows
