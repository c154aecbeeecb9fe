"""A solved question: its trajectories, their vote, and what they cost. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from latent.answers import show_answer
from latent.calibration import Calibration, Confidence, confidence_of
from latent.familiarity import Familiarity
from latent.trajectory import Timing, Trajectory
from latent.votes import Candidate, Tally

__all__ = ["EndedBy", "MemberWork", "Solved", "StopReason"]

EndedBy = Literal["budget", "certainty", "confidence", "deadline"]
StopReason = Literal["budget", "certainty", "confidence", "deadline", "abstained", "unreadable"]


@dataclass(frozen=True)
class MemberWork:
    """What one member of a panel did for an answer."""

    member: str
    trajectories: int
    prompt_tokens: int
    thoughts: int
    answer_tokens: int
    timing: Timing
    queue_seconds: float = 0.0


@dataclass(frozen=True)
class Solved:
    """What `Reasoner.solve`, `ReasonerPanel.solve` and the service return, before it becomes JSON."""

    model: str
    sampler: str
    seed: int
    budget: int
    prompt_tokens: int
    thoughts: int  # of all trajectories
    answer_tokens: int  # of all trajectories
    trajectories: Sequence[Trajectory]
    tally: Tally
    timing: Timing
    total_seconds: float
    queue_seconds: float = 0.0
    ended_by: EndedBy = "budget"
    calibration: Calibration | None = None
    familiarity: Familiarity | None = None
    abstain_below: float | None = None  # no answer is given with less confidence
    members: tuple[MemberWork, ...] | None = None  # of a panel

    @property
    def answer(self) -> str | None:
        """The winner; None if no trajectory's answer could be read, or the confidence is too low."""
        return None if self.is_abstained else show_answer(self.tally.winner.answer)

    @property
    def is_abstained(self) -> bool:
        """Whether there is a winner, but not enough confidence to name it as the answer."""
        is_read = self.tally.winner.answer is not None
        return is_read and self.abstain_below is not None and self.confidence < self.abstain_below

    @property
    def confidence(self) -> float:
        """The probability that the answer is right where that is calibrated, else the winner's share."""
        return self._confidence.value

    @property
    def confidence_kind(self) -> Literal["share", "calibrated"]:
        """Which of the two `confidence` is."""
        return self._confidence.kind

    @cached_property
    def _confidence(self) -> Confidence:
        return confidence_of(self.tally, self.calibration, self.familiarity)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The distinct answers, winner first."""
        return self.tally.candidates

    @property
    def stop_reason(self) -> StopReason:
        """Why no more trajectories were drawn, or why there is no answer."""
        if self.tally.winner.answer is None:
            return "unreadable"
        return "abstained" if self.is_abstained else self.ended_by
