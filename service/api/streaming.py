"""The server-sent events of one streamed job: `round` with candidates, then `result` or `error`."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from latent.solved import Solved
from service.api.conversion import candidates_out, result_log_fields, solve_response
from service.api.schemas import RoundEvent
from service.engine.engine import Engine
from service.engine.job import Job
from service.errors import ServiceError
from service.metrics import Metrics

__all__ = ["events"]

_HEARTBEAT = ": still thinking\n\n"


async def events(
    job: Job,
    engine: Engine,
    metrics: Metrics,
    heartbeat_seconds: float,
    with_trajectories: bool,
    log_fields: dict[str, Any],
) -> AsyncIterator[str]:
    """Yield a job's events until its answer; free its lanes if the client disconnects."""
    log_fields["stream_outcome"] = "cancelled"  # until the last event
    try:
        while job.is_open:
            try:
                async with asyncio.timeout(heartbeat_seconds):
                    tally = await job.progress.get()
            except TimeoutError:
                yield _HEARTBEAT
                continue
            if tally is not None:
                votes = sum(candidate.votes for candidate in tally.candidates)
                event = RoundEvent(
                    id=job.request_id, budget_used=votes, candidates=candidates_out(tally)
                )
                yield _event("round", event.model_dump_json())
        error = job.result.exception()
        log_fields["stream_outcome"] = "error" if error else "ok"
        if isinstance(error, ServiceError):
            yield _event("error", json.dumps(error.body()))
            return
        solved = job.result.result()
        assert isinstance(solved, Solved)
        metrics.observe_solved(solved)
        response = solve_response(
            solved, request_id=job.request_id, with_trajectories=with_trajectories
        )
        log_fields.update(result_log_fields(response), prompt_tokens=job.prompt_tokens)
        yield _event("result", response.model_dump_json())
    finally:
        engine.cancel(job)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
