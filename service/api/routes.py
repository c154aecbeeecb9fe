"""The endpoints: turn a body into jobs, submit them to the engine, turn results into a response."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from latent.errors import GtsError
from latent.solved import Solved
from service.api.conversion import (
    diagnose_jobs,
    draw_seed,
    limits_out,
    model_out,
    result_log_fields,
    solve_job,
    solve_response,
    trace_job,
)
from service.api.diagnose_schemas import DiagnoseRequest, DiagnoseResponse, SamplerDiagnosisOut
from service.api.model_ids import resolve_model_id, variants
from service.api.model_schemas import HealthResponse, ModelOut, ModelsResponse, VariantOut
from service.api.panel_conversion import panel_out
from service.api.schemas import SolveManyResponse, SolveRequest, SolveResponse
from service.api.streaming import Progress, events, progress
from service.engine.engine import Engine
from service.engine.job import Job
from service.errors import (
    DeadlineError,
    ErrorResponse,
    NotReadyError,
    ServiceError,
    as_service_error,
    invalid_field,
)
from service.metrics import Metrics, kind_of
from service.models import Catalog, ServedModel, ServedPanel
from service.settings import Settings

__all__ = [
    "ERRORS",
    "State",
    "add_log_fields",
    "router",
    "solved_response",
    "state_of",
    "steps",
    "stream_response",
    "views_of",
    "wait_for_results",
]

ERRORS: dict[int | str, dict[str, Any]] = {
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


@dataclass(frozen=True)
class State:
    """What the endpoints share; built once, with the app."""

    settings: Settings
    catalog: Catalog
    metrics: Metrics
    engine: Engine


def state_of(request: Request) -> State:
    """What the endpoints share. Not a dependency of FastAPI's, which is solved anew in every request."""
    return request.app.state.gts  # type: ignore[no-any-return]


@router.post(
    "/solve",
    response_model=SolveResponse | SolveManyResponse,
    responses={200: {"content": {"text/event-stream": {"schema": _EVENT}}}, **ERRORS},
)
async def solve(body: SolveRequest, request: Request) -> Any:
    """Draw trajectories of a question on a budget and vote.

    With a list of questions: `results`, in order, where one bad question does not fail the others.
    With `stream`: server-sent events `round` (candidates so far), `result`, `error`.
    """
    state = state_of(request)
    if isinstance(body.question, list):
        return await _solve_many(body, body.question, request, state)
    log_fields, with_texts = request.state.log_fields, body.wants_trajectories
    job = solve_job(body, body.question, log_fields["request_id"], state.catalog, state.settings)
    add_log_fields(request, state, job)
    state.engine.submit([job])
    if body.stream:
        return stream_response(events(steps(job, body, request, state)))
    (solved,) = await wait_for_results(request, state, [job])
    if isinstance(solved, ServiceError):
        raise solved
    assert isinstance(solved, Solved)
    views = await views_of(body, job, solved, request, state)
    response = solved_response(solved, job, state, with_texts, views)
    log_fields.update(result_log_fields(response))
    return response


def steps(job: Job, body: SolveRequest, request: Request, state: State) -> AsyncGenerator[Progress]:
    """The progress of an admitted job, until its answer."""
    beat, log_fields = state.settings.heartbeat_seconds, request.state.log_fields
    return progress(job, body, state.engine, state.metrics, beat, log_fields)


def stream_response(stream: AsyncIterator[str]) -> StreamingResponse:
    """Send server-sent events."""
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _solve_many(
    body: SolveRequest, questions: list[str], request: Request, state: State
) -> SolveManyResponse:
    limit = state.settings.max_questions
    if body.stream:
        raise invalid_field("stream takes one question, not a list", "stream")
    if set(body.include) & {"paths", "readings"}:
        raise invalid_field("paths and readings take one question, not a list", "include")
    if not 1 <= len(questions) <= limit:
        raise invalid_field(f"question has {len(questions)} items; give 1 to {limit}", "question")
    request_id, with_texts = request.state.log_fields["request_id"], body.wants_trajectories
    body = body.model_copy(update={"seed": draw_seed() if body.seed is None else body.seed})
    checked: list[Job | ServiceError] = []
    for number, question in enumerate(questions):
        try:
            own_id = f"{request_id}-{number}"
            checked.append(solve_job(body, question, own_id, state.catalog, state.settings))
        except GtsError as error:
            if error.param != "question":
                raise  # it is wrong for all of them
            checked.append(as_service_error(error))
    jobs = [each for each in checked if isinstance(each, Job)]
    if jobs:
        add_log_fields(request, state, jobs[0])
        state.engine.submit(jobs)
    found = iter(await wait_for_results(request, state, jobs))
    results: list[SolveResponse | ErrorResponse] = []
    for each in checked:
        result = next(found) if isinstance(each, Job) else each
        if isinstance(each, Job) and not isinstance(result, ServiceError):
            results.append(solved_response(result, each, state, with_texts))
        else:
            assert isinstance(result, ServiceError)
            results.append(ErrorResponse.model_validate(result.body()))
    return SolveManyResponse(results=results)


def solved_response(
    result: Any,
    job: Job,
    state: State,
    with_texts: bool,
    views: Mapping[str, Any] | None = None,
) -> SolveResponse:
    assert isinstance(result, Solved)
    # Behind the answer, which is sent first.
    asyncio.get_running_loop().call_soon(state.metrics.observe_solved, result)
    return solve_response(
        result, request_id=job.request_id, with_trajectories=with_texts, views=views
    )


async def views_of(
    body: SolveRequest, job: Job, solved: Solved, request: Request, state: State
) -> Mapping[str, Any] | None:
    """Run the trace job of a solved question; None if there is none, or its deadline passes."""
    tracing = trace_job(body, job, solved)
    if tracing is None:
        return None
    state.engine.submit([tracing], is_continued=True)
    (views,) = await wait_for_results(request, state, [tracing])
    if isinstance(views, DeadlineError):
        return None
    if isinstance(views, ServiceError):
        raise views
    assert isinstance(views, dict)
    return views


@router.post("/diagnose", responses=ERRORS)
async def diagnose(body: DiagnoseRequest, request: Request) -> DiagnoseResponse:
    """Measure how samplers explore a question around its deterministic answer."""
    state = state_of(request)
    request_id = request.state.log_fields["request_id"]
    model = state.catalog.find(body.model)
    jobs = diagnose_jobs(body, request_id, model, state.settings)
    add_log_fields(request, state, jobs[0])
    state.engine.submit(jobs)
    measured = []
    for job, found in zip(jobs, await wait_for_results(request, state, jobs), strict=True):
        if isinstance(found, ServiceError):
            raise found
        assert isinstance(found, dict)
        label = f"{job.model}:{job.sampler}" if isinstance(model, ServedPanel) else job.sampler
        measured.append((label, found))
        regime = found["regime"] or "unknown"  # without the true answer
        state.metrics.diagnosed.labels(kind_of(job.sampler), regime).inc()
    return DiagnoseResponse(
        id=request_id,
        model=model.name,
        seed=jobs[0].seed,
        budget=jobs[0].budget,
        deterministic_answer=measured[0][1]["deterministic_answer"],
        samplers=[SamplerDiagnosisOut(sampler=sampler, **found) for sampler, found in measured],
    )


@router.get("/v1/models", responses={401: ERRORS[401]})
async def models(request: Request) -> ModelsResponse:
    """List the models and panels that are served: samplers, sizes, fingerprints and limits.

    The models' usual variants, `NAME@SAMPLER:BUDGET`, follow; others of that form can be used as well.
    """
    state = state_of(request)
    served: list[ServedModel | ServedPanel] = [*state.catalog.all(), *state.catalog.panels()]
    own = [_model_out(each, state) for each in served]
    own.sort(key=lambda each: each.id != state.catalog.default)
    more = [each for model in state.catalog.all() for each in variants(model, state.settings)]
    return ModelsResponse(data=[*own, *more])


@router.get("/v1/models/{model_id}", responses={401: ERRORS[401], 404: ERRORS[404]})
async def model(model_id: str, request: Request) -> ModelOut | VariantOut:
    """Describe one model or panel, or one of a model's variants."""
    state = state_of(request)
    found = resolve_model_id(model_id, state.catalog, state.settings)
    return _model_out(found.model, state) if found.sampler is None else found.out()


def _model_out(model: ServedModel | ServedPanel, state: State) -> ModelOut:
    promises = state.engine.reproducible
    if isinstance(model, ServedModel):
        dtype = state.engine.dtypes.get(model.name)
        return model_out(model, state.settings, promises.get(model.name), dtype)
    kinds = {promises.get(each.name) for each in model.models}
    return panel_out(
        model, limits_out(state.settings), kinds.pop() if len(kinds) == 1 else "tokens"
    )


@router.get("/livez")
async def livez() -> HealthResponse:
    """Answer 200 while the process runs."""
    return HealthResponse(status="ok")


@router.get("/readyz", responses={503: ERRORS[503]})
async def readyz(request: Request) -> HealthResponse:
    """Answer 200 if a request would be admitted and run now, else 503."""
    state = state_of(request)
    if not state.engine.is_ready:
        raise NotReadyError("no worker is ready, or the server is draining", retry_after=1)
    return HealthResponse(status="ready")


@router.get("/metrics", response_class=Response, responses={401: ERRORS[401]})
async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    state = state_of(request)
    return Response(state.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def wait_for_results(
    request: Request, state: State, jobs: list[Job]
) -> list[Solved | dict[str, Any] | ServiceError]:
    """Wait for jobs; if the client disconnects first, free their lanes."""
    disconnected = asyncio.ensure_future(_disconnected(request))
    over = asyncio.get_running_loop().create_future()

    def on_done(_: "asyncio.Future[Any]") -> None:
        is_over = disconnected.done() or not any(job.is_open for job in jobs)
        if is_over and not over.done():
            over.set_result(None)

    # Not `gather` and `wait`, with which the loop turns twice more before an answer is sent.
    disconnected.add_done_callback(on_done)
    for job in jobs:
        job.result.add_done_callback(on_done)
    try:
        if jobs:
            await over
        if any(job.is_open for job in jobs):
            raise ServiceError("the client disconnected", status=499, code="cancelled")
    finally:
        disconnected.cancel()
        for job in jobs:
            state.engine.cancel(job)  # does nothing if it is answered
        prompts = {job.question: job.prompt_tokens for job in jobs}
        request.state.log_fields["prompt_tokens"] = sum(prompts.values())
    results: list[Solved | dict[str, Any] | ServiceError] = []
    for job in jobs:
        error = job.result.exception()
        if error is not None and not isinstance(error, ServiceError):
            raise error
        results.append(job.result.result() if error is None else error)
    return results


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def add_log_fields(request: Request, state: State, job: Job) -> None:
    # With the seed, and the question if that is logged, an answer can be reproduced.
    fields = {"model": job.model, "sampler": job.sampler, "budget": job.budget, "seed": job.seed}
    if state.settings.log_questions:
        fields["question"] = job.question
    request.state.log_fields.update(fields)
