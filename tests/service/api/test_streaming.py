"""The events of a stream whose client disconnects."""

import asyncio
from pathlib import Path

from service.api.schemas import SolveRequest
from service.api.streaming import events, progress
from service.engine.engine import Engine
from service.engine.job import Job
from service.metrics import Metrics
from service.models import Catalog
from service.settings import Settings


def test_a_cancelled_stream_leaves_no_task_behind(folder: Path) -> None:
    catalog = Catalog([str(folder)])
    metrics = Metrics(catalog)

    async def run() -> tuple[bool, set[asyncio.Task[object]]]:
        engine = Engine(Settings(), catalog, metrics)
        job = Job("r", "solve", "counting", "gts", 1, "?", 0, (0, 1), 2, is_streamed=True)
        job.result = asyncio.get_running_loop().create_future()
        body = SolveRequest(question="?")
        stream = events(progress(job, body, engine, metrics, 60.0, {}))
        reader = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.01)
        reader.cancel()
        await asyncio.wait({reader})
        here = asyncio.current_task()
        return job.result.cancelled(), {task for task in asyncio.all_tasks() if task is not here}

    is_cancelled, left = asyncio.run(run())
    assert is_cancelled, "its lanes are freed"
    assert left == set()
