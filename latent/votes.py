"""The seven votes: trajectories in, ranked candidates out. Needs no torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from latent.equations import are_equations_true
from latent.errors import InputError
from latent.trajectory import Trajectory

__all__ = [
    "Candidate",
    "Tally",
    "VoteKind",
    "certainty_of",
    "geometric_median",
    "parse_vote",
    "rank",
    "tally",
]

VoteKind = Literal[
    "majority", "confidence", "best", "centroid", "checked", "likelihood", "verifier"
]

_CENTRE_ITERATIONS = 64


@dataclass(frozen=True)
class Candidate:
    """One distinct answer; `answer` is None for the unparsable ones, which share a candidate."""

    answer: Decimal | None
    votes: int
    share: float
    confidence: float
    trajectories: tuple[int, ...]
    members: Mapping[str, int] | None = None  # of a panel: the votes by member
    # Probability that the reasoner gives to the likeliest chain of its trajectories, if it gives one.
    likelihood: float | None = None


@dataclass(frozen=True)
class Tally:
    """The candidates, winner first."""

    kind: VoteKind
    candidates: tuple[Candidate, ...]
    probability: float | None = None  # that the winner is right, of a calibrated panel

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


def tally(trajectories: Sequence[Trajectory], kind: VoteKind = "majority") -> Tally:
    """Group trajectories by answer, score the groups, sort them.

    A candidate's share is its score over the sum of all; if no group has a score, its share of the
    trajectories. Ties go to more votes, then to the higher mean confidence, then to the lowest
    trajectory index.
    """
    if not trajectories:
        raise InputError("a vote needs at least one trajectory", param="budget")
    groups: dict[Decimal | None, list[Trajectory]] = {}
    for trajectory in sorted(trajectories, key=lambda trajectory: trajectory.index):
        groups.setdefault(trajectory.answer, []).append(trajectory)
    score = _SCORES[kind](trajectories)
    scores = {answer: score(group) for answer, group in groups.items()}
    total = sum(scores.values())
    candidates = [
        Candidate(
            answer=answer,
            votes=len(group),
            share=scores[answer] / total if total > 0 else len(group) / len(trajectories),
            confidence=sum(trajectory.confidence for trajectory in group) / len(group),
            trajectories=tuple(trajectory.index for trajectory in group),
            likelihood=_likelihood(group),
        )
        for answer, group in groups.items()
    ]
    candidates.sort(key=rank)
    return Tally(kind, tuple(candidates))


def rank(candidate: Candidate) -> tuple[object, ...]:
    """Sort key that puts the winner first: by share, votes, confidence, then the lowest trajectory."""
    c = candidate
    return c.answer is None, -c.share, -c.votes, -c.confidence, c.trajectories


def certainty_of(candidates: Sequence[Candidate]) -> float:
    """Posterior probability that the winner beats the others, from a flat prior.

    With a votes, and b for the one that has the most of the others, that is P(p > ½) for
    p ~ Beta(a + 1, b + 1), which for whole numbers is the binomial tail P(X ≤ a),
    X ~ Binomial(a + b + 1, ½). Unparsable answers are not counted.
    """
    votes = [candidate.votes for candidate in candidates if candidate.answer is not None]
    if not votes:
        return 0.0
    winner, other = votes[0], max(votes[1:], default=0)
    n = winner + other + 1
    below = sum(math.comb(n, i) for i in range(winner + 1))
    return below / (1 << n)


_Score = Callable[[Sequence[Trajectory]], float]


def _by_count(_: Sequence[Trajectory]) -> _Score:
    return lambda group: float(len(group))


def _by_confidence(_: Sequence[Trajectory]) -> _Score:
    return lambda group: sum(trajectory.confidence for trajectory in group)


def _by_best(_: Sequence[Trajectory]) -> _Score:
    return lambda group: max(trajectory.confidence for trajectory in group)


def _by_checked(_: Sequence[Trajectory]) -> _Score:
    """Score a group by its members whose written equations are all true."""
    return lambda group: float(sum(are_equations_true(trajectory.text) for trajectory in group))


def _likelihood(group: Sequence[Trajectory]) -> float | None:
    """Probability of the likeliest chain; None if not all trajectories have one."""
    chains = [each.chain_logprob for each in group if each.chain_logprob is not None]
    return math.exp(max(chains)) if len(chains) == len(group) else None


def _by_likelihood(trajectories: Sequence[Trajectory]) -> _Score:
    """Score a group by its likeliest chain, however often it was drawn.

    Relative to the likeliest of all groups with an answer, since the probabilities themselves may be
    smaller than the smallest float. Without an answer a chain has no score.
    """
    chains = {
        each.index: each.chain_logprob for each in trajectories if each.chain_logprob is not None
    }
    if len(chains) < len(trajectories):
        raise InputError("the likelihood vote needs reasoning that can be read", param="vote")
    readable = [each for each in trajectories if each.answer is not None]
    likeliest = max((chains[each.index] for each in readable), default=0.0)

    def score(group: Sequence[Trajectory]) -> float:
        if group[0].answer is None:
            return 0.0
        return math.exp(max(chains[each.index] for each in group) - likeliest)

    return score


def _by_verifier(trajectories: Sequence[Trajectory]) -> _Score:
    """Score a group by the sum of what the verifier gives its members."""
    scores = {each.index: each.score for each in trajectories if each.score is not None}
    if len(scores) < len(trajectories):
        raise InputError("the verifier vote needs trajectories with scores", param="vote")
    return lambda group: sum(scores[trajectory.index] for trajectory in group)


def _by_centroid(trajectories: Sequence[Trajectory]) -> _Score:
    """Score a group by its nearest member's closeness to the centre of all final thoughts."""
    thoughts = [
        trajectory.final_thought
        for trajectory in trajectories
        if trajectory.final_thought is not None
    ]
    if len(thoughts) < len(trajectories):
        raise InputError("the centroid vote needs a latent reasoner's final thoughts", param="vote")
    distances = geometric_median(np.stack(thoughts)).distances
    scale = max(float(np.median(distances)), 1e-12)
    closeness = np.exp(-distances / scale).tolist()
    by_index = {
        trajectory.index: close for trajectory, close in zip(trajectories, closeness, strict=True)
    }
    return lambda group: max(by_index[trajectory.index] for trajectory in group)


class Median(NamedTuple):
    """The geometric median of N points."""

    weights: NDArray[np.float64]  # (N,) of the points, whose weighted mean it is
    distances: NDArray[np.float64]  # (N,) of the points to it


def geometric_median(points: NDArray[np.float64]) -> Median:
    """Find the geometric median of points (N, D), which up to half of outliers do not move.

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
    return Median(weights, distances)


_SCORES: dict[VoteKind, Callable[[Sequence[Trajectory]], _Score]] = {
    "majority": _by_count,
    "confidence": _by_confidence,
    "best": _by_best,
    "centroid": _by_centroid,
    "checked": _by_checked,
    "likelihood": _by_likelihood,
    "verifier": _by_verifier,
}
