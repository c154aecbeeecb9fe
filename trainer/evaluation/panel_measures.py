"""Computes a panel's summary from drawn trajectories: accuracies, paired differences, calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from latent.answers import same_answer
from latent.familiarity import Familiarity
from latent.panel import Panel, Place, as_cast, panel_tally
from latent.trajectory import DETERMINISTIC, Trajectory
from latent.votes import Tally, tally
from trainer.evaluation.statistics import (
    RESAMPLES,
    Floats,
    expected_calibration_error,
    intervals,
)

__all__ = ["PANEL_VERSION", "Asked", "Times", "summarise_panel"]

PANEL_VERSION = "panel-1"
_LEVELS = (2.5, 97.5)


@dataclass(frozen=True)
class Asked:
    """A question's true answer, the trajectories of all members, and how familiar its words are."""

    truth: Decimal
    drawn: Mapping[Place, Trajectory]
    familiarity: Familiarity | None = None


@dataclass(frozen=True)
class Times:
    """Processor seconds of one question under each split."""

    fixed: float
    adaptive: float


@dataclass(frozen=True)
class _Voted:
    """A panel's vote on one question, and the trajectories that it took."""

    tally: Tally
    places: tuple[Place, ...]


def summarise_panel(
    panel: Panel,
    asked: Sequence[Asked],
    budget: int,
    times: Sequence[Times],
    *,
    seconds: Mapping[str, float],
    config: Mapping[str, Any],
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """Compute the summary; `seconds` are of one trajectory in a batch, by member."""
    ways = {
        "fixed": replace(panel, split="fixed"),
        "adaptive": replace(panel, split="adaptive"),
        "added shares": replace(panel, split="fixed", calibrations=()),
    }
    voted = {name: [_vote(way, one, budget) for one in asked] for name, way in ways.items()}
    alone = {
        label: np.array([_is_right(_alone(one, number, budget), one) for one in asked])
        for number, label in enumerate(panel.labels)
    }
    right = {
        name: np.array(
            [_is_right(one.tally.winner.answer, q) for one, q in zip(all_, asked, strict=True)]
        )
        for name, all_ in voted.items()
    }
    seed = int(config["seed"])
    return {
        "version": PANEL_VERSION,
        "config": dict(config),
        "panel": {
            "name": panel.name,
            "members": [
                {"member": member.label, "share": member.share} for member in panel.members
            ],
            "sure": panel.sure,
            "is_calibrated": panel.calibration("majority") is not None,
        },
        "data": dict(data),
        "members": {
            label: {
                "accuracy": _mean(values, seed),
                "deterministic": _mean(
                    np.array(
                        [
                            _is_right(one.drawn[Place(number, DETERMINISTIC)].answer, one)
                            for one in asked
                        ]
                    ),
                    seed,
                ),
                "seconds_per_trajectory": round(seconds[label], 6),
            }
            for number, (label, values) in enumerate(alone.items())
        },
        "panels": {
            name: {
                "accuracy": _mean(values, seed),
                "ece": _ece(voted[name], values),
                "trajectories": {
                    label: round(
                        float(np.mean([_count(one.places, number) for one in voted[name]])), 3
                    )
                    for number, label in enumerate(panel.labels)
                },
                "less": {
                    other: _mean(values - theirs, seed)
                    for other, theirs in {**alone, **right}.items()
                    if other != name
                },
            }
            for name, values in right.items()
        },
        "one_right": _mean(np.array([_any_right(panel, one, budget) for one in asked]), seed),
        "time": _time(times, seed),
    }


def _vote(panel: Panel, asked: Asked, budget: int) -> _Voted:
    """Vote as `ReasonerPanel.solve` does."""
    places = panel.places(budget)
    for end in panel.stages(places):
        cast = [
            as_cast(asked.drawn[place], position, panel.labels[place.member])
            for position, place in enumerate(places[:end])
        ]
        voted = _Voted(panel_tally(panel, cast, "majority", asked.familiarity), places[:end])
        if panel.is_sure(voted.tally) and end < len(places):
            break
    return voted


def _alone(asked: Asked, member: int, budget: int) -> Decimal | None:
    """The majority of a member's first `budget` samples."""
    own = [
        trajectory
        for place, trajectory in asked.drawn.items()
        if place.member == member and 0 <= place.index < budget
    ]
    return tally(own or [asked.drawn[Place(member, DETERMINISTIC)]]).winner.answer


def _any_right(panel: Panel, asked: Asked, budget: int) -> float:
    places = panel.places(budget)
    return float(any(_is_right(asked.drawn[place].answer, asked) for place in places))


def _is_right(answer: Decimal | None, asked: Asked) -> float:
    return float(same_answer(answer, asked.truth))


def _count(places: Sequence[Place], member: int) -> int:
    return sum(place.member == member for place in places)


def _ece(voted: Sequence[_Voted], right: Floats) -> float:
    """Expected calibration error of the probability, or of the share without a calibration."""
    said = [
        one.tally.winner.share if one.tally.probability is None else one.tally.probability
        for one in voted
    ]
    return round(expected_calibration_error(np.array(said), right, np.ones(len(right))), 6)


def _mean(values: Floats, seed: int) -> dict[str, float]:
    return asdict(intervals(values[:, None], seed)[0])


def _time(times: Sequence[Times], seed: int) -> dict[str, Any]:
    """Mean seconds of both splits, and the ratio of their sums with its bootstrap interval."""
    pairs = np.array([(one.fixed, one.adaptive) for one in times])
    drawn = np.random.default_rng(seed).integers(0, len(pairs), size=(RESAMPLES, len(pairs)))
    sums = pairs[drawn].sum(1)  # (resamples, 2)
    low, high = np.percentile(sums[:, 1] / sums[:, 0], _LEVELS)
    fixed, adaptive = pairs.mean(0)
    return {
        "questions": len(pairs),
        "fixed": round(float(fixed), 4),
        "adaptive": round(float(adaptive), 4),
        "ratio": {
            "value": round(float(adaptive / fixed), 4),
            "low": round(float(low), 4),
            "high": round(float(high), 4),
        },
    }
