"""When a panel's job answers, with which of its members' lanes, and which lanes it lets run."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from latent.panel import Member, Panel
from latent.solved import Solved
from latent.specs import SamplerSpec
from latent.stopping import Stop
from latent.trajectory import Timing
from service.engine.job import Job
from service.engine.messages import LaneReport
from service.engine.panel_job import PanelJob
from service.errors import DeadlineError
from tests.trajectories import trajectory

GTS = SamplerSpec("gts")


def make_job(budget: int, **changes: Any) -> PanelJob:
    """A job of a panel of a, b and c, as it is after its admission."""
    split = changes.pop("split", "fixed")
    panel = Panel("p", tuple(Member(name, GTS) for name in "abc"), split, sure=0.9)
    places = panel.places(budget)
    members = tuple(
        Job("r", "solve", each.model, "gts", 6, "?", 0, _own(places, number), budget)
        for number, each in enumerate(panel.members)
    )
    job = PanelJob(
        request_id="r",
        kind="solve",
        model="p",
        sampler="",
        thoughts=0,
        question="?",
        seed=0,
        indices=tuple(range(len(places))),
        budget=budget,
        panel=panel,
        places=places,
        members=members,
        **changes,
    )
    job.result = asyncio.get_running_loop().create_future()
    job.release()
    return job


def _own(places: Any, number: int) -> tuple[int, ...]:
    return tuple(place.index for place in places if place.member == number)


def finish(job: PanelJob, member: int, *answers: int) -> int:
    """Report a member's next waiting lanes with these answers; return the surplus."""
    part = job.members[member]
    lanes = part.take(len(answers))
    drawn = tuple(trajectory(index, each) for index, each in zip(lanes, answers, strict=True))
    return part.accept(LaneReport(drawn, (2,) * len(drawn), 5, Timing(decode=1.0)))


def waiting(job: PanelJob) -> list[list[int]]:
    return [list(member.pending) for member in job.members]


def run(test: Callable[[], None]) -> None:
    async def inside() -> None:
        test()

    asyncio.run(inside())


def solved(job: PanelJob) -> Solved:
    result = job.result.result()
    assert isinstance(result, Solved)
    return result


def test_a_fixed_split_releases_all_members_and_answers_when_all_are_done() -> None:
    def test() -> None:
        job = make_job(6)
        assert waiting(job) == [[-1, 0], [-1, 0], [-1, 0]]
        finish(job, 2, 7, 7)
        finish(job, 0, 7, 8)
        assert job.is_open
        finish(job, 1, 7, 8)
        answer = solved(job)
        assert (answer.answer, answer.ended_by) == ("7", "budget")
        assert [each.member for each in answer.trajectories] == ["a:gts", "b:gts", "c:gts"] * 2
        assert [each.member_index for each in answer.trajectories] == [-1] * 3 + [0] * 3
        assert answer.tally.winner.members == {"a:gts": 1, "b:gts": 1, "c:gts": 2}
        assert answer.members is not None
        assert [work.thoughts for work in answer.members] == [12, 12, 12]
        assert (answer.thoughts, answer.answer_tokens, answer.prompt_tokens) == (36, 12, 15)
        assert answer.timing.decode == 3.0

    run(test)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_order_in_which_members_finish_does_not_matter(order: tuple[int, ...]) -> None:
    def test() -> None:
        job = make_job(6)
        for member in order:
            finish(job, member, 7, member)
        assert [each.answer for each in solved(job).trajectories] == [7, 7, 7, 0, 1, 2]

    run(test)


def test_an_adaptive_split_asks_the_next_member_only_while_unsure() -> None:
    def test() -> None:
        job = make_job(12, split="adaptive")
        assert waiting(job) == [[-1, 0, 1, 2], [], []]
        finish(job, 0, 7, 7, 8, 8)
        job.members[0].release()  # as the engine does after a report
        assert waiting(job) == [[], [-1, 0, 1, 2], []]
        finish(job, 1, 7, 7, 7, 7)  # 6 votes against 2: the posterior is 0.91
        answer = solved(job)
        assert (answer.ended_by, len(answer.trajectories)) == ("certainty", 8)
        assert answer.members is not None
        assert [work.trajectories for work in answer.members] == [4, 4, 0]

    run(test)


def test_an_early_split_draws_the_rest_only_while_unsure() -> None:
    def test() -> None:
        job = make_job(12, split="early")
        assert waiting(job) == [[-1], [-1], []]
        finish(job, 0, 7)
        finish(job, 1, 8)
        job.members[1].release()  # as the engine does after a report
        assert waiting(job) == [[], [], [-1]]
        finish(job, 2, 7)
        job.members[2].release()
        assert waiting(job) == [[0, 1, 2], [], []], "the rest of the first member's part"
        finish(job, 0, 7, 7, 7)  # 5 votes against 1
        answer = solved(job)
        assert (answer.ended_by, len(answer.trajectories)) == ("certainty", 6)
        assert answer.members is not None
        assert [work.trajectories for work in answer.members] == [4, 1, 1]

    run(test)


def test_a_certainty_stops_a_fixed_split_at_a_checkpoint_and_counts_the_surplus() -> None:
    def test() -> None:
        job = make_job(12, stop=Stop("certainty", 0.9))
        finish(job, 0, 7, 7, 7, 7)
        finish(job, 1, 7, 7, 7, 7)
        assert job.is_open  # of the checkpoint's four, one is c's
        assert finish(job, 2, 7) == 9 - 4
        answer = solved(job)
        assert (answer.ended_by, len(answer.trajectories)) == ("certainty", 4)

    run(test)


def test_a_deadline_takes_the_finished_prefix_of_the_panels_order() -> None:
    def test() -> None:
        job = make_job(9)
        finish(job, 0, 7, 7, 7)
        finish(job, 1, 8)
        finish(job, 2, 7)
        job.expire()
        answer = solved(job)
        assert answer.ended_by == "deadline"
        assert [each.member for each in answer.trajectories] == ["a:gts", "b:gts", "c:gts", "a:gts"]
        empty = make_job(9)
        finish(empty, 1, 8)
        empty.expire()
        assert isinstance(empty.result.exception(), DeadlineError)

    run(test)
