"""Computes a panel's summary from drawn trajectories: accuracies, paired differences, calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from latent.answers import same_answer
from latent.familiarity import Familiarity
from latent.panel import SPLITS, Panel, Place, as_cast, panel_tally
from latent.trajectory import DETERMINISTIC, Trajectory
from latent.votes import Tally, VoteKind, tally
from trainer.evaluation.panel_times import Times
from trainer.evaluation.statistics import (
    RESAMPLES,
    Floats,
    expected_calibration_error,
    intervals,
)

__all__ = ["PANEL_VERSION", "Asked", "Voted", "summarise_panel", "vote_in_stages"]

PANEL_VERSION = "panel-3"
_LEVELS = (2.5, 97.5)


@dataclass(frozen=True)
class Asked:
    """A question's true answer, the trajectories of all members, and how familiar its words are."""

    truth: Decimal
    drawn: Mapping[Place, Trajectory]
    familiarity: Familiarity | None = None


@dataclass(frozen=True)
class Voted:
    """A panel's vote on one question, and the trajectories that it took."""

    tally: Tally
    places: tuple[Place, ...]


def summarise_panel(
    panel: Panel,
    asked: Sequence[Asked],
    budget: int,
    times: Mapping[str, Sequence[Times]],
    *,
    votes: Mapping[str, VoteKind],
    seconds: Mapping[str, float],
    config: Mapping[str, Any],
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """Compute the summary; `votes` are the members' when they answer alone.

    `seconds` are of one trajectory in a batch, by member; `times` are of all splits, by how the
    questions were asked.
    """
    ways: dict[str, Panel] = {
        **{split: replace(panel, split=split) for split in SPLITS},
        "added shares": replace(panel, split="fixed", calibrations=()),
    }
    voted = {
        name: [vote_in_stages(way, one, budget) for one in asked] for name, way in ways.items()
    }
    alone = {
        label: np.array(
            [_is_right(_alone(one, number, budget, votes[label]), one) for one in asked]
        )
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
                "vote": votes[label],
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
        "time": {way: _time(each, seed) for way, each in times.items()},
    }


def vote_in_stages(panel: Panel, asked: Asked, budget: int) -> Voted:
    """Vote as `ReasonerPanel.solve` does."""
    places = panel.places(budget)
    for end in panel.stages(places):
        cast = [
            as_cast(asked.drawn[place], position, panel.labels[place.member])
            for position, place in enumerate(places[:end])
        ]
        voted = Voted(panel_tally(panel, cast, "majority", asked.familiarity), places[:end])
        if panel.is_sure(voted.tally) and end < len(places):
            break
    return voted


def _alone(asked: Asked, member: int, budget: int, vote: VoteKind) -> Decimal | None:
    """The answer that a member's first `budget` samples vote for."""
    own = [
        trajectory
        for place, trajectory in asked.drawn.items()
        if place.member == member and 0 <= place.index < budget
    ]
    return tally(own or [asked.drawn[Place(member, DETERMINISTIC)]], vote).winner.answer


def _any_right(panel: Panel, asked: Asked, budget: int) -> float:
    places = panel.places(budget)
    return float(any(_is_right(asked.drawn[place].answer, asked) for place in places))


def _is_right(answer: Decimal | None, asked: Asked) -> float:
    return float(same_answer(answer, asked.truth))


def _count(places: Sequence[Place], member: int) -> int:
    return sum(place.member == member for place in places)


def _ece(voted: Sequence[Voted], right: Floats) -> float:
    """Expected calibration error of the probability, or of the share without a calibration."""
    said = [
        one.tally.winner.share if one.tally.probability is None else one.tally.probability
        for one in voted
    ]
    return round(expected_calibration_error(np.array(said), right, np.ones(len(right))), 6)


def _mean(values: Floats, seed: int) -> dict[str, float]:
    return asdict(intervals(values[:, None], seed)[0])


def _time(times: Sequence[Times], seed: int) -> dict[str, Any]:
    """Mean seconds of each split, and its share of the fixed one's with a bootstrap interval."""
    seconds = np.array([[one[split] for split in SPLITS] for one in times])  # (times, splits)
    drawn = np.random.default_rng(seed).integers(0, len(seconds), size=(RESAMPLES, len(seconds)))
    sums = seconds[drawn].sum(1)  # (resamples, splits)
    low, high = np.percentile(sums / sums[:, :1], _LEVELS, axis=0)
    means = seconds.mean(0)
    return {
        split: {
            "seconds": round(float(means[n]), 4),
            "share": {
                "value": round(float(means[n] / means[0]), 4),
                "low": round(float(low[n]), 4),
                "high": round(float(high[n]), 4),
            },
        }
        for n, split in enumerate(SPLITS)
    }
