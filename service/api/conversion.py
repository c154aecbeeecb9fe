"""Between the API's schemas and the engine: request bodies to jobs, results to response bodies."""

import secrets
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, get_args

from latent.answers import show_answer
from latent.errors import InputError, SpecError
from latent.familiarity import UNFAMILIAR
from latent.folders import sampler_spec
from latent.solved import MemberWork, Solved
from latent.stopping import check_stop
from latent.trajectory import DETERMINISTIC, Timing, Trajectory, budget_indices
from latent.votes import Tally
from service.api.diagnose_schemas import DiagnoseRequest
from service.api.model_schemas import (
    CalibrationOut,
    ExampleOut,
    LimitsOut,
    ModelOut,
    SamplerInfoOut,
)
from service.api.panel_conversion import panel_job, stop_of
from service.api.schemas import (
    CandidateOut,
    MemberOut,
    SolveRequest,
    SolveResponse,
    TimingOut,
    TokenOut,
    TrajectoryOut,
    UsageOut,
)
from service.engine.job import Job
from service.engine.messages import View
from service.models import Catalog, ServedModel, ServedPanel
from service.settings import Settings

__all__ = [
    "candidates_out",
    "diagnose_jobs",
    "draw_seed",
    "limits_out",
    "model_out",
    "result_log_fields",
    "solve_job",
    "solve_response",
    "trace_job",
]

_SOLVE_BUDGET, _DIAGNOSE_BUDGET = 8, 32
# Of a trace, besides the deterministic trajectory; PCA takes the cube of the points.
_MAX_PATHS, _MAX_POINTS = 64, 1024


def solve_job(
    body: SolveRequest, question: str, request_id: str, catalog: Catalog, settings: Settings
) -> Job:
    """Check one question of a /solve against the model and the limits, and make its job."""
    model = catalog.find(body.model)
    budget = min(_SOLVE_BUDGET, settings.max_budget) if body.budget is None else body.budget
    _check_limits(question, budget, settings)
    seed = draw_seed() if body.seed is None else body.seed
    if isinstance(model, ServedPanel):
        if _views(body):
            raise InputError(
                "include: paths and readings are of one model, and this is a panel", param="include"
            )
        return panel_job(model, body, question, request_id, budget, seed)
    spec = model.check_sampler(body.sampler)
    if _views(body) and not model.format.is_latent:
        raise InputError(
            f"include: paths and readings need thoughts; {model.name} has none", param="include"
        )
    stop = stop_of(body)
    by_certainty = stop is not None and stop.kind == "certainty"
    vote = model.format.vote_or_default(body.vote, counts_votes=by_certainty)
    model.check_vote(vote)
    calibration = model.calibrations.find(spec, vote)
    what = f"{model.name} with sampler {spec}"
    check_stop(what, vote, stop, body.abstain_below, is_calibrated=calibration is not None)
    return Job(
        request_id=request_id,
        kind="solve",
        model=model.name,
        sampler=str(spec),
        thoughts=model.format.thoughts,
        question=question,
        seed=seed,
        indices=budget_indices(
            spec.effective_budget(budget), include_deterministic=body.include_deterministic
        ),
        budget=budget,
        vote=vote,
        stop=stop,
        abstain_below=body.abstain_below,
        calibration=calibration,
        familiarity=model.calibrations.familiarity(question),
        deadline_ms=body.deadline_ms,
        is_streamed=body.stream,
        wants_tokens="tokens" in body.include,
    )


def trace_job(body: SolveRequest, job: Job, solved: Solved) -> Job | None:
    """Make the job that runs a solved question's first trajectories again and keeps their thoughts.

    With the same seed they are the same trajectories. None if nothing of them is asked for, or the
    deadline has passed.
    """
    views = _views(body)
    if not views or solved.ended_by == "deadline":
        return None
    count = max(1, min(_MAX_PATHS, _MAX_POINTS // job.thoughts))
    sampled = [each.index for each in solved.trajectories if each.index != DETERMINISTIC]
    left_ms = None
    if job.deadline_ms is not None:
        left_ms = max(1, job.deadline_ms - int(solved.total_seconds * 1e3))
    return Job(
        request_id=job.request_id,
        kind="trace",
        model=job.model,
        sampler=job.sampler,
        thoughts=job.thoughts,
        question=job.question,
        seed=job.seed,
        indices=(DETERMINISTIC, *sampled[:count]),
        budget=job.budget,
        deadline_ms=left_ms,
        views=views,
    )


def diagnose_jobs(
    body: DiagnoseRequest, request_id: str, model: ServedModel | ServedPanel, settings: Settings
) -> list[Job]:
    """Make a job for each sampler of a /diagnose, or each member of a panel; all share the seed."""
    budget = min(_DIAGNOSE_BUDGET, settings.max_budget) if body.budget is None else body.budget
    asked = _diagnosed(body, model, budget, settings)
    _check_limits(body.question, budget, settings)
    seed = draw_seed() if body.seed is None else body.seed
    return [
        Job(
            request_id=request_id,
            kind="diagnose",
            model=each.name,
            sampler=spec,
            thoughts=each.format.thoughts,
            question=body.question,
            seed=seed,
            indices=(DETERMINISTIC, *range(budget)),
            budget=budget,
            answer=_plain_number(body.answer),
        )
        for each, spec in asked
    ]


def _diagnosed(
    body: DiagnoseRequest, model: ServedModel | ServedPanel, budget: int, settings: Settings
) -> list[tuple[ServedModel, str]]:
    """The models and samplers that a /diagnose measures."""
    if isinstance(model, ServedPanel):
        if body.samplers is not None:
            raise InputError(
                "the members of a panel have their own samplers; leave samplers out",
                param="samplers",
            )
        specs = [str(member.sampler) for member in model.panel.members]
        return list(zip(model.models, specs, strict=True))
    samplers = body.samplers or model.default_samplers()
    if len(samplers) > settings.max_samplers:
        raise InputError(
            f"{len(samplers)} samplers; at most {settings.max_samplers}", param="samplers"
        )
    try:
        found = dict.fromkeys(str(model.check_sampler(text)) for text in samplers)
    except SpecError as error:
        raise SpecError(str(error), param="samplers") from error
    return [(model, spec) for spec in found]


def solve_response(
    solved: Solved,
    *,
    request_id: str,
    with_trajectories: bool,
    views: Mapping[str, Any] | None = None,
) -> SolveResponse:
    """Make the response of a solved question, the same for the API and `gts solve --json`.

    `views` are the result of its trace job.
    """
    views = views or {}
    is_unfamiliar = solved.familiarity is not None and solved.familiarity.is_unfamiliar
    count = len(solved.trajectories)
    shown = None
    if with_trajectories:
        shown = [_trajectory_out(each) for each in solved.trajectories]
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
        vote=solved.tally.kind,
        familiarity=None if solved.familiarity is None else solved.familiarity.percentile,
        unfamiliar=is_unfamiliar,
        warning=UNFAMILIAR if is_unfamiliar else None,
        candidates=candidates_out(solved.tally),
        usage=UsageOut(
            prompt_tokens=solved.prompt_tokens,
            thoughts=solved.thoughts,
            answer_tokens=solved.answer_tokens,
            trajectories=count,
        ),
        timing_ms=_timing_out(solved.timing, solved.queue_seconds, solved.total_seconds),
        members=None if solved.members is None else [_member_out(one) for one in solved.members],
        trajectories=shown,
        paths=views.get("paths"),
        readings=views.get("readings"),
    )


def _member_out(work: MemberWork) -> MemberOut:
    timing = work.timing
    seconds = timing.prefill + timing.thoughts + timing.decode
    return MemberOut(
        member=work.member,
        usage=UsageOut.model_validate(work),
        timing_ms=_timing_out(timing, work.queue_seconds, seconds),
    )


def _timing_out(timing: Timing, queue_seconds: float, total_seconds: float) -> TimingOut:
    return TimingOut(
        queue=queue_seconds * 1e3,
        prefill=timing.prefill * 1e3,
        thoughts=timing.thoughts * 1e3,
        decode=timing.decode * 1e3,
        total=total_seconds * 1e3,
    )


def _trajectory_out(trajectory: Trajectory) -> TrajectoryOut:
    tokens = None
    if trajectory.token_texts is not None:
        pairs = zip(trajectory.token_texts, trajectory.token_logprobs, strict=True)
        tokens = [TokenOut(token=token, logprob=logprob) for token, logprob in pairs]
    return TrajectoryOut(
        index=trajectory.index,
        text=trajectory.text,
        answer=show_answer(trajectory.answer),
        logprob=trajectory.logprob,
        confidence=trajectory.confidence,
        score=trajectory.score,
        chain_logprob=trajectory.chain_logprob,
        member=trajectory.member,
        member_index=trajectory.member_index,
        tokens=tokens,
    )


def result_log_fields(response: SolveResponse) -> dict[str, int | str | bool]:
    """What the log says of an answer, beside what was asked."""
    return {
        "budget_used": response.budget_used,
        "stop_reason": response.stop_reason,
        "unfamiliar": response.unfamiliar,
    }


def candidates_out(tally: Tally) -> list[CandidateOut]:
    """The candidates of a vote, winner first."""
    return [CandidateOut.model_validate(candidate) for candidate in tally.candidates]


def model_out(
    model: ServedModel,
    settings: Settings,
    reproducible: Literal["bits", "tokens"] | None,
    dtype: str | None,
) -> ModelOut:
    """Describe a model for /v1/models."""
    return ModelOut(
        id=model.name,
        object="model",
        created=0,
        owned_by="gts",
        kind=model.format.kind,
        thoughts=model.format.thoughts,
        width=model.width,
        fingerprint=model.fingerprint,
        reproducible=reproducible,
        dtype=dtype,
        results=model.format.provenance.get("results", {}),
        samplers=[
            SamplerInfoOut(
                spec=sampler_spec(name),
                reasoner_fingerprint=card.reasoner_fingerprint,
                results=card.results,
            )
            for name, card in model.samplers.items()
        ],
        default_sampler=model.default_sampler,
        votes=list(model.votes),
        default_vote=model.format.vote_or_default(None),
        calibrations=[CalibrationOut.model_validate(each) for each in model.calibrations.fitted],
        examples=[ExampleOut.model_validate(each) for each in model.examples],
        limits=limits_out(settings),
        panel=None,
    )


def limits_out(settings: Settings) -> LimitsOut:
    """The limits of requests, the same for every model."""
    return LimitsOut(
        budget=settings.max_budget,
        question_chars=settings.max_question_chars,
        questions=settings.max_questions,
        samplers=settings.max_samplers,
    )


def _views(body: SolveRequest) -> tuple[View, ...]:
    return tuple(each for each in get_args(View) if each in body.include)


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


def _plain_number(answer: str | float | None) -> str | None:
    """Write a number without an exponent, which the answer parser does not read."""
    return format(Decimal(repr(answer)), "f") if isinstance(answer, float | int) else answer


def draw_seed() -> int:
    """A seed for a request that has none; it is reported with the answer."""
    return secrets.randbelow(2**32)
