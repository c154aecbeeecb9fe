"""A streamed job as it goes on, and its server-sent events: `round`, then `result` or `error`."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from latent.solved import Solved
from latent.votes import Tally
from service.api.conversion import candidates_out, result_log_fields, solve_response, trace_job
from service.api.schemas import RoundEvent, SolveRequest, SolveResponse
from service.engine.engine import Engine
from service.engine.job import Job
from service.errors import DeadlineError, ServiceError
from service.metrics import Metrics

__all__ = ["HEARTBEAT", "Progress", "events", "progress"]

HEARTBEAT = ": still thinking\n\n"

Progress = RoundEvent | SolveResponse | ServiceError | None  # None: time for a heartbeat


async def events(steps: AsyncGenerator[Progress]) -> AsyncIterator[str]:
    """Yield a job's progress as server-sent events."""
    async with aclosing(steps):
        async for step in steps:
            match step:
                case None:
                    yield HEARTBEAT
                case RoundEvent():
                    yield _event("round", step.model_dump_json())
                case SolveResponse():
                    yield _event("result", step.model_dump_json())
                case ServiceError():
                    yield _event("error", json.dumps(step.body()))


async def progress(
    job: Job,
    body: SolveRequest,
    engine: Engine,
    metrics: Metrics,
    heartbeat_seconds: float,
    log_fields: dict[str, Any],
) -> AsyncGenerator[Progress]:
    """Yield what happens to a job until its answer; free its lanes if the client disconnects."""
    log_fields["stream_outcome"] = "cancelled"  # until the last event
    jobs = [job]
    try:
        async for tally in _tallies(job, heartbeat_seconds):
            yield None if tally is None else _round(job, tally)
        solved = job.result.result()
        assert isinstance(solved, Solved)
        metrics.observe_solved(solved)
        views = None
        if (tracing := trace_job(body, job, solved)) is not None:
            engine.submit([tracing], is_continued=True)
            jobs.append(tracing)
            async for _ in _tallies(tracing, heartbeat_seconds):
                yield None
            views = _views_of(tracing)
        response = solve_response(
            solved,
            request_id=job.request_id,
            with_trajectories=body.wants_trajectories,
            views=views,
        )
        log_fields.update(result_log_fields(response), prompt_tokens=job.prompt_tokens)
        log_fields["stream_outcome"] = "ok"
        yield response
    except ServiceError as error:
        log_fields["stream_outcome"] = "error"
        yield error
    finally:
        for each in jobs:
            engine.cancel(each)


async def _tallies(job: Job, heartbeat_seconds: float) -> AsyncIterator[Tally | None]:
    """Yield the tallies of a job until it is answered, and None after each silence."""
    while job.is_open:
        try:
            async with asyncio.timeout(heartbeat_seconds):
                tally = await job.progress.get()
        except TimeoutError:
            yield None
            continue
        if tally is not None:
            yield tally


def _views_of(tracing: Job) -> dict[str, Any] | None:
    """What a finished trace job found; None if its deadline came first."""
    try:
        views = tracing.result.result()
    except DeadlineError:
        return None
    assert isinstance(views, dict)
    return views


def _round(job: Job, tally: Tally) -> RoundEvent:
    votes = sum(candidate.votes for candidate in tally.candidates)
    return RoundEvent(id=job.request_id, budget_used=votes, candidates=candidates_out(tally))


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
