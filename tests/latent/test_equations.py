"""Equations in a trajectory's text are checked exactly."""

import pytest

from latent.equations import are_equations_true
from latent.votes import tally
from tests.trajectories import trajectory


@pytest.mark.parametrize(
    "text",
    [
        "12+5=17\n17-3=14\n### 14",
        "<<48/2=24>> <<48+24=72>> #### 72",
        "2 + 3 * 4 = 14",
        "3-5=-2",
        "10/3=3.33",
        "10/3=3.3",
        "1.5*2=3",
        "no equation at all",
        "x=5, 5=5",
        "room 12-34 is free",
        "2+2=4+1",  # not of a form that is read
        "2+\n3=7",  # two lines
    ],
)
def test_true_equations_and_other_texts_pass(text: str) -> None:
    assert are_equations_true(text)


@pytest.mark.parametrize(
    "text", ["12+5=18", "12+5=17\n17-3=15\n### 15", "10/3=3", "10/3=3.34", "7/0=7", "0.5*3=1.6"]
)
def test_one_false_equation_fails_the_text(text: str) -> None:
    assert not are_equations_true(text)


def test_the_checked_vote_counts_only_trajectories_whose_arithmetic_is_right() -> None:
    voters = [
        trajectory(0, 18, text="12+5=18"),
        trajectory(1, 18, text="12+5=18"),
        trajectory(2, 17, text="12+5=17"),
    ]
    voted = tally(voters, "checked")
    assert [(one.answer, one.votes, one.share) for one in voted.candidates] == [
        (17, 1, 1.0),
        (18, 2, 0.0),
    ]
    assert tally(voters, "majority").winner.answer == 18


def test_without_a_true_trajectory_the_checked_vote_is_the_majority() -> None:
    voters = [trajectory(n, 18, text="12+5=18") for n in range(2)]
    voted = tally([*voters, trajectory(2, 16, text="12+5=16")], "checked")
    assert [(one.answer, one.share) for one in voted.candidates] == [
        (18, pytest.approx(2 / 3)),
        (16, pytest.approx(1 / 3)),
    ]
