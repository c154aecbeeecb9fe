"""Server-sent events of one job: `round` as candidates come, then `result` or `error`."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from latent.solved import Solved
from service.api.schemas import candidates_out, solve_response
from service.engine.engine import Engine
from service.engine.job import Job
from service.errors import ServiceError
from service.metrics import Metrics
from service.settings import Settings

__all__ = ["events"]

_HEARTBEAT = ": still thinking\n\n"


async def events(
    job: Job,
    engine: Engine,
    metrics: Metrics,
    settings: Settings,
    with_trajectories: bool,
    facts: dict[str, Any],
) -> AsyncIterator[str]:
    """Tell what happens to a job; free its lanes if nobody listens any more."""
    facts["stream_outcome"] = "cancelled"  # unless it comes to its end
    try:
        while not job.result.done():
            step = asyncio.ensure_future(job.progress.get())
            either: set[asyncio.Future[Any]] = {step, job.result}
            done, _ = await asyncio.wait(
                either,
                timeout=settings.heartbeat_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if step in done:
                tally = step.result()
                votes = sum(candidate.votes for candidate in tally.candidates)
                yield _event(
                    "round",
                    {
                        "id": job.request.request_id,
                        "budget_used": votes,
                        "candidates": [c.model_dump() for c in candidates_out(tally)],
                    },
                )
            else:
                step.cancel()
                if not done:
                    yield _HEARTBEAT
        facts["stream_outcome"] = "error" if job.result.exception() else "ok"
        yield _last(job, metrics, with_trajectories)
    finally:
        engine.cancel(job)


def _last(job: Job, metrics: Metrics, with_trajectories: bool) -> str:
    error = job.result.exception()
    if isinstance(error, ServiceError):
        return _event("error", error.body())
    solved = job.result.result()
    assert isinstance(solved, Solved)
    metrics.saw_solved(solved)
    response = solve_response(
        solved, request_id=job.request.request_id, with_trajectories=with_trajectories
    )
    return f"event: result\ndata: {response.model_dump_json()}\n\n"


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
