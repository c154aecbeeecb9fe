"""The JSON bodies that describe what is served: /v1/models, /livez and /readyz."""

from typing import Any, Literal

from pydantic import Field

from latent.votes import VoteKind
from service.api.schemas import Out

__all__ = [
    "CalibrationOut",
    "ExampleOut",
    "HealthResponse",
    "LimitsOut",
    "ModelOut",
    "ModelsResponse",
    "PanelMemberOut",
    "PanelOut",
    "SamplerInfoOut",
    "VariantOut",
]


class SamplerInfoOut(Out):
    """A learned sampler that a model carries."""

    spec: str
    reasoner_fingerprint: str
    results: dict[str, Any]


class CalibrationOut(Out):
    """A sampler and a vote whose confidence is calibrated, and how well."""

    sampler: str
    vote: VoteKind
    ece: float = Field(description="Expected calibration error on held-out questions, 0 to 1.")
    questions: int
    data: str
    budgets: tuple[int, int] = Field(description="The smallest and the largest fitted.")


class ExampleOut(Out):
    """A question that the model is known to answer."""

    question: str
    answer: str


class LimitsOut(Out):
    """The largest values that a request may have."""

    budget: int
    question_chars: int
    questions: int
    samplers: int


class PanelMemberOut(Out):
    """A member of a panel."""

    model: str
    sampler: str
    share: float = Field(description="Of the budget, relative to the other members.")


class PanelOut(Out):
    """How a panel is made up."""

    members: list[PanelMemberOut]
    split: Literal["fixed", "adaptive", "early"]
    sure: float = Field(
        description="Probability at which an adaptive or early split draws no more."
    )


class ModelOut(Out):
    """A model: the fields of OpenAI's list, and those of latent reasoning."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: Literal["coconut", "codi", "cot", "panel"]
    thoughts: int = Field(description="Of a panel: 0.")
    width: int = Field(description="Of a panel: 0.")
    fingerprint: str
    parent: None = None
    reproducible: Literal["bits", "tokens"] | None = Field(
        None,
        description="What one seed promises on the server's machine: the same bits in any batch, or "
        "the same tokens unless two are almost equally likely. Null until a worker is ready.",
    )
    dtype: str | None = Field(
        None,
        description="What the decoder's products are computed in, such as int8 or float32. Null "
        "until a worker is ready, and of a panel.",
    )
    results: dict[str, Any]
    samplers: list[SamplerInfoOut]
    default_sampler: str | None = Field(
        None,
        description="The sampler of a request that names none. Null of a panel, and of a "
        "model whose own has not been trained yet: a request must then name one.",
    )
    votes: list[VoteKind] = Field([], description="The votes that a request may name.")
    default_vote: VoteKind = Field("majority", description="The vote of a request that names none.")
    calibrations: list[CalibrationOut]
    examples: list[ExampleOut] = Field([], description="Questions that it is known to answer.")
    limits: LimitsOut
    panel: PanelOut | None = Field(None, description="Of a panel only.")


class VariantOut(Out):
    """A model with a sampler and a budget in its name, for clients that can set nothing else."""

    id: str = Field(examples=["coconut-tiny@gts:64"])
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "gts"
    parent: str = Field(description="The model's own id.")
    sampler: str
    budget: int


class ModelsResponse(Out):
    """The models that are served, the default first, and then their usual variants."""

    object: Literal["list"] = "list"
    data: list[ModelOut | VariantOut]

    def models(self) -> list[ModelOut]:
        """The models themselves."""
        return [each for each in self.data if isinstance(each, ModelOut)]


class HealthResponse(Out):
    """The answer of /livez and /readyz."""

    status: str
