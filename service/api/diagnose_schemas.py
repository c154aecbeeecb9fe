"""The JSON bodies of /diagnose, in and out."""

from typing import Annotated, Literal

from pydantic import Field

from service.api.schemas import EXAMPLE, Body, ModelText, Out, PanelText, SamplerText, Seed

__all__ = ["DiagnoseRequest", "DiagnoseResponse", "SamplerDiagnosisOut", "VotePointOut"]

Answer = (
    Annotated[str, Field(max_length=64)]
    | Annotated[int, Field(strict=True, ge=-(10**15), le=10**15)]
    | Annotated[float, Field(strict=True, ge=-1e15, le=1e15)]
    | None
)


class DiagnoseRequest(Body):
    """A question whose exploration by samplers is measured; with the true `answer`, also how well."""

    question: str = Field(examples=[EXAMPLE])
    answer: Answer = Field(None, examples=[14])
    samplers: list[SamplerText] | None = Field(
        None, min_length=1, description="Absent: one of every kind that the model supports."
    )
    budget: int | None = Field(None, ge=2, strict=True, description="32 when absent.")
    seed: Seed = None
    model: ModelText | PanelText | None = Field(
        None, description="Of a panel, every member is measured with its own sampler."
    )


class VotePointOut(Out):
    """The vote at one budget; a budget of 1 is the deterministic trajectory."""

    budget: int
    answer: str | None
    share: float
    passes: bool | None
    majority_correct: bool | None


class SamplerDiagnosisOut(Out):
    """How one sampler explores the question. What needs the true answer is null without it."""

    sampler: str = Field(description="Of a panel: the member, as in `coconut-tiny:gts`.")
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


class DiagnoseResponse(Out):
    """The deterministic answer, and how each sampler explores around it."""

    id: str
    model: str
    seed: int
    budget: int
    deterministic_answer: str | None
    samplers: list[SamplerDiagnosisOut]
