"""A solved question: its trajectories, their vote, and what they cost. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from latent.answers import show_answer
from latent.calibration import Calibration, confidence_of
from latent.trajectory import Timing, Trajectory
from latent.votes import Candidate, Tally

__all__ = ["EndedBy", "MemberWork", "Solved", "StopReason"]

EndedBy = Literal["budget", "certainty", "deadline"]
StopReason = Literal["budget", "certainty", "deadline", "unreadable"]


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
    members: tuple[MemberWork, ...] | None = None  # of a panel

    @property
    def answer(self) -> str | None:
        """The winner; None if no trajectory's answer could be read."""
        return show_answer(self.tally.winner.answer)

    @property
    def confidence(self) -> float:
        """The probability that the answer is right where that is calibrated, else the winner's share."""
        return confidence_of(self.tally, self.calibration).value

    @property
    def confidence_kind(self) -> Literal["share", "calibrated"]:
        """Which of the two `confidence` is."""
        return confidence_of(self.tally, self.calibration).kind

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The distinct answers, winner first."""
        return self.tally.candidates

    @property
    def stop_reason(self) -> StopReason:
        """Why no more trajectories were drawn, or that none of them could be read."""
        return self.ended_by if self.tally.winner.answer is not None else "unreadable"
