"""Reads questions from files or from a generator, as text.

A file is JSON lines, GSM8K-Aug lines or one JSON array, where each record is recognised by its own
fields: GSM8K and plain rows (question, answer), SVAMP (Body, Question, Answer), MultiArith (sQuestion,
lSolutions) and GSM-Hard (input, target). MAWPS and ASDiv-A come as CSV, recognised by its header.
`fresh` and `varied` name files of this package.
"""

import csv
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from latent.answers import format_answer
from latent.errors import FormatError, InputError, NotFoundError
from trainer.data.problems import SPLITS, generate
from trainer.data.redraw import mawps
from trainer.data.redraw.drills import Drills
from trainer.data.redraw.everyday import everyday_templates
from trainer.data.redraw.template import Drawable
from trainer.data.rows import Dataset, Malformed, Placed, Row

__all__ = [
    "EMBEDDED",
    "GENERATORS",
    "Dataset",
    "Malformed",
    "Placed",
    "Row",
    "embedded_rows",
    "load_dataset",
    "load_places",
    "load_rows",
    "parse_record",
    "parse_row",
]

ANNOTATION = re.compile(r"<<([^<>]*)>>")
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
EMBEDDED = "embedded"

# Generators beside the embedded task: plain sums, and everyday problems.
GENERATORS: dict[str, Callable[[], Sequence[Drawable]]] = {
    "drills": lambda: [Drills()],
    "everyday": everyday_templates,
}

# Files of this package, by name: questions that no reasoner was trained on, to calibrate with.
_PACKAGED = {
    name: Path(__file__).parent / "problems" / f"{name}.jsonl" for name in ("fresh", "varied")
}
_EMBEDDED_COUNT = 1000
_CSV_FIELDS = ("Question", "Numbers", "Equation", "Answer")  # of MAWPS and ASDiv-A
_DIGIT_LIMIT = 28  # before or after the point; longer numbers are mistakes in the data


def load_rows(source: str, limit: int | None = None, seed: int = 0) -> list[Row]:
    """Load a generator's rows or a file to train on; a malformed row is an error."""
    return [place.row for place in load_places(source, limit, seed)]


def load_places(source: str, limit: int | None = None, seed: int = 0) -> list[Placed]:
    """Load rows as `load_rows`, with their places in the file."""
    drawn = _generated(source, "train", limit, seed)
    if drawn is not None:
        return drawn
    path = _existing(source)
    rows: list[Placed] = []
    for entry in _entries(path):
        if limit is not None and len(rows) == limit:
            break
        if isinstance(entry, Malformed):
            raise FormatError(f"{path}, {entry}")
        rows.append(entry)
    if not rows:
        raise FormatError(f"{path} holds no rows; it needs at least one question")
    return rows


def load_dataset(source: str, limit: int | None = None) -> Dataset:
    """Load a generator's rows or a file to evaluate on; malformed rows are left out and listed."""
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}", param="limit")
    drawn = _generated(source, "test", limit)
    if drawn is not None:
        return Dataset(f"{EMBEDDED}:test" if source == EMBEDDED else source, tuple(drawn))
    path = _existing(source)
    rows: list[Placed] = []
    malformed: list[Malformed] = []
    for entry in _entries(path):
        if isinstance(entry, Malformed):
            malformed.append(entry)
            continue
        rows.append(entry)
        if len(rows) == limit:
            break
    if not rows:
        first = f" ({malformed[0]})" if malformed else ""
        raise FormatError(f"{path} holds no question that can be read{first}", param="data")
    return Dataset(path.name, tuple(rows), tuple(malformed))


def _generated(
    source: str, default_split: str, limit: int | None, seed: int = 0
) -> list[Placed] | None:
    """Rows of the embedded task (`embedded[:split]`) or another generator; None for a file."""
    count = _EMBEDDED_COUNT if limit is None else limit
    name, _, split = source.partition(":")
    if name == EMBEDDED:
        rows = embedded_rows(split or default_split, count, seed)
    elif source in GENERATORS:
        templates = GENERATORS[source]()
        rows = [
            templates[index % len(templates)].draw(random.Random(f"{source}/{seed}/{index}"))
            for index in range(count)
        ]
    else:
        return None
    return [Placed(number, row) for number, row in enumerate(rows, start=1)]


def embedded_rows(split: str, count: int, seed: int = 0) -> list[Row]:
    """First `count` problems of a split of the embedded task."""
    if split not in SPLITS:
        raise InputError(f"embedded:{split} is unknown; the splits are {', '.join(SPLITS)}")
    problems = (generate(split, index, seed) for index in range(count))
    return [Row(p.question, p.steps, str(p.answer)) for p in problems]


def parse_row(line: str) -> Row:
    """Parse a line in any of the formats; raises ValueError with the reason."""
    if line.lstrip().startswith("{"):
        return parse_record(_decoded(line))
    question, bars, solution = line.partition("||")
    chain, marks, answer = solution.rpartition("####")
    if not bars or not marks:
        raise ValueError("expected a JSON object or `question||<<..>> <<..>> #### answer`")
    return _checked(question, tuple(ANNOTATION.findall(chain)), answer)


def parse_record(record: object) -> Row:
    """Parse a JSON object of any of the formats; raises ValueError with the reason."""
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object with question and answer")
    if "question" in record:
        return _parse_plain(record)
    if "Body" in record:
        body = _text(record, "Body").strip()
        stop = "" if body.endswith((".", "?", "!")) or not body else "."
        question = f"{body}{stop} {_text(record, 'Question').strip()}"
        return _checked(question, (), _number(record, "Answer"))
    if "sQuestion" in record:
        solutions = record.get("lSolutions")
        if not isinstance(solutions, list) or len(solutions) != 1:
            raise ValueError("the field lSolutions must be a list of one number")
        answer = _number({"lSolutions": solutions[0]}, "lSolutions")
        return _checked(_text(record, "sQuestion"), (), answer)
    if "input" in record:
        return _checked(_text(record, "input"), (), _number(record, "target"))
    raise ValueError("the field question is missing")


def _existing(source: str) -> Path:
    path = _PACKAGED.get(source, Path(source))
    if path.is_dir():
        raise NotFoundError(f"{source} is a folder; give a data file in it (or embedded[:split])")
    if not path.is_file():
        raise NotFoundError(f"no such data file: {source} (or use embedded[:split])")
    return path


def _entries(path: Path) -> Iterator[Placed | Malformed]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
            file.seek(0)
            if first.lstrip().startswith("["):
                for number, record in enumerate(_array(path, file.read()), start=1):
                    yield _entry(number, "element", parse_record, record)
                return
            if set(_CSV_FIELDS) <= set(next(csv.reader([first]), [])):
                yield from _csv_entries(path, file)
                return
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _entry(number, "line", parse_row, line)
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise FormatError(f"{path} can't be read: {error.strerror}") from error


def _entry(number: int, unit: str, parse: Callable[[Any], Row], raw: Any) -> Placed | Malformed:
    try:
        return Placed(number, parse(raw), unit)
    except ValueError as error:
        return Malformed(number, str(error), unit)


def _csv_entries(path: Path, file: Iterable[str]) -> Iterator[Placed | Malformed]:
    """Records of MAWPS and ASDiv-A; names are learned from the whole file, so it is read first."""
    reader = csv.DictReader(file, strict=True)
    records: list[tuple[int, dict[str, str]]] = []
    try:
        assert reader.fieldnames is not None  # reads the header
        line = reader.line_num
        for record in reader:
            records.append((line + 1, record))
            line = reader.line_num
    except csv.Error as error:
        raise FormatError(f"{path}, line {reader.line_num} is not CSV: {error}") from error
    questions = [record["Question"] or "" for _, record in records]
    casing = mawps.learn_casing(text for text in questions if text[:1].isupper())
    for line, record in records:
        values = [record[name] for name in _CSV_FIELDS]
        try:
            if None in values or None in record:
                raise ValueError("the row has not as many fields as the header")
            problem = mawps.parse_record(*values, casing=casing)
            row = _checked(problem.row.question, problem.row.steps, problem.row.answer)
            yield Placed(line, row, template=problem.template)
        except ValueError as error:
            yield Malformed(line, str(error))


def _array(path: Path, text: str) -> list[object]:
    try:
        decoded = _decoded(text)
    except ValueError as error:
        raise FormatError(f"{path} begins like a JSON array, and is not one: {error}") from error
    assert isinstance(decoded, list)
    return decoded


def _decoded(text: str) -> object:
    """Decode JSON with exact decimals; NaN and Infinity become text, which is not a number."""
    try:
        decoded: object = json.loads(text, parse_float=Decimal, parse_constant=str)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError:
        raise ValueError("not JSON that can be read: it is nested too deeply") from None
    return decoded


def _parse_plain(record: dict[str, Any]) -> Row:
    question, answer = _text(record, "question"), _number(record, "answer")
    if "####" in answer:  # GSM8K: the solution with its annotations, then the answer
        chain, _, final = answer.rpartition("####")
        return _checked(question, tuple(ANNOTATION.findall(chain)), final)
    steps = record.get("steps", [])
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise ValueError("the field steps must be a list of texts")
    return _checked(question, tuple(step.strip("<> ") for step in steps), answer)


def _text(record: dict[str, Any], field: str) -> str:
    value = record.get(field)
    if not isinstance(value, str):
        raise ValueError(f"the field {field} must be a text")
    return value


def _number(record: dict[str, Any], field: str) -> str:
    """Text of a number; a value that is text already is returned as it is and checked later."""
    value = record.get(field)
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"the field {field} must be a number or a text")
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if number.adjusted() > _DIGIT_LIMIT or (isinstance(exponent, int) and exponent < -_DIGIT_LIMIT):
        raise ValueError(f"the field {field} has more than {_DIGIT_LIMIT} digits")
    return format_answer(number)


def _checked(question: str, steps: tuple[str, ...], answer: str) -> Row:
    question, answer = question.strip(), answer.strip().replace(",", "")
    if not question:
        raise ValueError("the question is empty")
    if not NUMBER.fullmatch(answer):
        raise ValueError(f"the answer {_short(answer)!r} is not a number")
    return Row(question, steps, answer)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
