"""Statements of other problems that do not matter."""

import random

from trainer.data.mixture import load_mixture
from trainer.data.redraw.distractors import add_distractors, find_distractors
from trainer.data.rows import Row

APPLES = Row("Tom has 12 apples. He eats 5. How many are left?", ("12-5=7",), "7")
PENS = Row("Anna bought 30 pens. The shop is 4 miles away. How far is it?", ("4+0=4",), "4")
DRILL = Row("12+5", ("12+5=17",), "17")


def test_only_statements_that_stand_alone_are_used() -> None:
    assert find_distractors([APPLES, PENS, DRILL]) == ["Anna bought 30 pens.", "Tom has 12 apples."]


def test_a_distractor_stands_between_the_first_and_the_last_sentence() -> None:
    added = add_distractors([APPLES, PENS, DRILL], 1.0, random.Random(0))
    statements = {"Anna bought 30 pens.", "Tom has 12 apples."}
    for before, after in zip([APPLES, PENS], added[:2], strict=True):
        assert (after.steps, after.answer) == (before.steps, before.answer)
        assert after.question.startswith(before.question.partition(".")[0])
        assert after.question.endswith(before.question.rpartition(". ")[2])
        assert after == before or any(one in after.question for one in statements)
    assert added[2] == DRILL


def test_about_the_asked_share_of_problems_gets_one() -> None:
    rows = [Row(f"Tom has {n} apples. He eats 5. How many are left?", (), "0") for n in range(900)]
    added = add_distractors(rows, 0.3, random.Random(1))
    changed = sum(before != after for before, after in zip(rows, added, strict=True))
    assert 200 < changed < 340


def test_pools_of_a_mixture_have_distractors_and_stay_functions_of_the_seed() -> None:
    plain = load_mixture(["everyday"], redraw=True)
    mixture = load_mixture(["everyday"], redraw=True, distractors=0.5)
    again = load_mixture(["everyday"], redraw=True, distractors=0.5)
    for one in (plain, mixture, again):
        one.pool_size = 60
    assert mixture.pool(3) == again.pool(3)
    longer = [
        len(after.question) > len(before.question)
        for before, after in zip(plain.pool(3), mixture.pool(3), strict=True)
    ]
    assert 10 < sum(longer) < 50
