"""Masked questions: the split by template, and overlap with test sets."""

from trainer.data.redraw.overlap import find_overlap, is_held_out, masked, masked_questions
from trainer.data.rows import Row


def test_masking_hides_digits_words_and_slots() -> None:
    assert masked("Tom's 1,200 apples, three pears!") == masked("toms number0 apples 12.5 pears")


def test_words_in_other_scripts_are_kept() -> None:
    assert masked("Zoé a 3 pommes") != masked("Chloé a 3 pommes")


def test_a_question_of_a_test_set_is_found_whatever_its_numbers() -> None:
    keys = masked_questions([Row("Tom has 3 pens. How many?", (), "3")])
    same, other = Row("tom has ninety pens, how many?", (), "90"), Row("Tom has 3 cats.", (), "3")
    assert find_overlap([same, other], keys) == [same]


def test_the_split_holds_out_the_share_and_follows_the_words() -> None:
    keys = [
        masked(f"Tom has 3 {letter}{other}s") for letter in "abcdefgh" for other in "klmnopqr" * 4
    ]
    held = {key for key in set(keys) if is_held_out(key, 0.5)}
    assert 16 < len(held) < 48
    assert all(is_held_out(key, 0.5) == (key in held) for key in keys)
    assert not any(is_held_out(key, 0.0) for key in keys)
