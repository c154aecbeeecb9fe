"""What a stream tells before its result, and what is left of one whose client disconnects."""

import asyncio
from pathlib import Path

from latent.zoo import resolve_model
from service.api.schemas import RoundEvent, SolveRequest, SolveResponse
from service.api.streaming import events, progress
from service.client import Client
from service.engine.engine import Engine
from service.engine.job import Job
from service.metrics import Metrics
from service.models import Catalog
from service.settings import Settings
from tests.service.server import RunningServer

QUESTION = (
    "Ivan has 63 apples. He finds 7 on the ground. He gives 14 away. How many apples are left?"
)


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


def test_a_budget_of_more_than_a_rounds_time_tells_a_first_event_before_its_result() -> None:
    flags = ("--round-seconds", "0.02")  # no round is so short
    with (
        RunningServer(resolve_model("coconut-tiny"), flags=flags) as server,
        Client(server.url) as client,
    ):
        whole = client.solve(QUESTION, budget=64, seed=5)
        for _ in range(12):  # some of the rounds are made larger, to learn what they cost
            *rounds, result = client.stream(QUESTION, budget=64, seed=5)
            assert isinstance(result, SolveResponse)
            assert result.candidates == whole.candidates
            used = [each.budget_used for each in rounds if isinstance(each, RoundEvent)]
            assert used, "nothing was told before the result"
            assert used == sorted(set(used))
            assert used[-1] < 64
