"""The endpoints: read a body, hand jobs to the engine, put the answers into shape."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from latent.errors import GtsError
from latent.solved import Solved
from service.api.requests import DiagnoseRequest, SolveRequest, diagnose_jobs, solve_job
from service.api.schemas import (
    DiagnoseResponse,
    HealthResponse,
    LimitsOut,
    ModelOut,
    ModelsResponse,
    SamplerDiagnosisOut,
    SolveManyResponse,
    SolveResponse,
    solve_response,
)
from service.api.streaming import events
from service.engine.engine import Engine
from service.engine.job import Job, JobRequest
from service.errors import ErrorResponse, NotReadyError, ServiceError, as_service_error
from service.metrics import Metrics, kind_of
from service.models import Catalog
from service.settings import Settings

__all__ = ["State", "router"]

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": text}
    for status, text in {
        400: "Malformed JSON",
        401: "Missing or wrong bearer token",
        404: "Unknown model",
        413: "Body too large",
        415: "A body that is not application/json",
        422: "A field is wrong; `param` names it",
        429: "Too many lanes wait; see Retry-After",
        500: "The device failed on this request",
        503: "Not ready, or draining",
        504: "The deadline passed with nothing to show",
    }.items()
}

_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["round", "result", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}

router = APIRouter()


class State:
    """What the endpoints share; built once."""

    def __init__(
        self, settings: Settings, catalog: Catalog, metrics: Metrics, engine: Engine
    ) -> None:
        self.settings, self.catalog, self.metrics, self.engine = settings, catalog, metrics, engine


def _state(request: Request) -> State:
    return request.app.state.gts  # type: ignore[no-any-return]


StateDep = Annotated[State, Depends(_state)]


@router.post(
    "/solve",
    response_model=SolveResponse | SolveManyResponse,
    responses={200: {"content": {"text/event-stream": {"schema": _EVENT}}}, **_ERRORS},
)
async def solve(body: SolveRequest, request: Request, state: StateDep) -> Any:
    """Draw trajectories of a question on a budget and vote.

    With a list of questions: `results`, in order, where one bad question does not fail the others.
    With `stream`: server-sent events `round` (candidates so far), `result`, `error`.
    """
    request_id, with_texts = request.state.facts["request_id"], "trajectories" in body.include
    if isinstance(body.question, list):
        return await _solve_many(body, body.question, request, state)
    job_request = solve_job(body, body.question, request_id, state.catalog, state.settings)
    _note(request, state, job_request)
    (job,) = state.engine.submit(
        [job_request], deadline_ms=body.deadline_ms, is_streamed=body.stream
    )
    if body.stream:
        facts = request.state.facts
        stream = events(job, state.engine, state.metrics, state.settings, with_texts, facts)
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
    (solved,) = await _answers(request, state, [job])
    if isinstance(solved, ServiceError):
        raise solved
    assert isinstance(solved, Solved)
    state.metrics.saw_solved(solved)
    return solve_response(solved, request_id=request_id, with_trajectories=with_texts)


async def _solve_many(
    body: SolveRequest, questions: list[str], request: Request, state: State
) -> SolveManyResponse:
    request_id, with_texts = request.state.facts["request_id"], "trajectories" in body.include
    limit = state.settings.max_questions
    if body.stream:
        raise _bad_field("stream takes one question, not a list", "stream")
    if not 1 <= len(questions) <= limit:
        raise _bad_field(f"question has {len(questions)} items; give 1 to {limit}", "question")
    outcomes: list[JobRequest | ServiceError] = []
    for number, question in enumerate(questions):
        try:
            own_id = f"{request_id}-{number}"
            outcomes.append(solve_job(body, question, own_id, state.catalog, state.settings))
        except GtsError as error:
            if error.param != "question":
                raise  # the same for all of them
            outcomes.append(as_service_error(error))
    good = [outcome for outcome in outcomes if isinstance(outcome, JobRequest)]
    if good:
        _note(request, state, good[0])
    jobs = state.engine.submit(good, deadline_ms=body.deadline_ms) if good else []
    found = await _answers(request, state, jobs)
    answers = {job.job_id: answer for job, answer in zip(good, found, strict=True)}
    results: list[SolveResponse | ErrorResponse] = []
    for outcome in outcomes:
        answer = answers[outcome.job_id] if isinstance(outcome, JobRequest) else outcome
        if isinstance(outcome, JobRequest) and isinstance(answer, Solved):
            state.metrics.saw_solved(answer)
            results.append(
                solve_response(answer, request_id=outcome.request_id, with_trajectories=with_texts)
            )
        else:
            assert isinstance(answer, ServiceError)
            results.append(ErrorResponse.model_validate(answer.body()))
    return SolveManyResponse(results=results)


@router.post("/diagnose", response_model=DiagnoseResponse, responses=_ERRORS)
async def diagnose(body: DiagnoseRequest, request: Request, state: StateDep) -> Any:
    """Say how samplers explore a question: gain, shift, diversity, regime, and the vote as it grows."""
    request_id = request.state.facts["request_id"]
    model = state.catalog.get(body.model)
    requests = diagnose_jobs(body, request_id, model, state.settings)
    _note(request, state, requests[0])
    jobs = state.engine.submit(requests, deadline_ms=None)
    measured = []
    for job, found in zip(requests, await _answers(request, state, jobs), strict=True):
        if isinstance(found, ServiceError):
            raise found
        assert isinstance(found, dict)
        measured.append((job.sampler, found))
        regime = found["regime"] or "unknown"  # without the answer nobody can tell
        state.metrics.diagnosed.labels(kind_of(job.sampler), regime).inc()
    return DiagnoseResponse(
        id=request_id,
        model=model.name,
        seed=requests[0].seed,
        budget=requests[0].budget,
        deterministic_answer=measured[0][1]["deterministic_answer"],
        samplers=[SamplerDiagnosisOut(sampler=sampler, **found) for sampler, found in measured],
    )


@router.get("/v1/models", responses={401: _ERRORS[401]})
async def models(state: StateDep) -> ModelsResponse:
    """List the models that are served, their samplers, sizes, fingerprints and limits."""
    settings = state.settings
    limits = LimitsOut(
        budget=settings.max_budget,
        question_chars=settings.max_question_chars,
        questions=settings.max_questions,
        samplers=settings.max_samplers,
    )
    described = [ModelOut(**model.describe(), limits=limits) for model in state.catalog.all()]
    return ModelsResponse(data=described)


@router.get("/livez")
async def livez() -> HealthResponse:
    """Say that the process answers."""
    return HealthResponse(status="ok")


@router.get("/readyz", responses={503: _ERRORS[503]})
async def readyz(state: StateDep) -> HealthResponse:
    """Say whether a request would be taken and run now."""
    if not state.engine.is_ready:
        raise NotReadyError("no worker is ready, or the server is draining", retry_after=1)
    return HealthResponse(status="ready")


@router.get("/metrics", response_class=Response, responses={401: _ERRORS[401]})
async def metrics(state: StateDep) -> Response:
    """Give the Prometheus metrics."""
    return Response(state.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _answers(
    request: Request, state: State, jobs: list[Job]
) -> list[Solved | dict[str, Any] | ServiceError]:
    """Wait for jobs; if the client goes away first, free their lanes."""
    gone = asyncio.create_task(_disconnected(request))
    everyone = asyncio.gather(*(job.result for job in jobs), return_exceptions=True)
    try:
        await asyncio.wait(
            {gone, asyncio.ensure_future(everyone)}, return_when=asyncio.FIRST_COMPLETED
        )
        if not everyone.done():
            request.state.facts["is_gone"] = True
            for job in jobs:
                state.engine.cancel(job)
        found = await everyone
    finally:
        gone.cancel()
    answers: list[Solved | dict[str, Any] | ServiceError] = []
    for answer in found:
        if isinstance(answer, asyncio.CancelledError):
            answers.append(ServiceError("the client went away", status=499, code="cancelled"))
        elif isinstance(answer, BaseException) and not isinstance(answer, ServiceError):
            raise answer
        else:
            answers.append(answer)
    return answers


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _note(request: Request, state: State, job: JobRequest) -> None:
    """Put into the log line what this request is."""
    request.state.facts |= {"model": job.model, "sampler": job.sampler, "budget": job.budget}
    if state.settings.log_questions:
        request.state.facts["question"] = job.question


def _bad_field(message: str, param: str) -> ServiceError:
    return ServiceError(
        message, status=422, type="invalid_request", code="invalid_field", param=param
    )


def error_response(error: ServiceError) -> JSONResponse:
    """Answer with an error in its one shape."""
    return JSONResponse(error.body(), status_code=error.status, headers=error.headers())
