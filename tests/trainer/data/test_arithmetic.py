"""Expressions, their unfolding into binary equations, and how numbers are written."""

from fractions import Fraction

import pytest

from trainer.data.redraw.arithmetic import (
    Result,
    Slot,
    UnsolvableError,
    format_number,
    leaves,
    parse_infix,
    parse_prefix,
    unfold,
)


def _steps(text: str) -> tuple[str, ...]:
    return unfold(parse_infix(text), (), ()).steps


def test_a_chain_becomes_one_binary_equation_for_each_operation() -> None:
    assert _steps("100-50-30-15") == ("100-50=50", "50-30=20", "20-15=5")


def test_products_come_before_sums_and_parentheses_first() -> None:
    assert _steps("2+3*4") == ("3*4=12", "2+12=14")
    assert _steps("(2+3)*4") == ("2+3=5", "5*4=20")


def test_a_division_that_would_leave_the_whole_numbers_comes_last() -> None:
    assert _steps("2/3*105") == ("2*105=210", "210/3=70")
    assert _steps("(80/100)*10") == ("80*10=800", "800/100=8")


def test_times_one_is_not_a_step() -> None:
    assert _steps("1*3*1") == ("1*3=3",)


def test_prefix_equations_name_slots() -> None:
    expression = parse_prefix("- number0 * number1 7.0")
    assert [leaf.index for leaf in leaves(expression) if isinstance(leaf, Slot)] == [0, 1]
    solution = unfold(expression, [Fraction(50), Fraction(4)], ())
    assert solution.steps == ("4*7=28", "50-28=22")


def test_earlier_results_can_be_operands() -> None:
    assert unfold(Result(0), (), [Fraction(9)]).value == 9


@pytest.mark.parametrize(
    "text", ["", "2+", "(2", "2)", "a+1", "2(3)", "²+1", "(" * 5000, "1+" * 5000]
)
def test_malformed_expressions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expression|missing|parenthesis|unexpected"):
        parse_infix(text)


@pytest.mark.parametrize(
    "text",
    ["", "2 3", "+ number0", "+ 1 2 3", "+ 1 1e999999999", "+ 1 1/0", "+ 1 numberx", "+ " * 5000],
)
def test_malformed_prefix_equations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"missing|unexpected|no number|more than"):
        parse_prefix(text)


def test_numbers_are_written_without_trailing_zeros() -> None:
    assert format_number(Fraction(5, 2)) == "2.5"
    assert format_number(Fraction(-1, 20)) == "-0.05"
    assert format_number(Fraction(12)) == "12"


def test_endless_decimals_and_division_by_zero_are_unsolvable() -> None:
    with pytest.raises(UnsolvableError):
        _steps("10/3")
    with pytest.raises(UnsolvableError):
        _steps("10/0")
