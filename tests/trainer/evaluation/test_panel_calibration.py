"""The fit of a panel's weights: it finds the right ones, and keeps to its bounds."""

from dataclasses import replace

import numpy as np
import pytest

from trainer.evaluation.calibration_fit import question_weights
from trainer.evaluation.panel_calibration import (
    Choice,
    fit_choices,
    fit_with_ceiling,
    probabilities,
)

# Two members: share, confidence, named, unperturbed, likelihood of each; then "none", and it for a new
# question.
TRUE = np.array([1.0, 0.5, -0.5, 1.5, 0.8, 0.3, 1.0, 0.0, 0.5, 0.4, 1.0, 2.0])


def drawn_choices(count: int, seed: int = 0) -> list[Choice]:
    """Choices among 3 candidates or none, the right one drawn from the model with these weights."""
    generator = np.random.default_rng(seed)
    choices = []
    for question in range(count):
        rows = np.zeros((4, len(TRUE)))
        rows[:3, :-2] = generator.normal(size=(3, len(TRUE) - 2))
        rows[3, -2:] = 1.0, generator.random()
        right = int(generator.choice(4, p=probabilities(rows, TRUE)))
        choices.append(Choice(question, rows, right, 0.5, right == 0, 8, True))
    return choices


def test_the_fit_finds_the_weights_that_the_answers_were_drawn_with() -> None:
    found = fit_choices(drawn_choices(4000))
    assert found[:-2] == pytest.approx(TRUE[:-2], abs=0.15)
    # The last two are correlated, so their mean over questions is known better than each of them.
    assert found[-2] + found[-1] / 2 == pytest.approx(TRUE[-2] + TRUE[-1] / 2, abs=0.15)
    assert found[-1] == pytest.approx(TRUE[-1], abs=0.4)


def test_more_votes_never_speak_against_an_answer() -> None:
    turned = [
        Choice(
            each.question,
            each.features * np.array([-1.0] + [1.0] * 11),
            each.right,
            0.5,
            True,
            8,
            True,
        )
        for each in drawn_choices(400)
    ]
    theta = fit_choices(turned)
    assert theta[0] == 0.0
    assert theta[3] > 0


def test_a_question_counts_once_however_often_it_was_voted_on() -> None:
    once = drawn_choices(50)
    assert question_weights([*once, *once]) == pytest.approx(0.5)
    assert fit_choices([*once, *once]) == pytest.approx(fit_choices(once), abs=1e-6)


def test_a_few_questions_that_are_all_right_give_finite_weights() -> None:
    one = drawn_choices(1)[0]
    same = [Choice(number, one.features, 0, 1.0, True, 8, True) for number in range(50)]
    assert np.isfinite(fit_choices(same)).all()


def test_the_ceiling_is_how_often_the_votes_tell_anything() -> None:
    generator = np.random.default_rng(1)
    drawn = drawn_choices(3000)
    silent = [replace(each, right=3) if generator.random() < 0.2 else each for each in drawn]
    theta, ceiling = fit_with_ceiling(silent)
    assert ceiling == pytest.approx(0.8, abs=0.04)
    assert theta[:-2] == pytest.approx(TRUE[:-2], abs=0.25)
    assert fit_with_ceiling(drawn)[1] > 0.97
