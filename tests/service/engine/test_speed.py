"""What rounds say about the next ones: overhead and slope, the knee, sizes that fit a time."""

import pickle
from decimal import Decimal

import numpy as np
import pytest

from latent.trajectory import Timing, Trajectory
from service.engine.messages import LaneReport
from service.engine.speed import Speed


def learned(*rounds: tuple[int, float]) -> Speed:
    speed = Speed()
    for lanes, seconds in rounds:
        speed.learn(lanes, seconds)
    return speed


def test_rounds_of_two_sizes_tell_overhead_and_slope() -> None:
    speed = learned((16, 0.1), (256, 0.58))  # 68 ms and 2 ms a lane
    assert speed.seconds(16) == pytest.approx(0.1)
    assert speed.seconds(64) == pytest.approx(0.196)
    assert speed.lanes(0.1) == pytest.approx(16)


def test_rounds_of_one_size_give_a_proportion() -> None:
    speed = learned((64, 0.32), (64, 0.32))
    assert speed.seconds(16) == pytest.approx(0.08)
    assert speed.knee(0.95) == 0.0


def test_a_fit_without_sense_is_not_used() -> None:
    speed = learned((16, 0.5), (256, 0.4))  # the smaller had long questions
    assert speed.seconds(100) == pytest.approx(100 * speed.per_lane)


def test_the_knee_is_where_more_lanes_are_of_little_use() -> None:
    speed = learned((16, 0.026), (116, 0.126))  # 10 ms and 1 ms a lane
    assert speed.knee(0.9) == pytest.approx(90)  # in 100 ms: nine tenths of 1000 a second
    assert speed.knee(0.5) == pytest.approx(10)


def test_rounds_of_one_size_keep_the_ratio_that_unequal_ones_told() -> None:
    speed = learned((16, 0.1), (256, 0.58), *[(64, 0.196)] * 40)
    assert not speed.is_sure
    assert speed.seconds(16) == pytest.approx(0.1)


def test_the_latest_rounds_count_most() -> None:
    speed = learned(*[(64, 0.64)] * 10, *[(64, 0.32)] * 10)
    assert speed.per_lane == pytest.approx(0.005, rel=0.2)


def test_lanes_cross_the_pipe_as_arrays_and_come_back_whole() -> None:
    lanes = tuple(
        Trajectory(
            n,
            f"### {n % 3}",
            Decimal(n % 3),
            -n / 7,
            (),
            (),
            2,
            np.full(4, float(n)),
            chain_logprob=-n / 3,
        )
        for n in range(40)
    )
    report = LaneReport(lanes, tuple(range(40)), 21, Timing(0.1, 0.2, 0.3), snr=(0.5, 0.25))
    data = pickle.dumps(report)
    back = pickle.loads(data)
    assert back == report
    finals = [each.final_thought for each in back.trajectories]
    assert np.array_equal(finals, [each.final_thought for each in lanes])
    assert len(data) < 40 * 4 * 8 + 2000
