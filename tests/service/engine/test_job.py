"""The stop rule of an adaptive budget, and the answer at a deadline."""

from decimal import Decimal

import pytest

from latent.votes import Candidate, certainty_of
from service.engine.job import checkpoints


def votes(*counts: int, unreadable: int = 0) -> list[Candidate]:
    named = [Candidate(Decimal(n), count, 0.0, 0.0, ()) for n, count in enumerate(counts)]
    return named + ([Candidate(None, unreadable, 0.0, 0.0, ())] if unreadable else [])


def test_checkpoints_double_from_four_and_stay_below_the_budget() -> None:
    assert list(checkpoints(64)) == [4, 8, 16, 32]
    assert list(checkpoints(65)) == [4, 8, 16, 32, 64]
    assert list(checkpoints(4)) == []


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((4,), 31 / 32),  # Beta(5, 1): 1 − 2⁻⁵
        ((1,), 3 / 4),
        ((2, 2), 1 / 2),
        ((3, 1), 13 / 16),  # Binomial(5, ½) ≤ 3: 26 / 32
    ],
)
def test_certainty_is_the_beta_posterior(counts: tuple[int, ...], expected: float) -> None:
    assert certainty_of(votes(*counts)) == pytest.approx(expected)


def test_unreadable_answers_are_no_candidates() -> None:
    assert certainty_of(votes(4, unreadable=50)) == certainty_of(votes(4))
    assert certainty_of(votes(unreadable=4)) == 0.0


def test_the_winner_is_the_first_and_its_rival_has_the_most_votes_of_the_others() -> None:
    assert certainty_of(votes(7, 1, 2)) == certainty_of(votes(7, 2, 1)) == certainty_of(votes(7, 2))
    assert certainty_of(votes(2, 7)) < 0.5  # a panel's winner may have fewer votes than another
