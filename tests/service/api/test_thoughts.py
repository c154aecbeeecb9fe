"""`include: paths` and `readings` over real HTTP: the trajectories that voted, bounded, or refused."""

from dataclasses import replace

import httpx
import pytest
from pydantic import ValidationError

from latent.solved import Solved
from latent.trajectory import Timing, Trajectory
from latent.votes import tally
from service.api.conversion import trace_job
from service.api.schemas import SolveRequest, SolveResponse
from service.engine.job import Job
from tests.service.api.test_http import QUESTION, read_events, solve

INCLUDE = ["trajectories", "paths", "readings"]
VIEWS = SolveRequest(question="?", include=["paths"])


def test_paths_and_readings_are_of_the_trajectories_that_voted(http: httpx.Client) -> None:
    found = SolveResponse.model_validate(solve(http, budget=8, include=INCLUDE))
    assert found.paths is not None
    assert found.readings is not None
    assert [path.index for path in found.paths.trajectories] == list(range(-1, 8))
    voted = {each.index: each for each in found.trajectories or ()}
    for path in found.paths.trajectories:
        assert len(path.points) == len(found.paths.median) == 3
        if path.index >= 0:
            own = path.model_dump(exclude={"points"})
            assert own == voted[path.index].model_dump()
    assert [each.index for each in found.readings] == list(range(-1, 8))
    for each in found.readings:
        for tokens in each.thoughts:
            chances = [token.probability for token in tokens]
            assert chances == sorted(chances, reverse=True)


def test_a_stream_ends_with_the_same_paths(http: httpx.Client) -> None:
    plain = solve(http, budget=4, include=["paths"])
    (*_, (name, streamed)) = read_events(http, budget=4, include=["paths"])
    assert name == "result"
    assert streamed["paths"] == plain["paths"]
    assert streamed["readings"] is None


def test_paths_are_bounded_and_those_of_an_early_stop_are_the_ones_used(http: httpx.Client) -> None:
    assert len(solve(http, budget=128, include=["paths"])["paths"]["trajectories"]) == 65
    stopped = solve(http, budget=128, stop={"certainty": 0.6}, include=["paths"])
    assert len(stopped["paths"]["trajectories"]) == 1 + stopped["budget_used"]
    one = solve(http, budget=1, include=["paths"])
    assert [path["index"] for path in one["paths"]["trajectories"]] == [-1]


@pytest.mark.parametrize("change", [{"model": "texting"}, {"question": [QUESTION]}])
def test_what_has_no_thoughts_to_show_is_refused_by_name(
    http: httpx.Client, change: dict[str, object]
) -> None:
    answer = http.post("/solve", json={"question": QUESTION, "include": ["readings"], **change})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "include"


def test_an_unknown_view_is_refused() -> None:
    with pytest.raises(ValidationError, match="include"):
        SolveRequest.model_validate({"question": "?", "include": ["dreams"]})


def test_a_trace_has_the_time_that_is_left_and_none_after_the_deadline() -> None:
    job = Job("r", "solve", "m", "gts", 3, "?", 0, (0, 1), 2, deadline_ms=1000)
    trajectories = [Trajectory(index, "", None, 0.0, (), (), None) for index in (0, 1)]
    solved = Solved(
        model="m",
        sampler="gts",
        seed=0,
        budget=2,
        prompt_tokens=1,
        thoughts=3,
        answer_tokens=1,
        trajectories=trajectories,
        tally=tally(trajectories),
        timing=Timing(),
        total_seconds=0.4,
    )
    tracing = trace_job(VIEWS, job, solved)
    assert tracing is not None
    assert tracing.deadline_ms == 600
    assert tracing.indices == (-1, 0, 1)
    assert trace_job(VIEWS, job, replace(solved, ended_by="deadline")) is None
    assert trace_job(SolveRequest(question="?"), job, solved) is None
