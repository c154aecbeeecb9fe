"""Loaders: every format in the wild, and the line number of what is wrong."""

import json
from pathlib import Path

import pytest

from latent.errors import FormatError, GtsError, InputError, NotFoundError
from trainer.data import Row, load_rows

GSM8K = {
    "question": "Ann has 16 eggs, eats 3 and bakes 4. What are 9 worth at $2?",
    "answer": "She has 16 - 3 - 4 = <<16-3-4=9>>9.\nThat is 9 * 2 = $<<9*2=18>>18.\n#### 1,018",
}


def _write(folder: Path, *lines: str) -> str:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_gsm8k_lines_give_steps_and_an_answer_without_commas(tmp_path: Path) -> None:
    rows = load_rows(_write(tmp_path, json.dumps(GSM8K)))
    assert rows == [Row(GSM8K["question"], ("16-3-4=9", "9*2=18"), "1018")]


def test_gsm8k_aug_lines_are_read(tmp_path: Path) -> None:
    rows = load_rows(
        _write(tmp_path, "Out of 600, 30% are new?||<<600*30/100=180>> <<2*3=6>> #### 6")
    )
    assert rows == [Row("Out of 600, 30% are new?", ("600*30/100=180", "2*3=6"), "6")]


def test_plain_rows_may_lack_steps_and_have_numbers_for_answers(tmp_path: Path) -> None:
    lines = [
        '{"question": "2+2?", "answer": 4.0}',
        "",
        '{"question": "q", "answer": "5", "steps": ["<<2+3=5>>"]}',
    ]
    assert load_rows(_write(tmp_path, *lines)) == [Row("2+2?", (), "4"), Row("q", ("2+3=5",), "5")]


def test_a_limit_is_kept(tmp_path: Path) -> None:
    assert len(load_rows(_write(tmp_path, *[json.dumps(GSM8K)] * 5), limit=2)) == 2


def test_the_embedded_task_is_a_source() -> None:
    assert len(load_rows("embedded:ood", 3)) == 3
    assert load_rows("embedded", 2) == load_rows("embedded:train", 2)


@pytest.mark.parametrize(
    "line",
    [
        "{not json",
        '{"question": "q"}',
        '{"question": 3, "answer": "4"}',
        '{"question": "q", "answer": "many"}',
        '{"question": "q", "answer": true}',
        '{"question": "q", "answer": "4", "steps": "2+2=4"}',
        '{"question": " ", "answer": "4"}',
        "no bars at all",
        "question||<<1+1=2>> 2",
    ],
)
def test_a_malformed_row_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(FormatError, match=r"rows\.jsonl, line 2: "):
        load_rows(_write(tmp_path, json.dumps(GSM8K), line))


def test_an_empty_missing_or_binary_file_and_an_unknown_split_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds no rows"):
        load_rows(_write(tmp_path, ""))
    with pytest.raises(NotFoundError, match="no such data file"):
        load_rows(str(tmp_path / "absent.jsonl"))
    with pytest.raises(InputError, match="embedded:dev"):
        load_rows("embedded:dev")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GtsError, match="UTF-8"):
        load_rows(str(tmp_path / "binary"))
