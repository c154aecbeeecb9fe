"""The response of a solved question, the same from the API and from `gts solve --json`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from latent.answers import format_answer
from latent.reasoner import Reasoner
from latent.rollout import Trajectory
from latent.solve import Solution
from latent.votes import Candidate

__all__ = [
    "CandidateOut",
    "SolveResponse",
    "TimingOut",
    "TrajectoryOut",
    "UsageOut",
    "solve_response",
]


class _Out(BaseModel):
    model_config = ConfigDict(frozen=True)


class CandidateOut(_Out):
    """One distinct answer; `answer` is null for the trajectories whose answer could not be read."""

    answer: str | None
    votes: int
    share: float = Field(description="Its part of the score under the chosen vote, 0 to 1.")
    confidence: float = Field(description="Mean confidence of its trajectories.")
    trajectories: list[int] = Field(description="Indices; -1 is the deterministic trajectory.")


class UsageOut(_Out):
    """What was spent."""

    prompt_tokens: int
    thoughts: int
    answer_tokens: int = Field(
        description="Tokens decoded after the thoughts, reasoning text included."
    )
    trajectories: int


class TimingOut(_Out):
    """Milliseconds; `prefill`, `thoughts` and `decode` are of the passes the question took part in."""

    queue: float
    prefill: float
    thoughts: float
    decode: float
    total: float


class TrajectoryOut(_Out):
    """One trajectory, on request."""

    index: int
    text: str
    answer: str | None
    logprob: float = Field(
        description="Mean log-probability of the answer's tokens, with end-of-text."
    )
    confidence: float = Field(description="exp(logprob).")


class SolveResponse(_Out):
    """A question's answer, the candidates behind it, and what they cost."""

    id: str
    model: str
    sampler: str
    seed: int
    budget: int
    budget_used: int
    stop_reason: Literal["budget", "certainty", "deadline"]
    partial: bool
    answer: str | None
    confidence: float
    confidence_kind: Literal["share", "calibrated"]
    candidates: list[CandidateOut]
    usage: UsageOut
    timing_ms: TimingOut
    trajectories: list[TrajectoryOut] | None = None


def solve_response(
    solution: Solution,
    reasoner: Reasoner,
    *,
    request_id: str,
    sampler: str,
    total_seconds: float,
    include_trajectories: bool,
) -> SolveResponse:
    """Put a solution into the shape that users see."""
    done, winner = solution.rollout, solution.tally.winner
    timing, count = done.timing, len(done.trajectories)
    return SolveResponse(
        id=request_id,
        model=reasoner.name,
        sampler=sampler,
        seed=solution.seed,
        budget=solution.budget,
        budget_used=count,
        stop_reason="budget",
        partial=False,
        answer=None if winner.answer is None else format_answer(winner.answer),
        confidence=winner.share,
        confidence_kind="share",
        candidates=[_candidate(candidate) for candidate in solution.tally.candidates],
        usage=UsageOut(
            prompt_tokens=done.prefix.length,
            thoughts=reasoner.format.thoughts * count,
            answer_tokens=sum(len(trajectory.tokens) for trajectory in done.trajectories),
            trajectories=count,
        ),
        timing_ms=TimingOut(
            queue=0.0,
            prefill=timing.prefill * 1e3,
            thoughts=timing.thoughts * 1e3,
            decode=timing.decode * 1e3,
            total=total_seconds * 1e3,
        ),
        trajectories=[_trajectory(t) for t in done.trajectories] if include_trajectories else None,
    )


def _candidate(candidate: Candidate) -> CandidateOut:
    return CandidateOut(
        answer=None if candidate.answer is None else format_answer(candidate.answer),
        votes=candidate.votes,
        share=candidate.share,
        confidence=candidate.confidence,
        trajectories=list(candidate.trajectories),
    )


def _trajectory(trajectory: Trajectory) -> TrajectoryOut:
    return TrajectoryOut(
        index=trajectory.index,
        text=trajectory.text,
        answer=None if trajectory.answer is None else format_answer(trajectory.answer),
        logprob=trajectory.logprob,
        confidence=trajectory.confidence,
    )
