"""Mixtures of sources: weights, pools, held-out templates, excluded test questions."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from latent.errors import InputError
from trainer.data.mixture import Mixture, Source, load_mixture, parse_weight
from trainer.data.redraw.overlap import masked
from trainer.data.redraw.template import Fixed
from trainer.data.rows import Row
from trainer.data.sources import load_rows


def _fixed(word: str, count: int) -> tuple[Fixed, ...]:
    return tuple(Fixed(Row(f"{word} {number}", (), "1")) for number in range(count))


def _file(folder: Path, *questions: str) -> str:
    path = folder / "rows.jsonl"
    rows = ({"question": text, "steps": ["30+25=55"], "answer": 55} for text in questions)
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def _things(count: int) -> list[str]:
    letters = "abcdefghijklmnopqrst"
    names = [first + second for first in letters for second in letters]
    return [f"Tom has 30 {name} and finds 25. How many?" for name in names[:count]]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a.csv", ("a.csv", None)),
        ("a.csv=0.5", ("a.csv", 0.5)),
        ("C:/a=b.csv=2", ("C:/a=b.csv", 2.0)),
        ("C:/a=b.csv", ("C:/a=b.csv", None)),
    ],
)
def test_a_weight_follows_the_last_equals_sign(text: str, parsed: tuple[str, float | None]) -> None:
    assert parse_weight(text) == parsed


def test_an_existing_file_with_such_a_name_is_no_weight(tmp_path: Path) -> None:
    path = tmp_path / "a=0.5"
    path.touch()
    assert parse_weight(str(path)) == (str(path), None)


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf"])
def test_a_weight_must_be_positive(weight: str) -> None:
    with pytest.raises(InputError, match="weight of a must be above 0"):
        parse_weight(f"a={weight}")


def test_sources_without_weights_are_joined_as_they_are() -> None:
    mixture = load_mixture(["embedded:train", "drills"], limit=3)
    rows = [*load_rows("embedded:train", 3), *load_rows("drills", 3)]
    assert mixture.pool(0) == mixture.published() == rows
    assert [mixture.pool_at(step, 2) for step in (0, 100)] == [0, 0]


def test_weights_decide_the_shares_and_templates_are_used_equally_often() -> None:
    sources = [Source("a", 3.0, 4, _fixed("a", 4)), Source("b", 1.0, 96, _fixed("b", 96))]
    pool = Mixture(sources, redraw=False, seed=0, pool_size=80).pool(0)
    counts = Counter(row.question for row in pool)
    assert [counts[f"a {number}"] for number in range(4)] == [15] * 4
    assert sum(count for text, count in counts.items() if text.startswith("b")) == 20
    assert max(count for text, count in counts.items() if text.startswith("b")) == 1


def test_a_pool_follows_from_seed_and_index(tmp_path: Path) -> None:
    path = _file(tmp_path, *_things(20))
    first, again = (load_mixture([path], redraw=True, seed=1) for _ in range(2))
    other = load_mixture([path], redraw=True, seed=2)
    assert first.pool(3) == again.pool(3)
    assert first.pool(3) != first.pool(4)
    assert first.pool(3) != other.pool(3)
    for row in first.pool(3):
        left, right = re.findall(r"\d+", row.question)
        assert row.steps == (f"{left}+{right}={row.answer}",)
        assert int(left) + int(right) == int(row.answer)


def test_a_step_draws_from_the_next_pool_when_one_has_been_used() -> None:
    mixture = Mixture([Source("a", 1.0, 10, _fixed("a", 10))], redraw=False, seed=0)
    assert [mixture.pool_at(step, 4) for step in range(7)] == [0, 0, 0, 1, 1, 1, 2]


def test_held_out_templates_are_not_trained_on_whatever_their_numbers(tmp_path: Path) -> None:
    texts = _things(300)
    path = _file(tmp_path, *texts, *(text.replace("30", "40") for text in texts))
    mixture = load_mixture([path], hold_out=True)
    held, trained = (
        {masked(row.question) for row in rows}
        for rows in (mixture.held_out(1000), mixture.published())
    )
    assert not held & trained
    assert len(held) + len(trained) == 300
    assert 3 <= len(held) <= 35
    assert len(mixture.held_out(2)) == 2


def test_questions_of_a_test_file_are_left_out_whatever_their_numbers(tmp_path: Path) -> None:
    test = tmp_path / "SVAMP.json"
    test.write_text(
        json.dumps([{"Body": "Tom has 3 ab and finds 9", "Question": "How many?", "Answer": 12}])
    )
    mixture = load_mixture([_file(tmp_path, *_things(5))], exclude=[str(test)])
    assert [source.excluded for source in mixture.sources] == [1]
    assert not any(" ab " in row.question for row in mixture.published())


def test_rows_whose_equations_are_wrong_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"question": "Tom has 30 and 25.", "steps": ["30+25=55"], "answer": 55},
        {"question": "Tom has 30 and 26.", "steps": ["30+26=55"], "answer": 55},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    (source,) = load_mixture([str(path)], redraw=True).sources
    assert (len(source.training), source.unusable) == (1, 1)
    assert len(load_mixture([str(path)]).published()) == 2


def test_data_without_equations_can_not_be_drawn_anew(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "Tom has 30 and 25.", "answer": 55}')
    with pytest.raises(InputError, match="no equations that lead to its answers"):
        load_mixture([str(path)], redraw=True)


def test_generators_draw_in_every_pool() -> None:
    mixture = load_mixture(["drills=1", "everyday=3"], redraw=True)
    mixture.pool_size = 40
    first, second = mixture.pool(0), mixture.pool(1)
    assert len(first) == 40
    assert len({row.question for row in (*first, *second)}) > 60


def test_the_first_held_out_problems_mix_the_sources_by_weight() -> None:
    few = Source("few", 3.0, 10, _fixed("t", 1), _fixed("few", 30))
    many = Source("many", 1.0, 1000, _fixed("t", 1), _fixed("many", 500))
    mixture = Mixture([few, many], redraw=False, seed=0)
    first = [row.question.split()[0] for row in mixture.held_out(20)]
    assert Counter(first) == {"few": 15, "many": 5}
    assert len({row.question for row in mixture.held_out()}) == 530
    assert mixture.held_out(20) == mixture.held_out()[:20]


def test_every_second_held_out_problem_is_drawn_with_a_statement_that_does_not_matter(
    tmp_path: Path,
) -> None:
    letters = "abcdefghijklmnopqrst"
    texts = [
        f"Tom has 30 {first}{second}. He finds 25 more. How many has he?"
        for first in letters
        for second in letters
    ]
    mixture = load_mixture([_file(tmp_path, *texts)], redraw=True, hold_out=True)
    published, drawn = mixture.held_out(), mixture.held_out_drawn()
    assert drawn == mixture.held_out_drawn()
    assert len(drawn) == len(published)
    plain, spoilt = drawn[::2], drawn[1::2]
    assert [masked(row.question) for row in plain] == [
        masked(row.question) for row in published[::2]
    ]
    assert all(len(row.question.split(". ")) == 3 for row in plain)
    assert sum(len(row.question.split(". ")) == 4 for row in spoilt) >= len(spoilt) - 2
    assert {len(row.steps) for row in drawn} == {1}
    assert len({row.answer for row in drawn}) > 5
