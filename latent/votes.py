"""The four votes: trajectories in, ranked candidates out. Needs no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from latent.errors import InputError

__all__ = ["Ballot", "Candidate", "Tally", "VoteKind", "parse_vote", "tally"]

VoteKind = Literal["majority", "confidence", "best", "centroid"]

_CENTRE_ITERATIONS = 64


@dataclass(frozen=True)
class Ballot:
    """What one trajectory brings to the vote."""

    index: int
    answer: Decimal | None
    confidence: float
    final_thought: NDArray[np.float64] | None = None  # (D,); only the centroid vote looks at it


@dataclass(frozen=True)
class Candidate:
    """One distinct answer; `answer` is None for the unparsable ones, which share a candidate."""

    answer: Decimal | None
    votes: int
    share: float
    confidence: float
    trajectories: tuple[int, ...]


@dataclass(frozen=True)
class Tally:
    """The candidates, winner first."""

    kind: VoteKind
    candidates: tuple[Candidate, ...]

    @property
    def winner(self) -> Candidate:
        """The first candidate; unparsable only when it stands alone."""
        return self.candidates[0]


def parse_vote(text: str) -> VoteKind:
    """Check the name of a vote."""
    for kind in get_args(VoteKind):
        if text == kind:
            return kind  # type: ignore[no-any-return]
    known = ", ".join(get_args(VoteKind))
    raise InputError(f"unknown vote {text!r}; use one of {known}", param="vote")


def tally(ballots: Sequence[Ballot], kind: VoteKind = "majority") -> Tally:
    """Group ballots by answer, score the groups, sort them.

    A candidate's share is its score over the sum of all. Ties go to more votes, then to the
    higher mean confidence, then to the lowest trajectory index.
    """
    if not ballots:
        raise InputError("a vote needs at least one trajectory", param="budget")
    groups: dict[Decimal | None, list[Ballot]] = {}
    for ballot in sorted(ballots, key=lambda ballot: ballot.index):
        groups.setdefault(ballot.answer, []).append(ballot)
    score = _SCORES[kind](ballots)
    scores = {answer: score(group) for answer, group in groups.items()}
    total = sum(scores.values())
    candidates = [
        Candidate(
            answer=answer,
            votes=len(group),
            share=scores[answer] / total if total > 0 else len(group) / len(ballots),
            confidence=sum(ballot.confidence for ballot in group) / len(group),
            trajectories=tuple(ballot.index for ballot in group),
        )
        for answer, group in groups.items()
    ]
    candidates.sort(
        key=lambda c: (c.answer is None, -c.share, -c.votes, -c.confidence, c.trajectories)
    )
    return Tally(kind, tuple(candidates))


_Score = Callable[[Sequence[Ballot]], float]


def _by_count(_: Sequence[Ballot]) -> _Score:
    return lambda group: float(len(group))


def _by_confidence(_: Sequence[Ballot]) -> _Score:
    return lambda group: sum(ballot.confidence for ballot in group)


def _by_best(_: Sequence[Ballot]) -> _Score:
    return lambda group: max(ballot.confidence for ballot in group)


def _by_centroid(ballots: Sequence[Ballot]) -> _Score:
    """Score a group by its nearest member's closeness to the centre of all final thoughts."""
    thoughts = [ballot.final_thought for ballot in ballots if ballot.final_thought is not None]
    if len(thoughts) < len(ballots):
        raise InputError("the centroid vote needs a latent reasoner's final thoughts", param="vote")
    distances = _distances_to_centre(np.stack(thoughts))
    scale = max(float(np.median(distances)), 1e-12)
    closeness = np.exp(-distances / scale).tolist()
    by_index = {ballot.index: close for ballot, close in zip(ballots, closeness, strict=True)}
    return lambda group: max(by_index[ballot.index] for ballot in group)


def _distances_to_centre(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances of points (N, D) to their geometric median, which up to half of outliers do not move.

    Weiszfeld's iteration on the Gram matrix: the centre is a weighted mean of the points, so only the
    weights are kept, and a step costs N² whatever D is.
    """
    centred = points - points.mean(0)
    gram = centred @ centred.T
    squares = np.diag(gram)
    weights = np.full(len(points), 1.0 / len(points))
    distances = np.sqrt(squares)
    for _ in range(_CENTRE_ITERATIONS):
        weights = 1.0 / np.maximum(distances, 1e-9)
        weights /= weights.sum()
        to_all = gram @ weights
        distances = np.sqrt(np.maximum(squares - 2 * to_all + weights @ to_all, 0.0))
    return distances


_SCORES: dict[VoteKind, Callable[[Sequence[Ballot]], _Score]] = {
    "majority": _by_count,
    "confidence": _by_confidence,
    "best": _by_best,
    "centroid": _by_centroid,
}
