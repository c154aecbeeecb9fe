"""OpenAI's endpoints: a body's question is solved as by /solve and answered in OpenAI's shape."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request

from latent.errors import GtsError
from latent.solved import Solved
from service.api.conversion import draw_seed, result_log_fields, solve_job
from service.api.model_ids import resolve_model_id
from service.api.openai_conversion import Completion, question_of, solve_request
from service.api.openai_schemas import (
    ChatCompletion,
    ChatRequest,
    CompletionRequest,
    TextCompletion,
)
from service.api.routes import (
    ERRORS,
    State,
    add_log_fields,
    solved_response,
    state_of,
    steps,
    stream_response,
    views_of,
    wait_for_results,
)
from service.errors import ServiceError, as_service_error, invalid_field

__all__ = ["router"]

_CHUNK = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "description": "A chunk in JSON, or [DONE]."}},
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": _CHUNK}}},
    **ERRORS,
}

router = APIRouter()


@router.post("/v1/chat/completions", response_model=ChatCompletion, responses=_RESPONSES)
async def chat_completions(body: ChatRequest, request: Request) -> Any:
    """Solve the last user message, for OpenAI's clients; the fields of /solve may be beside theirs."""
    state = state_of(request)
    return await _complete(body, [question_of(body.messages)], request, state)


@router.post("/v1/completions", response_model=TextCompletion, responses=_RESPONSES)
async def completions(body: CompletionRequest, request: Request) -> Any:
    """Solve a prompt, or several, for OpenAI's clients; the fields of /solve may be beside theirs."""
    state = state_of(request)
    if isinstance(body.prompt, str):
        return await _complete(body, [body.prompt], request, state)
    limit = state.settings.max_questions
    if body.stream:
        raise invalid_field("stream takes one prompt, not a list", "stream")
    if set(body.include) & {"paths", "readings"}:
        raise invalid_field("paths and readings take one prompt, not a list", "include")
    if len(body.prompt) > limit:
        raise invalid_field(f"prompt has {len(body.prompt)} items; at most {limit}", "prompt")
    return await _complete(body, body.prompt, request, state)


async def _complete(
    body: ChatRequest | CompletionRequest,
    questions: Sequence[str],
    request: Request,
    state: State,
) -> Any:
    request_id = request.state.log_fields["request_id"]
    model_id = resolve_model_id(body.model, state.catalog, state.settings)
    body = body.model_copy(update={"seed": draw_seed() if body.seed is None else body.seed})
    completion = Completion(body, model_id, request_id)
    own_ids = [f"{request_id}-{number}" for number in range(len(questions))]
    own_ids = own_ids if len(questions) > 1 else [request_id]
    try:
        asked = [solve_request(body, question, model_id) for question in questions]
        jobs = [
            solve_job(each, question, own_id, state.catalog, state.settings)
            for each, question, own_id in zip(asked, questions, own_ids, strict=True)
        ]
    except GtsError as error:
        raise completion.named(as_service_error(error)) from error
    add_log_fields(request, state, jobs[0])
    state.engine.submit(jobs)
    with_texts = asked[0].wants_trajectories
    if body.stream:
        return stream_response(completion.chunks(steps(jobs[0], asked[0], request, state)))
    solved = []
    for job, result in zip(jobs, await wait_for_results(request, state, jobs), strict=True):
        if isinstance(result, ServiceError):
            raise completion.named(result)
        assert isinstance(result, Solved)
        views = await views_of(asked[0], job, result, request, state)
        solved.append(solved_response(result, job, state, with_texts, views))
    request.state.log_fields.update(result_log_fields(solved[0]))
    return completion.response(solved)
