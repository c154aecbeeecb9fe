"""Records of MAWPS and ASDiv-A: natural text, equations, and numbers drawn anew."""

import random
import re

import pytest

from trainer.data.redraw.mawps import detokenise, learn_casing, parse_record
from trainer.data.redraw.template import Template
from trainer.data.rows import Row


def _template(question: str, numbers: str, equation: str, answer: str) -> Template:
    template = parse_record(question, numbers, equation, answer).template
    assert template is not None
    return template


@pytest.mark.parametrize(
    ("published", "natural"),
    [
        ("tom has 5 apples .", "Tom has 5 apples."),
        ("Emily 's father gives her 7 more .", "Emily's father gives her 7 more."),
        ("it costs $ 5 . he has 3 , how many ?", "It costs $5. He has 3, how many?"),
        ("he did n't eat 3 % .", "He didn't eat 3%."),
        ("he bought 3 how many does he have ?", "He bought 3. How many does he have?"),
        ("if he bought 3 how many are left ?", "If he bought 3, how many are left?"),
        ("he put 3 to wash. he has 2 .", "He put 3 to wash. He has 2."),
        ("What is the cost .", "What is the cost?"),
    ],
)
def test_words_become_natural_text(published: str, natural: str) -> None:
    assert detokenise(published) == natural


def test_names_are_learned_from_cased_texts() -> None:
    casing = learn_casing(["Yesterday Zelda met Bruno .", "Then Zelda saw the Bruno ."])
    assert {"zelda", "bruno"} <= casing
    assert "yesterday" not in casing
    assert detokenise("the dog of zelda .", casing) == "The dog of Zelda."


def test_the_chain_follows_the_prefix_equation() -> None:
    template = _template(
        "tom had $ number0 . he bought number1 pens for $ number2 each . how much is left ?",
        "50 4 7",
        "- number0 * number1 number2",
        "22.0",
    )
    row = template.original()
    assert row.question == "Tom had $50. He bought 4 pens for $7 each. How much is left?"
    assert (row.steps, row.answer) == (("4*7=28", "50-28=22"), "22")


def test_divisions_are_drawn_exact() -> None:
    template = _template("Share number0 by number1 .", "24 6", "/ number0 number1", "4.0")
    for seed in range(40):
        row = template.draw(random.Random(seed))
        left, right = map(int, re.findall(r"\d+", row.question))
        assert left % right == 0
        assert row.answer == str(left // right)


def test_equal_numbers_are_one_since_the_file_can_not_tell_them_apart() -> None:
    template = _template(
        "Ann has number0 . Bob has number1 . Together ?", "2 2", "+ number0 number0", "4"
    )
    numbers = re.findall(r"\d+", template.draw(random.Random(1)).question)
    assert numbers[0] == numbers[1]


def test_a_small_number_that_no_equation_needs_stays() -> None:
    template = _template(
        "The sum of number0 numbers is number1 , number2 is one of them . What is the other ?",
        "2 30 12",
        "- number1 number2",
        "18",
    )
    assert all("of 2 numbers" in template.draw(random.Random(s)).question for s in range(20))


@pytest.mark.parametrize(
    ("equation", "answer"), [("+ number0 number1", "9.0"), ("/ number0 number0", "1"), ("5", "5")]
)
def test_a_row_whose_equation_does_not_explain_the_answer_has_no_steps(
    equation: str, answer: str
) -> None:
    problem = parse_record("tom has number0 and number1 .", "2.0 3", equation, answer)
    assert problem.template is None
    assert problem.row == Row("Tom has 2 and 3.", (), answer.removesuffix(".0"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (("a number0 .", "2 x", "+ number0 1", "3"), "the number 'x' is not a number"),
        (("a number0 .", "2", "+ number0 number7", "5"), "number7 has no value"),
        (("a number1 .", "2", "+ number0 1", "3"), "number1 has no value"),
        (("a number0 .", "2", "+ 1", "1"), "operand is missing"),
        (("a number0 .", "2", "+ number0 1", "1e999999999"), "the answer '1e999999999' is not"),
        ((" ", "2", "+ number0 1", "3"), "the question is empty"),
    ],
)
def test_a_malformed_record_is_refused_with_the_reason(
    fields: tuple[str, str, str, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_record(*fields)
