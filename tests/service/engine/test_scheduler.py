from collections import deque

from service.engine.scheduler import BLOCK, Demand, Part, Schedule


def demand(job: str, lanes: int, group: str = "g", **more: bool) -> Demand:
    return Demand(job, (group,), deque(range(lanes)), **more)


def schedule(*demands: Demand) -> Schedule:
    made = Schedule()
    for each in demands:
        made.add(each)
    return made


def shape(made: Schedule, limit: int) -> dict[str, int] | None:
    taken = made.next_round(lambda _: limit)
    return None if taken is None else {part.job_id: len(part.indices) for part in taken.parts}


def test_a_budget_of_128_does_not_block_a_budget_of_4() -> None:
    made = schedule(demand("big", 128), demand("small", 4))
    assert shape(made, 64) == {"big": 48 + 12, "small": 4}


def test_lanes_are_dealt_in_blocks_and_in_index_order() -> None:
    made = schedule(demand("a", 40), demand("b", 40))
    first = made.next_round(lambda _: 64)
    assert first is not None
    assert first.parts == (Part("a", tuple(range(32))), Part("b", tuple(range(32))))
    second = made.next_round(lambda _: 64)
    assert second is not None
    assert {part.indices for part in second.parts} == {tuple(range(32, 40))}
    assert made.next_round(lambda _: 64) is None


def test_whoever_was_served_goes_to_the_back() -> None:
    made = schedule(demand("a", 64), demand("b", 64), demand("c", 64))
    assert shape(made, BLOCK) == {"a": BLOCK}
    assert shape(made, BLOCK) == {"b": BLOCK}
    assert shape(made, BLOCK) == {"c": BLOCK}
    assert shape(made, BLOCK) == {"a": BLOCK}


def test_a_round_has_one_group_and_groups_take_turns() -> None:
    made = schedule(demand("a", 64, "x"), demand("b", 64, "y"), demand("c", 16, "x"))
    assert shape(made, 32) == {"a": 16, "c": 16}
    assert shape(made, 32) == {"b": 32}
    assert shape(made, 32) == {"a": 32}
    assert shape(made, 32) == {"b": 32}


def test_what_must_be_whole_is_taken_in_one_piece_and_alone() -> None:
    made = schedule(demand("look", 33, is_whole=True), demand("a", 8))
    assert shape(made, 16) == {"look": 33}
    assert shape(made, 16) == {"a": 8}


def test_lanes_of_a_failed_round_come_back_in_front_and_alone() -> None:
    made = schedule(demand("a", 32), demand("b", 8))
    taken = made.next_round(lambda _: 64)
    assert taken is not None
    for part in taken.parts:
        made.put_back(part, is_alone=True)
    assert shape(made, 64) == {"a": 32}, "a suspect shares its round with nobody"
    assert shape(made, 64) == {"b": 8}


def test_a_suspect_does_not_hold_the_others_up() -> None:
    made = schedule(demand("suspect", 64, is_alone=True), demand("b", 64))
    served = [shape(made, 16) for _ in range(4)]
    assert served == [{"suspect": 16}, {"b": 16}, {"suspect": 16}, {"b": 16}]


def test_a_removed_job_is_not_scheduled_and_its_lanes_do_not_come_back() -> None:
    made = schedule(demand("a", 32), demand("b", 4))
    taken = made.next_round(lambda _: 16)
    assert taken is not None
    assert made.remove("a") == 16
    made.put_back(taken.parts[0], is_alone=False)
    assert made.waiting_lanes == 4
    assert made.waiting_jobs == 1
    assert shape(made, 64) == {"b": 4}
    assert made.next_round(lambda _: 64) is None


def test_a_limit_goes_with_the_job_whose_lanes_did_not_fit() -> None:
    made = schedule(demand("needy", 64, "x"), demand("other", 64, "y"))
    first = made.next_round(lambda _: 64)
    assert first is not None
    assert first.most is None
    made.put_back(first.parts[0], is_alone=False, most=32)
    assert shape(made, 64) == {"other": 64}
    assert shape(made, 64) == {"needy": 32}
    made.remove("needy")
    made.add(demand("next", 64, "x"))
    assert shape(made, 64) == {"next": 64}


def test_what_must_be_whole_and_did_not_fit_runs_fewer_lanes_at_once() -> None:
    made = schedule(demand("look", 33, is_whole=True))
    first = made.next_round(lambda _: 64)
    assert first is not None
    made.put_back(first.parts[0], is_alone=False, most=16)
    again = made.next_round(lambda _: 64)
    assert again is not None
    assert (again.lanes, again.most) == (33, 16)
