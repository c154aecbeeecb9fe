"""The response of a solved question, the same from the API and from `gts solve --json`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from latent.answers import show_answer
from latent.solved import Solved, StopReason
from latent.trajectory import Trajectory
from latent.votes import Candidate, Tally, VoteKind
from service.errors import ErrorResponse

__all__ = [
    "DiagnoseResponse",
    "HealthResponse",
    "LimitsOut",
    "ModelOut",
    "ModelsResponse",
    "SamplerDiagnosisOut",
    "SolveManyResponse",
    "SolveResponse",
    "candidates_out",
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
    stop_reason: StopReason
    partial: bool
    answer: str | None
    confidence: float = Field(
        description="The probability that the answer is right, where the sampler and the vote are "
        "calibrated; else the winner's share. `confidence_kind` says which."
    )
    confidence_kind: Literal["share", "calibrated"]
    candidates: list[CandidateOut]
    usage: UsageOut
    timing_ms: TimingOut
    trajectories: list[TrajectoryOut] | None = None


def solve_response(solved: Solved, *, request_id: str, with_trajectories: bool) -> SolveResponse:
    """Put what was solved into the shape that users see."""
    count, timing = len(solved.trajectories), solved.timing
    return SolveResponse(
        id=request_id,
        model=solved.model,
        sampler=solved.sampler,
        seed=solved.seed,
        budget=solved.budget,
        budget_used=count,
        stop_reason=solved.stop_reason,
        partial=solved.ended_by == "deadline",
        answer=solved.answer,
        confidence=solved.confidence,
        confidence_kind=solved.confidence_kind,
        candidates=candidates_out(solved.tally),
        usage=UsageOut(
            prompt_tokens=solved.prompt_tokens,
            thoughts=solved.thoughts * count,
            answer_tokens=sum(len(trajectory.tokens) for trajectory in solved.trajectories),
            trajectories=count,
        ),
        timing_ms=TimingOut(
            queue=solved.queue_seconds * 1e3,
            prefill=timing.prefill * 1e3,
            thoughts=timing.thoughts * 1e3,
            decode=timing.decode * 1e3,
            total=solved.total_seconds * 1e3,
        ),
        trajectories=[_trajectory(t) for t in solved.trajectories] if with_trajectories else None,
    )


def candidates_out(tally: Tally) -> list[CandidateOut]:
    """Give the candidates, winner first."""
    return [_candidate(candidate) for candidate in tally.candidates]


def _candidate(candidate: Candidate) -> CandidateOut:
    return CandidateOut(
        answer=show_answer(candidate.answer),
        votes=candidate.votes,
        share=candidate.share,
        confidence=candidate.confidence,
        trajectories=list(candidate.trajectories),
    )


def _trajectory(trajectory: Trajectory) -> TrajectoryOut:
    return TrajectoryOut(
        index=trajectory.index,
        text=trajectory.text,
        answer=show_answer(trajectory.answer),
        logprob=trajectory.logprob,
        confidence=trajectory.confidence,
    )


class SolveManyResponse(_Out):
    """One result or error for each question, in order."""

    results: list[SolveResponse | ErrorResponse]


class VotePointOut(_Out):
    """The vote at one budget; a budget of 1 is the deterministic trajectory."""

    budget: int
    answer: str | None
    share: float
    passes: bool | None
    majority_correct: bool | None


class SamplerDiagnosisOut(_Out):
    """How one sampler explores the question. What needs the true answer is null without it."""

    sampler: str
    sampling_gain: float | None = Field(description="SG, of the answer's first token.")
    sampling_gain_whole_answer: float | None
    gain_share: float | None = Field(description="Share of trajectories with a gain above 0.5.")
    js_divergence: float = Field(description="Mean shift of the answer's distribution, in nats.")
    unique_answers: int
    regime: Literal["under-exploration", "over-exploration", "useful"] | None = Field(
        description="An estimate, from one question."
    )
    gains: list[float] | None = Field(description="Per trajectory, in index order.")
    vote_curve: list[VotePointOut]
    snr: list[float] | None = Field(description="rms of the mean over rms of the std, per thought.")
    sigma: list[float] | None = Field(description="rms of the standard deviation, per thought.")


class DiagnoseResponse(_Out):
    """The deterministic answer, and how each sampler moves away from it."""

    id: str
    model: str
    seed: int
    budget: int
    deterministic_answer: str | None
    samplers: list[SamplerDiagnosisOut]


class SamplerInfoOut(_Out):
    """A learned sampler that a model carries."""

    spec: str
    reasoner_fingerprint: str
    results: dict[str, Any]


class CalibrationOut(_Out):
    """A sampler and a vote whose confidence is a probability, and how well it is one."""

    sampler: str
    vote: VoteKind
    ece: float = Field(description="Expected calibration error on held-out questions, 0 to 1.")
    questions: int
    data: str
    budgets: tuple[int, int] = Field(description="The smallest and the largest fitted.")


class LimitsOut(_Out):
    """What a request may ask for."""

    budget: int
    question_chars: int
    questions: int
    samplers: int


class ModelOut(_Out):
    """A model, in OpenAI's shape and with what is particular to latent reasoning."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: Literal["coconut", "codi", "cot"]
    thoughts: int
    width: int
    fingerprint: str
    results: dict[str, Any]
    samplers: list[SamplerInfoOut]
    calibrations: list[CalibrationOut]
    limits: LimitsOut


class ModelsResponse(_Out):
    """The models that are served, the default first."""

    object: Literal["list"] = "list"
    data: list[ModelOut]


class HealthResponse(_Out):
    """A probe's answer."""

    status: str
