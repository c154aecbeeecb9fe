from decimal import Decimal

import pytest

from latent.answers import format_answer, last_number, parse_answer, same_answer, show_answer


@pytest.mark.parametrize(
    "text", ["1,234", "1234.0", "$1234", " 1234 ", "$ 1,234.00", "so 7, then 1234."]
)
def test_one_number_is_one_answer_however_it_is_written(text: str) -> None:
    answer = parse_answer(text)
    assert answer == Decimal(1234)
    assert format_answer(answer) == "1234"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-5", "-5"),
        ("−5", "-5"),
        ("-$5", "-5"),
        (".5", "0.5"),
        ("-0", "0"),
        ("1e5", "5"),
        ("10000000", "10000000"),
        ("0.50", "0.5"),
    ],
)
def test_numbers_print_one_way(text: str, expected: str) -> None:
    answer = parse_answer(text)
    assert answer is not None
    assert format_answer(answer) == expected


@pytest.mark.parametrize("text", ["", "none", "###", "-", "$", ","])
def test_text_without_a_number_is_unparsable(text: str) -> None:
    assert parse_answer(text) is None


@pytest.mark.parametrize(
    ("text", "template", "expected"),
    [
        ("so 3 and 1,250.50 eggs", "The answer is: {}", "1250.5"),
        ("10 - 5", "The answer is: {}", "5"),  # a sign counts only right before a digit
        ("it is -5.", "The answer is: {}", "-5"),
        ("#3 # none", "The answer is: {}", "3"),
        ("#3 # none", "### {}", None),
        ("1 ### 2,000", "### {}", "2000"),
        ("no mark 7", "### {}", "7"),
        ("none", "### {}", None),
    ],
)
def test_the_last_number_is_read_as_the_released_evaluations_do(
    text: str, template: str, expected: str | None
) -> None:
    assert show_answer(last_number(text, template)) == expected


def test_answers_compare_as_numbers_within_a_thousandth() -> None:
    assert same_answer(Decimal("2.3333"), Decimal("2.333"))
    assert not same_answer(Decimal("2.335"), Decimal("2.333"))
    assert not same_answer(None, Decimal(1))
    assert not same_answer(None, None)
