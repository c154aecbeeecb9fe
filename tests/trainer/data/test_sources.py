"""Loaders of every supported format, and errors that name the line."""

import json
from pathlib import Path

import pytest

from latent.equations import are_equations_true
from latent.errors import FormatError, GtsError, InputError, NotFoundError
from trainer.data.redraw.everyday import everyday_templates
from trainer.data.redraw.overlap import masked
from trainer.data.sources import Malformed, Placed, Row, load_dataset, load_rows

GSM8K = {
    "question": "Ann has 16 eggs, eats 3 and bakes 4. What are 9 worth at $2?",
    "answer": "She has 16 - 3 - 4 = <<16-3-4=9>>9.\nThat is 9 * 2 = $<<9*2=18>>18.\n#### 1,018",
}
SVAMP = {
    "ID": "x-1",
    "Body": "Each pen costs 7 dollars. If there is a discount of 2 dollars on each pen",
    "Question": "How much does each pen cost?",
    "Equation": "( 7.0 - 2.0 )",
    "Answer": 5.0,
    "Type": "Subtraction",
}
MULTIARITH = {
    "iIndex": 0,
    "lAlignments": [8, 12],
    "lEquations": ["X=((3.0+4.0)-2.0)"],
    "lSolutions": [5.0],
    "sQuestion": " Ann had 3 eggs and 4 more. She ate 2. How many are left? ",
}
GSM_HARD = {"input": "What is a third of 37?", "code": "def solution(): ...", "target": -12.25}


def _write(folder: Path, *lines: str) -> str:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def _write_array(folder: Path, *records: object) -> str:
    path = folder / "rows.json"
    path.write_text(json.dumps(records, indent=4), encoding="utf-8")
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


def test_svamp_gets_the_period_that_its_body_lacks(tmp_path: Path) -> None:
    whole = {**SVAMP, "Body": "Ann has 3 pens . ", "Question": "How many?", "Answer": 3.0}
    first, second = load_rows(_write_array(tmp_path, SVAMP, whole))
    assert first.question.endswith("2 dollars on each pen. How much does each pen cost?")
    assert (first.answer, first.steps) == ("5", ())
    assert second == Row("Ann has 3 pens . How many?", (), "3")


def test_multiarith_and_gsm_hard_are_read_as_published(tmp_path: Path) -> None:
    assert load_rows(_write_array(tmp_path, MULTIARITH)) == [
        Row("Ann had 3 eggs and 4 more. She ate 2. How many are left?", (), "5")
    ]
    tiny = '{"input": "q", "code": "", "target": 3.509e-07}'
    assert load_rows(_write(tmp_path, json.dumps(GSM_HARD), tiny)) == [
        Row("What is a third of 37?", (), "-12.25"),
        Row("q", (), "0.0000003509"),
    ]


def test_a_limit_is_kept(tmp_path: Path) -> None:
    assert len(load_rows(_write(tmp_path, *[json.dumps(GSM8K)] * 5), limit=2)) == 2
    assert len(load_dataset(_write(tmp_path, *[json.dumps(GSM8K)] * 5), limit=2).rows) == 2


def test_the_embedded_task_is_a_source() -> None:
    assert len(load_rows("embedded:ood", 3)) == 3
    assert load_rows("embedded", 2) == load_rows("embedded:train", 2)
    measured = load_dataset("embedded", 2)
    assert measured.name == "embedded:test"
    assert [placed.row for placed in measured.rows] == load_rows("embedded:test", 2)


BAD_LINES = [
    "{not json",
    '{"question": "q"}',
    '{"question": 3, "answer": "4"}',
    '{"question": "q", "answer": "many"}',
    '{"question": "q", "answer": true}',
    '{"question": "q", "answer": NaN}',
    '{"question": "q", "answer": 1e400}',
    '{"question": "q", "answer": "4", "steps": "2+2=4"}',
    '{"question": " ", "answer": "4"}',
    '{"Body": "b", "Answer": 4.0}',
    '{"sQuestion": "q", "lSolutions": []}',
    '{"sQuestion": "q", "lSolutions": ["some"]}',
    '{"input": "q", "target": null}',
    '{"prompt": "q", "answer": 4}',
    "no bars at all",
    "question||<<1+1=2>> 2",
    '{"question": ' + "[" * 100_000,
]


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:40])
def test_a_malformed_row_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(FormatError, match=r"rows\.jsonl, line 2: "):
        load_rows(_write(tmp_path, json.dumps(GSM8K), line))


def test_measuring_leaves_malformed_rows_out_and_tells_of_each(tmp_path: Path) -> None:
    good = json.dumps(GSM8K)
    lines = [good, *BAD_LINES, "", good]
    read = load_dataset(_write(tmp_path, *lines))
    assert [placed.line for placed in read.rows] == [1, len(BAD_LINES) + 3]
    assert [row.line for row in read.malformed] == list(range(2, len(BAD_LINES) + 2))
    assert str(read.malformed[1]) == "line 3: the field answer must be a number or a text"


def test_rows_of_an_array_are_named_by_their_element(tmp_path: Path) -> None:
    path = _write_array(tmp_path, SVAMP, {**SVAMP, "Answer": "?"}, 7, MULTIARITH)
    read = load_dataset(path)
    assert [placed.line for placed in read.rows] == [1, 4]
    assert read.rows[1] == Placed(4, load_rows(_write_array(tmp_path, MULTIARITH))[0], "element")
    assert read.malformed == (
        Malformed(2, "the answer '?' is not a number", "element"),
        Malformed(3, "expected a JSON object with question and answer", "element"),
    )
    with pytest.raises(FormatError, match=r"rows\.json, element 2: "):
        load_rows(_write_array(tmp_path, SVAMP, 7))


def test_a_file_without_one_good_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no question that can be read \(line 1: not JSON"):
        load_dataset(_write(tmp_path, "{", "{"))
    with pytest.raises(FormatError, match=r"no question that can be read$"):
        load_dataset(_write(tmp_path, ""))
    with pytest.raises(FormatError, match="begins like a JSON array"):
        load_dataset(_write(tmp_path, "[1, 2"))
    with pytest.raises(InputError, match="limit must be at least 1"):
        load_dataset("embedded", 0)


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


MAWPS_HEADER = "Question,Numbers,Equation,Answer"


def test_mawps_rows_are_read_as_natural_text_with_equations(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        MAWPS_HEADER,
        '"amy has number0 pens , and gets number1 . how many ?",2.0 3.0,+ number0 number1,5.0',
        "Share number0 by number1 .,10 3,/ number0 number1,3.333",
    )
    rows = [
        Row("Amy has 2 pens, and gets 3. How many?", ("2+3=5",), "5"),
        Row("Share 10 by 3.", (), "3.333"),
    ]
    assert load_rows(path) == rows
    assert [(placed.line, placed.row) for placed in load_dataset(path).rows] == [
        *enumerate(rows, 2)
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a number0 .,2,+ number0 number1,5", "number1 has no value"),
        ("a number0 .,2,+ number0 1", "not as many fields as the header"),
        ("a number0 .,2,+ number0 1,3,4", "not as many fields as the header"),
        ("a number0 .,2,+ number0 1,three", "the answer 'three' is not a number"),
    ],
)
def test_a_malformed_mawps_row_is_named_with_its_line(
    line: str, reason: str, tmp_path: Path
) -> None:
    good = '"b number0\nand more .",2,+ number0 1,3'  # two lines of the file
    path = _write(tmp_path, MAWPS_HEADER, good, line)
    with pytest.raises(FormatError, match=f"line 4: .*{reason}"):
        load_rows(path)
    read = load_dataset(path)
    assert [malformed.line for malformed in read.malformed] == [4]
    assert len(read.rows) == 1


def test_a_csv_file_that_breaks_off_inside_quotes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is not CSV"):
        load_rows(_write(tmp_path, MAWPS_HEADER, '"a number0 .,2,+ number0 1,3'))


@pytest.mark.parametrize(("name", "count"), [("fresh", 852), ("varied", 695)])
def test_questions_to_calibrate_with_are_right_and_in_no_everyday_form(
    name: str, count: int
) -> None:
    rows = load_rows(name)
    assert len(rows) == count
    forms = {template.key for template in everyday_templates()}
    for row in rows:
        assert are_equations_true("\n".join(row.steps)), row
        assert row.steps[-1].endswith(f"={row.answer}"), row
        assert masked(row.question) not in forms, row
    assert len({masked(row.question) for row in rows}) == len(rows)
