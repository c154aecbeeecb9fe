"""Samplers compared question by question, learned ones with all; seeds of one training together."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from trainer.evaluation.report.columns import Floats
from trainer.evaluation.statistics import known_interval

__all__ = ["over_seeds", "paired"]

Measures = Mapping[str, Floats]  # by name, a number for each question; NaN where there is none


def paired(
    measures: Mapping[str, Measures], learned: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """Compare each sampler with each learned one: the learned one less the other."""
    return [row for against in learned for row in _differences(against, measures, seed)]


def over_seeds(
    measures: Mapping[str, Measures], alike: Sequence[Sequence[str]], seed: int
) -> list[dict[str, Any]]:
    """Give the mean over training seeds, and what it adds to each other sampler.

    A question's number is the mean of the seeds' own, and questions are resampled. Samplers that
    were trained alike are one on the other side too, under the first one's name.
    """
    merged = dict(measures)
    for specs in alike:
        together = [merged.pop(spec) for spec in specs]
        merged[specs[0]] = {
            name: np.mean([each[name] for each in together], axis=0) for name in together[0]
        }
    return [
        {
            "samplers": list(specs),
            "measures": {
                name: asdict(found)
                for name, values in merged[specs[0]].items()
                if (found := known_interval(values, seed))
            },
            "paired": _differences(specs[0], merged, seed),
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
            found = known_interval(measures[against][name] - values, seed)
            if found is None:
                continue
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
