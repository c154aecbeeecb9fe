"""Which lanes a round gets: fairness, order, limits. Pure scheduling, no processes."""

from itertools import pairwise

from latent.trajectory import Trajectory
from service.engine.job import BLOCK, Job
from service.engine.messages import RoundTask, Task
from service.engine.scheduler import Scheduler


def job(
    name: str, lanes: int, sampler: str = "g", *, model: str = "m", is_whole: bool = False
) -> Job:
    kind = "diagnose" if is_whole else "solve"
    indices = tuple(range(lanes))
    return Job("r", kind, model, sampler, 1, "?", 0, indices, lanes, job_id=name)


def schedule(*jobs: Job, lane_limit: int = 64) -> Scheduler:
    """A scheduler of one device that knows every group's speed: only the lane limit binds."""
    made = Scheduler(1, lane_limit, 0.5)
    for each in jobs:
        made.add(each)
        made.finished(0, RoundTask(-1, each.group, (), lane_limit), 1e-6)
    return made


def next_round(made: Scheduler) -> RoundTask:
    round = made.next_round(0)
    assert round is not None
    return round


def shape(made: Scheduler) -> dict[str, int]:
    return {task.job_id: len(task.indices) for task in next_round(made).tasks}


def test_a_budget_of_128_does_not_block_a_budget_of_4() -> None:
    made = schedule(job("big", 128), job("small", 4))
    assert shape(made) == {"big": 48 + 12, "small": 4}


def test_lanes_are_dealt_in_blocks_and_in_index_order() -> None:
    made = schedule(job("a", 40), job("b", 40))
    first = {task.job_id: task.indices for task in next_round(made).tasks}
    assert first == {"a": tuple(range(32)), "b": tuple(range(32))}
    assert {task.indices for task in next_round(made).tasks} == {tuple(range(32, 40))}
    assert made.next_round(0) is None


def test_a_job_that_was_served_goes_to_the_back() -> None:
    made = schedule(job("a", 64), job("b", 64), job("c", 64), lane_limit=BLOCK)
    assert [shape(made) for _ in range(4)] == [{name: BLOCK} for name in "abca"]


def test_a_round_has_one_group_and_groups_take_turns() -> None:
    made = schedule(job("a", 64, "x"), job("b", 64, "y"), job("c", 16, "x"), lane_limit=32)
    served = [shape(made) for _ in range(4)]
    assert served == [{"a": 16, "c": 16}, {"b": 32}, {"a": 32}, {"b": 32}]


def served_seconds(made: Scheduler, speeds: dict[str, float], rounds: int) -> dict[str, float]:
    """Run rounds of models with these seconds per lane; every job is replaced when it is taken."""
    total = dict.fromkeys(speeds, 0.0)
    for number in range(rounds):
        round = next_round(made)
        model = round.group[1]
        total[model] += speeds[model] * round.lanes
        made.finished(0, round, speeds[model] * round.lanes)
        for task in round.tasks:
            if not made.jobs[task.job_id].pending:
                made.remove(made.jobs[task.job_id])
                made.add(job(f"{number}-{task.job_id}"[:40], 16, model=model))
    return total


def test_models_share_time_and_not_turns() -> None:
    made = Scheduler(1, 64, 10.0)
    made.add(job("dear", 16, model="dear"))
    made.add(job("cheap", 16, model="cheap"))
    seconds = served_seconds(made, {"dear": 0.1, "cheap": 0.005}, 400)
    assert 0.8 < seconds["dear"] / seconds["cheap"] < 1.25


def test_one_small_job_waits_for_one_round_of_a_model_with_many() -> None:
    made = Scheduler(1, 64, 10.0)
    for number in range(20):
        made.add(job(f"many-{number}", 64, model="many"))
    made.finished(0, RoundTask(-1, ("solve", "many", "g"), (), 64), 0.64)
    made.finished(0, RoundTask(-1, ("solve", "small", "g"), (), 16), 0.16)
    models = []
    for number in range(8):
        if number % 2 == 0:
            made.add(job(f"small-{number}", 4, model="small"))
        round = next_round(made)
        models.append(round.group[1])
        made.finished(0, round, 0.01 * round.lanes)
    assert models.count("small") == 4
    assert all(pair.count("many") <= 1 for pair in pairwise(models[1:]))


def test_a_model_that_was_idle_is_next_but_has_saved_no_time() -> None:
    made = Scheduler(1, 16, 10.0)
    made.add(job("busy", 16, model="busy"))
    served_seconds(made, {"busy": 0.1}, 50)
    made.add(job("new", 64, model="new"))
    made.finished(0, RoundTask(-1, ("solve", "new", "g"), (), 16), 1.6)
    models = []
    for _ in range(4):
        round = next_round(made)
        models.append(round.group[1])
        made.finished(0, round, 0.1 * round.lanes)
        if round.group[1] == "busy":
            made.add(job(f"busy-{len(models)}", 16, model="busy"))
    assert set(models[:2]) == {"new", "busy"}
    assert sorted(models) == ["busy", "busy", "new", "new"]


def test_work_that_shares_no_round_does_not_starve_the_rest() -> None:
    made = schedule(job("a", 64), lane_limit=16)
    kinds = []
    for number in range(20):
        made.add(job(f"look-{number}", 33, is_whole=True))
        round = next_round(made)
        kinds.append(round.group[0])
        made.finished(0, round, 1e-3 * round.lanes)
    assert kinds.count("solve") == 4, "all of it"
    assert len(made._virtual_times) == 2


def test_new_samplers_do_not_starve_those_that_wait() -> None:
    made = schedule(job("a", 64), lane_limit=16)
    samplers = []
    for number in range(12):
        made.add(job(f"new-{number}", 16, f"gaussian:{number}"))
        round = next_round(made)
        samplers.append(round.group[2])
        made.finished(0, round, 1e-3 * round.lanes)
    assert samplers.count("g") >= 3


def test_a_diagnosis_is_taken_in_one_piece_and_alone() -> None:
    made = schedule(job("look", 33, is_whole=True), job("a", 8), lane_limit=16)
    assert [shape(made), shape(made)] == [{"look": 33}, {"a": 8}]


def test_a_group_of_unknown_speed_begins_with_a_small_round() -> None:
    made = Scheduler(1, 64, 0.5)
    made.add(job("a", 64))
    assert shape(made) == {"a": 2 * BLOCK}


def test_the_time_of_a_round_bounds_its_lanes_in_whole_blocks() -> None:
    made = Scheduler(1, 256, 0.5)
    made.add(job("a", 256))
    first = next_round(made)
    made.finished(0, first, seconds=0.01 * first.lanes)
    assert made.expected_seconds(first) == 0.01 * first.lanes
    assert shape(made) == {"a": 48}, "50 lanes take half a second"


def sizes(overhead: float, slope: float, count: int) -> list[int]:
    """Lanes of the rounds of a busy group whose rounds take overhead + slope · lanes."""
    made, found = Scheduler(1, 256, 0.5), []
    for number in range(count):
        made.add(job(str(number), 256))
        round = next_round(made)
        made.finished(0, round, overhead + slope * round.lanes)
        found.append(round.lanes)
    return found


def test_rounds_grow_to_their_time_though_the_first_took_longer() -> None:
    grown = sizes(overhead=0.2, slope=0.006, count=40)[-20:]  # 32 take 0.39 s, and 48 take 0.49
    assert sorted(grown)[10] == 48
    assert set(grown) <= {48, 64}, "a larger one now and then tells what it costs"


def test_a_round_has_half_the_greatest_speed_whatever_its_time() -> None:
    grown = sizes(overhead=1.0, slope=0.01, count=40)[-20:]
    assert sorted(grown)[10] == 96, "100 lanes take twice the overhead"


def test_a_stream_that_takes_longer_than_a_round_has_two_though_it_fits_one() -> None:
    made = Scheduler(1, 256, 0.5)
    for lanes, seconds in ((32, 1.32), (64, 1.64)):  # an overhead of a second, worth 100 lanes
        made.finished(
            0, RoundTask(0, job("x", 1).group, (Task("x", "?", 0, (0,) * lanes),), 256), seconds
        )
    stream, plain = job("stream", 64), job("plain", 64)
    stream.is_streamed = True
    made.add(plain)
    assert shape(made) == {"plain": 64}
    made.add(stream)
    assert [shape(made), shape(made)] == [{"stream": 32}, {"stream": 32}]


def test_lanes_of_a_failed_round_come_back_in_front_and_alone() -> None:
    made = schedule(job("a", 32), job("b", 8))
    for task in next_round(made).tasks:
        made.put_back(task, is_alone=True)
    assert [shape(made), shape(made)] == [{"a": 32}, {"b": 8}]


def test_a_suspect_does_not_hold_the_others_up() -> None:
    suspect = job("suspect", 64)
    suspect.is_alone = True
    made = schedule(suspect, job("b", 64), lane_limit=16)
    served = [shape(made) for _ in range(4)]
    assert served == [{"suspect": 16}, {"b": 16}, {"suspect": 16}, {"b": 16}]


def test_a_suspect_that_runs_out_of_memory_still_shares_no_round() -> None:
    made = schedule(job("suspect", 64))
    made.put_back(next_round(made).tasks[0], is_alone=True)
    alone = next_round(made)
    made.out_of_memory(0, alone)
    made.add(job("b", 64))
    assert shape(made) == {"suspect": 32}


def test_a_removed_job_is_not_scheduled_and_its_lanes_do_not_come_back() -> None:
    gone = job("a", 32)
    made = schedule(gone, lane_limit=16)
    taken = next_round(made)
    made.add(job("b", 4))
    made.remove(gone)
    made.put_back(taken.tasks[0])
    assert (made.waiting_lanes, made.waiting_jobs) == (4, 1)
    assert shape(made) == {"b": 4}
    assert made.next_round(0) is None


def test_out_of_memory_halves_the_device_and_good_rounds_raise_it_again() -> None:
    first = job("a", 512)
    made = schedule(first)
    assert made.out_of_memory(0, next_round(made)) == (32, None)
    assert shape(made) == {"a": 32}
    made.remove(first)
    other = job("b", 512, "y")
    made.add(other)
    made.finished(0, RoundTask(-1, other.group, (), 64), 1e-6)
    assert shape(made) == {"b": 32 + BLOCK}


def test_a_limit_goes_with_the_job_whose_lanes_did_not_fit() -> None:
    needy = job("needy", 64, "x")
    made = schedule(needy)
    first = next_round(made)
    made.put_back(first.tasks[0], max_lanes=32)
    assert shape(made) == {"needy": 32}
    made.remove(needy)
    made.add(job("next", 64, "x"))
    assert shape(made) == {"next": 64}


def test_a_diagnosis_that_did_not_fit_runs_fewer_lanes_at_once() -> None:
    made = schedule(job("look", 33, is_whole=True))
    made.put_back(next_round(made).tasks[0], max_lanes=16)
    again = next_round(made)
    assert (again.lanes, again.lane_limit) == (33, 16)


def test_a_job_that_does_not_fit_the_smallest_round_alone_is_named() -> None:
    hopeless = job("a", 16)
    made = schedule(hopeless)
    assert made.out_of_memory(0, next_round(made)) == (BLOCK, hopeless)
    assert made.next_round(0) is None, "its lanes do not come back"


def with_speed(*jobs: Job) -> Scheduler:
    """A scheduler that has seen 16 lanes take 100 ms and 256 take 580."""
    made = Scheduler(1, 256, 0.5)
    group = jobs[0].group
    for lanes, seconds in ((16, 0.1), (256, 0.58)) * 3:
        tasks = (Task("", "", 0, tuple(range(lanes))),)
        made.finished(0, RoundTask(-1, group, tasks, 256), seconds)
    for each in jobs:
        made.add(each)
    return made


def test_a_deadline_gets_a_piece_that_fits_it() -> None:
    for deadline_ms, lanes in ((200, 16), (400, 64), (5000, 208)):
        hurried = job("a", 256)
        hurried.deadline_ms = deadline_ms
        assert shape(with_speed(hurried)) == {"a": lanes}


def test_a_deadline_gets_larger_pieces_once_it_can_be_answered() -> None:
    hurried = job("a", 256)
    hurried.deadline_ms = 400
    hurried._done[0] = Trajectory(0, "", None, 0.0, (), (), None)
    assert shape(with_speed(hurried)) == {"a": 112}


def test_a_deadline_that_nothing_can_meet_is_tried_with_a_block_and_harms_no_other() -> None:
    hopeless, other = job("hopeless", 256), job("other", 256)
    hopeless.deadline_ms = 20
    taken = shape(with_speed(hopeless, other))
    assert sum(taken.values()) == 208, "the round is as large as without it"
    assert taken["hopeless"] == BLOCK
    assert shape(with_speed(hopeless)) == {"hopeless": BLOCK}


def test_lanes_that_would_come_too_late_are_not_run_if_others_are_finished() -> None:
    late = job("late", 64)
    late.deadline_ms = 50
    late._done[0] = Trajectory(0, "", None, 0.0, (), (), None)
    made = with_speed(late)
    assert made.next_round(0) is None


def test_a_deadline_is_served_before_jobs_that_have_time() -> None:
    hurried = job("hurried", 64)
    hurried.deadline_ms = 200
    made = with_speed(*(job(f"{n}", 64) for n in range(20)), hurried)
    assert shape(made) == {"hurried": 16}


def test_small_budgets_are_in_the_next_round_whatever_waits() -> None:
    made = with_speed(*(job(f"big-{n}", 128) for n in range(60)))
    next_round(made)
    for number in range(12):
        made.add(job(f"small-{number}", 4))
    taken = shape(made)
    assert sum(name.startswith("small") for name in taken) == 12
    assert sum(taken.values()) == 208
    assert taken["big-13"] == BLOCK, "and the others go on"


def test_small_budgets_leave_a_part_of_the_round_to_others() -> None:
    made = with_speed(job("big", 128), *(job(f"small-{n}", 8) for n in range(100)))
    taken = shape(made)
    assert taken["big"] == BLOCK
    assert sum(taken.values()) == 208
