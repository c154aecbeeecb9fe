"""The JSON bodies of /solve, in and out, and what those of other endpoints are made of.

Pydantic only, so that the client can import them.
"""

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from latent.answers import show_answer
from latent.solved import StopReason
from latent.trajectory import MAX_SEED
from latent.votes import VoteKind
from service.errors import ErrorResponse

__all__ = [
    "EXAMPLE",
    "AnswerText",
    "Body",
    "CandidateOut",
    "MemberOut",
    "ModelText",
    "Out",
    "PanelText",
    "PathOut",
    "PathsOut",
    "ReadingOut",
    "RoundEvent",
    "SamplerText",
    "Seed",
    "SolveFields",
    "SolveManyResponse",
    "SolveRequest",
    "SolveResponse",
    "Stop",
    "TimingOut",
    "TokenOut",
    "TokenReadingOut",
    "TrajectoryOut",
    "UsageOut",
]

Seed = Annotated[
    int | None,
    Field(ge=0, le=MAX_SEED, strict=True, description="Drawn, and reported, when absent."),
]
SamplerText = Annotated[str, Field(min_length=1, max_length=200)]
ModelText = Annotated[str, Field(min_length=1, max_length=200)]
PanelText = Annotated[list[ModelText], Field(max_length=16)]
EXAMPLE = "Tom has 12 apples. He buys 5 more and gives 3 to Anna. How many apples does Tom have?"


class Body(BaseModel):
    """A request body: other fields than these are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Stop(Body):
    """An adaptive budget: what ends it before all trajectories are drawn. Give one of the two."""

    certainty: float | None = Field(
        None,
        gt=0.5,
        lt=1.0,
        strict=True,
        examples=[0.95],
        description="The leader is this certain to beat the second. Majority vote only.",
    )
    confidence: float | None = Field(
        None,
        gt=0.0,
        lt=1.0,
        strict=True,
        description="The calibrated probability that the answer is right; needs a calibration.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.certainty is None) == (self.confidence is None):
            raise ValueError("give certainty or confidence")
        return self


class SolveFields(Body):
    """How a question is solved, whichever endpoint it comes to."""

    budget: int | None = Field(
        None, ge=1, strict=True, description="Trajectories for each question; 8 when absent."
    )
    sampler: SamplerText | None = Field(
        None,
        examples=["gts"],
        description="deterministic (one trajectory, whatever the budget), dropout:0.1, "
        "gaussian:1.0, gts, gts:NAME or token:1.0. "
        "Absent: the reasoner's own, which is gts, or token for text, unless its folder names "
        "another.",
    )
    vote: VoteKind | None = Field(
        None,
        description="How the trajectories' answers are counted. `checked` leaves out those with a "
        "false equation in their text. `likelihood` takes the answer with the likeliest reasoning. "
        "`verifier` adds up the scores that a learned verifier gives them. `stop.certainty` goes with "
        "majority only; `stop.confidence` and `abstain_below` go with votes that are calibrated. A "
        "model lists those that it can take in its `votes`. Absent: its default, which is majority "
        "if it names none.",
    )
    seed: Seed = None
    include_deterministic: bool = Field(
        False,
        strict=True,
        description="Let the unperturbed trajectory, index -1, be one of the budget.",
    )
    abstain_below: float | None = Field(
        None,
        gt=0.0,
        lt=1.0,
        strict=True,
        description="With a calibrated confidence below this, `answer` is null and `stop_reason` "
        "`abstained`; the candidates are given all the same.",
    )
    deadline_ms: int | None = Field(
        None, ge=1, le=3_600_000, strict=True, description="Answer then with the votes so far."
    )
    include: list[Literal["trajectories", "tokens", "paths", "readings"]] = Field(
        [],
        max_length=4,
        description="`trajectories`: every one, with its text and confidence. `tokens`: also their "
        "decoded tokens, with log-probabilities. `paths`: the thoughts in two dimensions. "
        "`readings`: the likeliest tokens of each thought. The last two run up to 64 trajectories "
        "once more.",
    )

    @property
    def wants_trajectories(self) -> bool:
        """Whether the response lists the trajectories."""
        return bool({"trajectories", "tokens"} & set(self.include))


class SolveRequest(SolveFields):
    """A question, or several, and the budget to spend on each."""

    question: str | list[str] = Field(examples=[EXAMPLE])
    model: ModelText | PanelText | None = Field(
        None,
        description="A name from /v1/models; or a list of them that answer together as a panel, each "
        "as NAME or NAME:SAMPLER.",
    )
    stop: Stop | None = Field(None, description="Ends an adaptive budget early.")
    stream: bool = Field(
        False, strict=True, description="Server-sent events: round, result, error."
    )


class Out(BaseModel):
    """A response body, or a part of one."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


def _show(answer: object) -> object:
    return show_answer(answer) if isinstance(answer, Decimal) else answer


AnswerText = Annotated[str | None, BeforeValidator(_show)]


class CandidateOut(Out):
    """One distinct answer; `answer` is null for the trajectories whose answer could not be read."""

    answer: AnswerText
    votes: int
    share: float = Field(description="Its part of the score under the chosen vote, 0 to 1.")
    confidence: float = Field(description="Mean confidence of its trajectories.")
    likelihood: float | None = Field(
        None,
        description="Probability of the likeliest reasoning among its trajectories; null if reasoning "
        "can't be read, and of a panel.",
    )
    trajectories: list[int] = Field(
        description="Indices; -1 is the deterministic trajectory. Of a panel: in the panel's order."
    )
    members: dict[str, int] | None = Field(
        None, description="Of a panel: who voted for it, with how many trajectories."
    )


class UsageOut(Out):
    """The work that the answer took."""

    prompt_tokens: int
    thoughts: int
    answer_tokens: int = Field(
        description="Tokens decoded after the thoughts, reasoning text included."
    )
    trajectories: int


class TimingOut(Out):
    """Milliseconds; `prefill`, `thoughts` and `decode` are of the passes that the question was in."""

    queue: float
    prefill: float
    thoughts: float
    decode: float
    total: float


class TokenOut(Out):
    """One decoded token."""

    token: str
    logprob: float


class TrajectoryOut(Out):
    """One trajectory, if `include` asks for them."""

    index: int
    text: str
    answer: AnswerText
    logprob: float = Field(
        description="Mean log-probability of the answer's tokens, with end-of-text."
    )
    confidence: float = Field(description="exp(logprob).")
    score: float | None = Field(
        None, description="With the vote `verifier`: the verifier's score, 0 or more."
    )
    chain_logprob: float | None = Field(
        None,
        description="Log-probability of the text before its answer, or of the equations that a "
        "calculator reads in its thoughts, without what the calculator wrote; null if its reasoning "
        "cannot be read.",
    )
    member: str | None = Field(None, description="Of a panel: the member that drew it.")
    member_index: int | None = Field(
        None,
        description="Of a panel: its index among the member's own; -1 is the deterministic one.",
    )
    tokens: list[TokenOut] | None = Field(
        None, description="All that was decoded, answer prefix and end-of-text included."
    )


class MemberOut(Out):
    """What one member of a panel did for the answer."""

    member: str = Field(description="Model and sampler, as in `coconut-tiny:gts`.")
    usage: UsageOut
    timing_ms: TimingOut = Field(description="`total` is the sum of prefill, thoughts and decode.")


Point = tuple[float, float]


class PathOut(TrajectoryOut):
    """A trajectory, and where its thoughts are."""

    points: list[Point] = Field(description="One for each thought, as it was fed back.")


class PathsOut(Out):
    """The thoughts in the plane of their two largest principal components."""

    explained: tuple[float, float] = Field(description="Shares of the variance along the axes.")
    median: list[Point] = Field(
        description="The geometric median of the sampled trajectories, for each thought."
    )
    trajectories: list[PathOut] = Field(description="The deterministic one first.")


class TokenReadingOut(Out):
    """A token that a thought would be decoded to."""

    token: str
    probability: float


class ReadingOut(Out):
    """What the thoughts of one trajectory read like through the vocabulary head."""

    index: int
    thoughts: list[list[TokenReadingOut]] = Field(
        description="For each thought its likeliest tokens, of the state that it is made from."
    )


class SolveResponse(Out):
    """A question's answer, its candidates, and the work that they took."""

    id: str
    model: str = Field(description="`panel` if the request named the members.")
    sampler: str = Field(description="Of a panel: its members, joined by commas.")
    seed: int
    budget: int
    budget_used: int
    stop_reason: StopReason = Field(
        description="`unreadable`: no trajectory had an answer that could be read. `abstained`: the "
        "confidence was below `abstain_below`."
    )
    partial: bool
    answer: str | None
    confidence: float = Field(
        description="The probability that the answer is right, where the sampler and the vote are "
        "calibrated; else the winner's share. `confidence_kind` says which."
    )
    confidence_kind: Literal["share", "calibrated"]
    vote: VoteKind
    familiarity: float | None = Field(
        None,
        description="Share of the calibration's questions whose words are at least as new to the "
        "others as this question's are; null without a calibration.",
    )
    unfamiliar: bool = Field(
        False, description="Whether that share is below 0.01: the question is of another kind."
    )
    warning: str | None = Field(None, description="What to think of the answer, if unfamiliar.")
    candidates: list[CandidateOut]
    usage: UsageOut
    timing_ms: TimingOut
    members: list[MemberOut] | None = Field(
        None, description="Of a panel: the work of each member, in the order of the panel."
    )
    trajectories: list[TrajectoryOut] | None = None
    paths: PathsOut | None = Field(
        None, description="If `include` asks for it; null if the deadline came first."
    )
    readings: list[ReadingOut] | None = Field(
        None, description="If `include` asks for it; null if the deadline came first."
    )


class RoundEvent(Out):
    """The candidates after one more round of a streamed question."""

    id: str
    budget_used: int
    candidates: list[CandidateOut]


class SolveManyResponse(Out):
    """One result or error for each question, in order."""

    results: list[SolveResponse | ErrorResponse]
