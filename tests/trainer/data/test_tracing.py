"""Templates traced from rows with equations: what is drawn anew, and what stays."""

import random
import re
from fractions import Fraction

import pytest

from trainer.data.redraw.template import Template, draw_like
from trainer.data.redraw.tracing import split_numbers, trace_row
from trainer.data.rows import Row

CLIPS = Row(
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
    "How many clips did Natalia sell altogether in April and May?",
    ("48/2=24", "48+24=72"),
    "72",
)


def _template(question: str, *steps: str) -> Template:
    template = trace_row(Row(question, steps, steps[-1].rpartition("=")[2]))
    assert isinstance(template, Template)
    return template


def _draws(template: Template, count: int = 30) -> list[Row]:
    return [template.draw(random.Random(seed)) for seed in range(count)]


def _is_consistent(row: Row) -> bool:
    for step in row.steps:
        left, _, right = step.partition("=")
        a, operator, b = re.split(r"(?<=\d)([-+*/])", left)
        x, y = Fraction(a), Fraction(b)
        value = {"+": x + y, "-": x - y, "*": x * y}[operator] if operator != "/" else x / y
        if value != Fraction(right):
            return False
    return row.steps[-1].endswith("=" + row.answer)


def test_the_published_numbers_give_the_published_equations() -> None:
    template = trace_row(CLIPS)
    assert template is not None
    assert template.original() == CLIPS


def test_drawn_numbers_are_those_of_the_question_and_of_the_equations() -> None:
    template = trace_row(CLIPS)
    assert isinstance(template, Template)
    rows = _draws(template)
    assert len({row.question for row in rows}) > 10
    for row in rows:
        number = int(re.findall(r"\d+", row.question)[0])
        assert row.steps == (f"{number}/2={number // 2}", f"{number}+{number // 2}={row.answer}")


def test_equal_numbers_are_drawn_together() -> None:
    template = _template("Ann has 15 dogs and 15 cats. How many?", "15+15=30")
    for row in _draws(template):
        first, second = re.findall(r"\d+", row.question)
        assert first == second
        assert row.steps == (f"{first}+{first}={row.answer}",)


def test_a_number_that_the_question_has_as_a_word_too_stays() -> None:
    template = _template("Three boys have 3 cars each, and 14 more.", "3*3=9", "9+14=23")
    rows = _draws(template)
    assert all(" 3 cars" in row.question for row in rows)
    assert len({row.question for row in rows}) > 5


def test_a_number_that_may_also_be_an_unwritten_constant_stays() -> None:
    # 4 people are listed, and a ticket costs $4: drawn anew, 4*4 would become 6*6.
    question = (
        "Ann, Ben, Carl and Dora each buy a ticket for $4 and a meal for $15. How much in all?"
    )
    template = _template(question, "4*4=16", "4*15=60", "16+60=76")
    rows = _draws(template)
    assert all("for $4 and" in row.question for row in rows)
    assert len({row.question for row in rows}) > 5
    assert all(row.steps[1].startswith("4*") for row in rows)


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("Tom reads 7 pages and 20 minutes a day. How many pages in a week?", "7 pages"),
        ("Tom trains 5 days a week for 20 minutes, and 7 more on Sunday. How many?", "5 days"),
    ],
)
def test_a_number_that_the_calendar_implies_stays(question: str, kept: str) -> None:
    number = kept[0]
    template = _template(question, f"20*{number}={20 * int(number)}")
    assert all(kept in row.question for row in _draws(template))


def test_a_share_written_as_a_decimal_follows_its_percentage() -> None:
    template = _template("Of 200 apples, 20% are red. How many?", "200*0.2=40")
    for row in _draws(template):
        count, percent = map(int, re.findall(r"\d+", row.question))
        assert Fraction(row.answer) == Fraction(count * percent, 100)


@pytest.mark.parametrize(
    ("question", "steps"),
    [
        ("A has 20 and gives 6. How many?", ("20-6=14", "14*17=238")),  # 17 has no origin
        ("A has 8, B has 4, C has 12. All?", ("8+4=12", "12+12=24")),  # 12 is a number and a result
        ("A has 6 of 3 kinds. Half?", ("6/3=2", "6/2=3", "3*2=6")),  # 2 is a result and "half"
        ("A has 9 and 5, B 19 and 5.", ("9+5=14", "19-5=14", "14+14=28")),  # two results are 14
        ("A is 20 and twice as old as B, C is 4 older.", ("20/2=10", "14+2=16")),  # 10+4 is missing
        (
            "A has 30 and gets 6 more of 24.",
            ("30+24=54", "54*60=3240"),
        ),  # 60, but no hour or minute
        ("A pays 4 and a fare for 40.", ("3=3", "4+3=7")),  # where 3 comes from is not written
    ],
)
def test_a_row_with_an_operand_of_uncertain_origin_keeps_its_numbers(
    question: str, steps: tuple[str, ...]
) -> None:
    row = Row(question, steps, steps[-1].rpartition("=")[2])
    template = trace_row(row)
    assert template is not None
    assert not template.can_redraw
    drawn = template.draw(random.Random(0))
    assert (drawn.question, drawn.steps[-1], drawn.answer) == (question, steps[-1], row.answer)


@pytest.mark.parametrize("step", ["2+2=5", "2+2", "x=4", "10/3=3.33", "2+2=", "5-7=2"])
def test_a_row_with_a_wrong_equation_is_left_out(step: str) -> None:
    assert trace_row(Row("Tom has 2 and 2.", (step,), "5")) is None


def test_a_row_without_equations_is_left_out() -> None:
    assert trace_row(Row("Tom has 2 and 2.", (), "4")) is None


def test_fractions_times_and_ordinals_are_not_cut() -> None:
    _, _, numbers = split_numbers("On the 5th at 3:30 Tom ate 1/2 of 40 pies for $1,250.50.")
    assert [number.value for number in numbers] == [40, Fraction(2501, 2)]
    assert (numbers[1].has_commas, numbers[1].decimals) == (True, 2)


def test_every_draw_is_consistent_and_positive() -> None:
    question = "Tim buys 3 books for $12.50 each and pays with $50. How much is left?"
    rows = _draws(_template(question, "3*12.50=37.50", "50-37.5=12.5"), 50)
    assert len({row.question for row in rows}) > 20
    assert all(_is_consistent(row) and Fraction(row.answer) > 0 for row in rows)


def test_draws_have_like_magnitude_and_leave_zero_and_one() -> None:
    rng = random.Random(0)
    assert [draw_like(value, rng) for value in (0, 1)] == [0, 1]
    assert all(100 <= draw_like(300, rng) <= 600 for _ in range(200))
