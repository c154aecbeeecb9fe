"""How new a question's words are to a set of questions."""

import pytest

from latent.familiarity import UNFAMILIAR_BELOW, make_reference
from trainer.data.sources import load_rows

SIMILAR = [
    "Tom has 3 apples. How many has he?",
    "Tom has 14 apples. How many has he?",
    "Ann has 3 pears. How many has she?",
]


def test_novelty_is_the_share_of_new_word_pairs_relative_to_the_newest_questions() -> None:
    # The first two differ in a number only, so each of their pairs occurs twice. Of the nine of the
    # third, "ann has", "0 pears", "pears .", "has she" and "she ?" are its own.
    reference, novelties = make_reference(SIMILAR)
    newest = reference.quantiles[-2]
    assert reference.quantiles[-1] == pytest.approx(5 / 9, abs=1e-4)
    assert newest == pytest.approx(0.98 * 5 / 9, abs=1e-4)
    assert novelties == [0.0, 0.0, 1.0]
    assert reference.familiarity("tom has 99 apples").novelty == 0.0
    # One of "tom has", "has 0", "0 pears", "pears ." and ". how" is new.
    half = reference.familiarity("Ben has 9 pears. How").novelty
    assert half == pytest.approx((1 / 5 / newest) ** 4)


def test_the_percentile_counts_the_questions_that_are_at_least_as_new() -> None:
    reference, _ = make_reference(SIMILAR)
    known = reference.familiarity("Tom has 7 apples.")
    assert known.percentile == 1.0
    assert not known.is_unfamiliar
    foreign = reference.familiarity("Explain the French revolution!")
    assert (foreign.novelty, foreign.percentile) == (1.0, 0.0)
    assert foreign.is_unfamiliar


@pytest.mark.parametrize("question", ["", "7", "why"])
def test_a_question_without_word_pairs_is_new(question: str) -> None:
    reference, _ = make_reference(SIMILAR)
    assert reference.familiarity(question).novelty == 1.0


def test_it_tells_the_embedded_task_from_other_word_problems() -> None:
    held_out = [row.question for row in load_rows("embedded:validation", 2000, 2)]
    reference, _ = make_reference(held_out)

    def unfamiliar(source: str) -> float:
        rows = load_rows(source, 100, 5)
        return sum(reference.familiarity(row.question).is_unfamiliar for row in rows) / len(rows)

    assert unfamiliar("embedded:test") <= 5 * UNFAMILIAR_BELOW
    tom = "Tom has 12 apples. He buys 5 more and gives 3 to Anna. How many apples does Tom have?"
    assert reference.familiarity(tom).is_unfamiliar
    assert unfamiliar("embedded:ood") >= 0.99
    assert unfamiliar("everyday") >= 0.98
