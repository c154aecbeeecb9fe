"""Panels: several reasoners that answer a question together. Who draws which trajectory, and their vote.

A budget of N is the first N places of one fixed order, so a budget of 8 is a prefix of one of 64, and
stops and deadlines cut a panel as they cut one reasoner. Needs no torch; `latent.panel_file` reads
`panel.json`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from typing import Literal, get_args

from latent.errors import InputError
from latent.familiarity import Familiarity, Reference
from latent.panel_calibration import MemberVotes, PanelCalibration
from latent.specs import SamplerSpec
from latent.trajectory import DETERMINISTIC, MAX_BUDGET, Trajectory
from latent.votes import Candidate, Tally, VoteKind, certainty_of, rank, tally

__all__ = [
    "SPLITS",
    "Member",
    "Panel",
    "Place",
    "Split",
    "as_cast",
    "check_panel_vote",
    "member_votes",
    "panel_tally",
]

Split = Literal["fixed", "adaptive", "early"]
SPLITS: tuple[Split, ...] = get_args(Split)

_FIRST_SHARE = 0.25  # of the budget, that the members of an early split draw first


@dataclass(frozen=True)
class Member:
    """A reasoner of a panel, by its name, with its sampler and its share of the budget."""

    model: str
    sampler: SamplerSpec
    share: float = 1.0

    @property
    def label(self) -> str:
        """Its name in responses, unique in a panel: `coconut-tiny:gts`."""
        return f"{self.model}:{self.sampler}"


@dataclass(frozen=True)
class Place:
    """A trajectory in a panel's order: the member that draws it, by number, and its index there."""

    member: int
    index: int


@dataclass(frozen=True)
class Panel:
    """Members and how the budget is divided among them.

    `fixed`: the members take turns, by their shares. `adaptive`: they draw one after the other in the
    order listed, and the next one only if the panel is not yet `sure`. `early`: the same, with a quarter
    of the budget first and then the rest, since reasoners that agree say more than many trajectories of
    one; from the second member on.
    """

    name: str
    members: tuple[Member, ...]
    split: Split = "fixed"
    sure: float = 0.9  # all splits but `fixed` end at this probability that the answer is right
    calibrations: tuple[PanelCalibration, ...] = ()  # one for each vote
    reference: Reference | None = None  # what a question's novelty is measured against

    def __post_init__(self) -> None:
        labels = self.labels
        if len(labels) < 2:
            raise InputError(f"panel {self.name!r} needs two members or more", param="model")
        twice = next((label for n, label in enumerate(labels) if label in labels[:n]), None)
        if twice is not None:
            raise InputError(f"panel {self.name!r} names {twice} twice", param="model")

    @property
    def labels(self) -> list[str]:
        """The members' names in responses."""
        return [member.label for member in self.members]

    def calibration(self, vote: VoteKind) -> PanelCalibration | None:
        """The calibration of a vote; None if it was not fitted."""
        return next((one for one in self.calibrations if one.vote == vote), None)

    def familiarity(self, question: str) -> Familiarity | None:
        """How like the question is to those of the calibration; None if there is none."""
        return None if self.reference is None else self.reference.familiarity(question)

    def places(self, budget: int) -> tuple[Place, ...]:
        """The trajectories of a budget, in the order in which they count.

        A member's first trajectory is its deterministic one, index −1; its samples follow. As a
        member's sampler, `deterministic` gives that one however large the budget is.
        """
        if not 1 <= budget <= MAX_BUDGET:
            raise InputError(f"budget must be 1 to {MAX_BUDGET}, got {budget}", param="budget")
        taken = [0] * len(self.members)
        turns: list[int] = []
        for _ in range(budget):
            able = [
                (taken[number] + 1) / member.share
                if taken[number] < member.sampler.effective_budget(budget)
                else math.inf
                for number, member in enumerate(self.members)
            ]
            turn = able.index(min(able))
            if able[turn] == math.inf:  # all are deterministic
                break
            taken[turn] += 1
            turns.append(turn)
        if self.split == "adaptive":
            turns.sort()
        elif self.split == "early":
            first = max(len(self.members), math.ceil(len(turns) * _FIRST_SHARE))
            turns = sorted(turns[:first]) + sorted(turns[first:])
        indices = [count(DETERMINISTIC) for _ in self.members]
        return tuple(Place(turn, next(indices[turn])) for turn in turns)

    def stages(self, places: Sequence[Place]) -> tuple[int, ...]:
        """Numbers of places after which the panel may end, being sure, and all of them."""
        if self.split == "fixed":
            return (len(places),)
        last = [n for n in range(1, len(places)) if places[n].member != places[n - 1].member]
        # With a few trajectories the first member can do little more than agree with itself.
        return (*(last[1:] if self.split == "early" else last), len(places))

    def is_sure(self, voted: Tally) -> bool:
        """Whether the panel may end with these votes; without a calibration, by their certainty."""
        if voted.winner.answer is None:
            return False
        if voted.probability is not None:
            return voted.probability >= self.sure
        return certainty_of(voted.candidates) >= self.sure


def check_panel_vote(vote: VoteKind) -> None:
    """Refuse the vote that panels do not have, whatever their members are."""
    if vote == "verifier":
        raise InputError(
            "vote 'verifier' is for one reasoner; a panel weighs its members by its calibration, so "
            "use another vote",
            param="vote",
        )


def as_cast(trajectory: Trajectory, position: int, label: str) -> Trajectory:
    """A member's trajectory as the panel's: numbered in the panel's order."""
    return replace(trajectory, index=position, member=label, member_index=trajectory.index)


def panel_tally(
    panel: Panel,
    cast: Sequence[Trajectory],
    vote: VoteKind,
    familiarity: Familiarity | None = None,
) -> Tally:
    """Vote inside each member, then combine what the members say of every answer.

    With a calibration, each member's votes become log-odds, which add up; a candidate's share is its
    probability among the candidates. Without one the shares add up, so that every member that voted
    counts the same.
    """
    votes = member_votes(panel, cast, vote)
    found: dict[Decimal | None, dict[str, Candidate]] = {}
    for number, (_, voted) in votes.items():
        for candidate in voted.candidates:
            found.setdefault(candidate.answer, {})[panel.labels[number]] = candidate
    answers = [answer for answer in found if answer is not None]
    calibration = panel.calibration(vote)
    probability = None
    if calibration is None or not answers:
        shares = {
            answer: sum(one.share for one in by.values()) / len(votes)
            for answer, by in found.items()
        }
    else:
        own = {number: each for number, (each, _) in votes.items()}
        novelty = 0.0 if familiarity is None else familiarity.novelty
        probabilities = calibration.probabilities(answers, own, novelty)
        total = sum(probabilities) or 1.0  # 0 if all of them are too small for a float
        probability = max(probabilities)
        shares = {a: p / total for a, p in zip(answers, probabilities, strict=True)}
    candidates = [_merged(answer, by, shares.get(answer, 0.0)) for answer, by in found.items()]
    candidates.sort(key=rank)
    return Tally(vote, tuple(candidates), probability)


def member_votes(
    panel: Panel, cast: Sequence[Trajectory], vote: VoteKind
) -> dict[int, tuple[MemberVotes, Tally]]:
    """The vote inside each member that drew any of these trajectories, by its number."""
    found = {}
    for number, label in enumerate(panel.labels):
        own = [trajectory for trajectory in cast if trajectory.member == label]
        if own:
            voted = tally(own, vote)
            candidates = {one.answer: one for one in voted.candidates if one.answer is not None}
            plain = (each.answer for each in own if each.member_index == DETERMINISTIC)
            found[number] = (MemberVotes(len(own), candidates, next(plain, None)), voted)
    return found


def _merged(answer: Decimal | None, by: Mapping[str, Candidate], share: float) -> Candidate:
    """One candidate of those of several members."""
    votes = sum(one.votes for one in by.values())
    return Candidate(
        answer=answer,
        votes=votes,
        share=share,
        confidence=sum(one.confidence * one.votes for one in by.values()) / votes,
        trajectories=tuple(sorted(index for one in by.values() for index in one.trajectories)),
        members={label: one.votes for label, one in by.items()},
    )
