"""The bodies that the API takes, and their reading into jobs."""

import secrets
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from latent.errors import InputError, SpecError
from latent.trajectory import DETERMINISTIC, MAX_SEED, budget_indices
from latent.votes import VoteKind
from service.engine.job import JobRequest
from service.models import Catalog, ServedModel
from service.settings import Settings

__all__ = ["DiagnoseRequest", "SolveRequest", "Stop", "diagnose_jobs", "solve_job"]

Seed = Annotated[
    int | None,
    Field(ge=0, le=MAX_SEED, strict=True, description="Drawn, and reported, when absent."),
]
Answer = (
    Annotated[str, Field(max_length=64)]
    | Annotated[int, Field(strict=True, ge=-(10**15), le=10**15)]
    | Annotated[float, Field(strict=True, ge=-1e15, le=1e15)]
    | None
)
SamplerText = Annotated[str, Field(min_length=1, max_length=200)]
_SOLVE_BUDGET, _DIAGNOSE_BUDGET = 8, 32
_EXAMPLE = (
    "Ivan has 88 apples. He finds 10 on the ground. He gives 14 to the neighbours. "
    "How many apples are left?"
)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Stop(_Body):
    """An adaptive budget: stop once the leader is this certain to beat the runner-up."""

    certainty: float = Field(gt=0.5, lt=1.0, strict=True, examples=[0.95])


class SolveRequest(_Body):
    """A question, or several, and the budget to spend on each."""

    question: str | list[str] = Field(examples=[_EXAMPLE])
    budget: int | None = Field(
        None, ge=1, strict=True, description="Trajectories for each question; 8 when absent."
    )
    sampler: SamplerText | None = Field(
        None,
        examples=["gts"],
        description="deterministic (one trajectory, whatever the budget), dropout:0.1, "
        "gaussian:1.0, gts, gts:NAME or token:1.0. "
        "Absent: gts, or token for a text reasoner.",
    )
    vote: VoteKind = "majority"
    model: str | None = Field(
        None, min_length=1, max_length=200, description="A name from /v1/models."
    )
    seed: Seed = None
    stop: Stop | None = Field(None, description="Majority vote only.")
    include_deterministic: bool = Field(
        False,
        strict=True,
        description="Let the unperturbed trajectory, index -1, be one of the budget.",
    )
    deadline_ms: int | None = Field(
        None, ge=1, le=3_600_000, strict=True, description="Answer then with the votes so far."
    )
    stream: bool = Field(
        False, strict=True, description="Server-sent events: round, result, error."
    )
    include: list[Literal["trajectories"]] = Field(
        [], max_length=1, description="`trajectories`: every one, with its text and confidence."
    )


class DiagnoseRequest(_Body):
    """A question to look at how samplers explore it; with `answer`, how well."""

    question: str = Field(examples=[_EXAMPLE])
    answer: Answer = Field(None, examples=[84])
    samplers: list[SamplerText] | None = Field(
        None, min_length=1, description="Absent: one of every kind that the model supports."
    )
    budget: int | None = Field(None, ge=2, strict=True, description="32 when absent.")
    seed: Seed = None
    model: str | None = Field(None, min_length=1, max_length=200)


def solve_job(
    body: SolveRequest, question: str, request_id: str, catalog: Catalog, settings: Settings
) -> JobRequest:
    """Check one question of a /solve against the model and the limits."""
    model = catalog.get(body.model)
    spec = model.check_sampler(body.sampler)
    budget = min(_SOLVE_BUDGET, settings.max_budget) if body.budget is None else body.budget
    _check_limits(question, budget, settings)
    if body.stop is not None and body.vote != "majority":
        raise InputError(f"stop goes with the majority vote, not {body.vote}", param="stop")
    if body.vote == "centroid" and not model.format.is_latent:
        raise InputError(f"vote 'centroid' needs thoughts; {model.name} has none", param="vote")
    return JobRequest(
        request_id=request_id,
        kind="solve",
        model=model.name,
        sampler=str(spec),
        thoughts=model.format.thoughts,
        question=question,
        seed=_draw() if body.seed is None else body.seed,
        indices=budget_indices(
            spec.effective_budget(budget), include_deterministic=body.include_deterministic
        ),
        budget=budget,
        vote=body.vote,
        certainty=None if body.stop is None else body.stop.certainty,
        calibration=model.calibrations.find(spec, body.vote),
    )


def diagnose_jobs(
    body: DiagnoseRequest, request_id: str, model: ServedModel, settings: Settings
) -> list[JobRequest]:
    """Turn a /diagnose into a job for each sampler; all share the seed."""
    samplers = body.samplers or model.default_samplers()
    if len(samplers) > settings.max_samplers:
        raise InputError(
            f"{len(samplers)} samplers; at most {settings.max_samplers}", param="samplers"
        )
    budget = min(_DIAGNOSE_BUDGET, settings.max_budget) if body.budget is None else body.budget
    _check_limits(body.question, budget, settings)
    seed = _draw() if body.seed is None else body.seed
    try:
        specs = dict.fromkeys(str(model.check_sampler(text)) for text in samplers)
    except SpecError as error:
        raise SpecError(str(error), param="samplers") from error
    return [
        JobRequest(
            request_id=request_id,
            kind="diagnose",
            model=model.name,
            sampler=spec,
            thoughts=model.format.thoughts,
            question=body.question,
            seed=seed,
            indices=(DETERMINISTIC, *range(budget)),
            budget=budget,
            answer=_plain(body.answer),
        )
        for spec in specs
    ]


def _check_limits(question: str, budget: int, settings: Settings) -> None:
    if len(question) > settings.max_question_chars:
        raise InputError(
            f"question has {len(question)} characters; at most {settings.max_question_chars}",
            param="question",
        )
    if not question.strip():
        raise InputError("question is empty; give some text", param="question")
    if budget > settings.max_budget:
        raise InputError(
            f"budget must be at most {settings.max_budget}, got {budget}", param="budget"
        )


def _plain(answer: str | float | None) -> str | None:
    """Write a number out without an exponent, which no answer has."""
    return format(Decimal(repr(answer)), "f") if isinstance(answer, float | int) else answer


def _draw() -> int:
    return secrets.randbelow(2**32)
