"""Reads questions from files or from the embedded generator, as text.

A file is JSON lines, GSM8K-Aug lines or one JSON array; each record is recognised by its own fields:
GSM8K and plain rows (question, answer), SVAMP (Body, Question, Answer), MultiArith (sQuestion,
lSolutions) and GSM-Hard (input, target).
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from latent.answers import format_answer
from latent.errors import FormatError, InputError, NotFoundError
from trainer.data.problems import SPLITS, generate

ANNOTATION = re.compile(r"<<([^<>]*)>>")
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
EMBEDDED = "embedded"

_EMBEDDED_COUNT = 1000
_DIGIT_LIMIT = 28  # before or after the point; longer numbers are mistakes in the data


@dataclass(frozen=True)
class Row:
    """One question with its equations (without the angle brackets) and its answer as text."""

    question: str
    steps: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Placed:
    """A row with its line number, or its position in an array, from 1."""

    line: int
    row: Row
    unit: str = "line"  # or "element"


@dataclass(frozen=True)
class Malformed:
    """An entry that is not a valid row: its position, and the reason."""

    line: int
    reason: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: {self.reason}"


@dataclass(frozen=True)
class Dataset:
    """Rows to evaluate on, and the entries that were left out."""

    name: str
    rows: tuple[Placed, ...]
    malformed: tuple[Malformed, ...] = ()


def load_rows(source: str, limit: int | None = None, seed: int = 0) -> list[Row]:
    """Load `embedded[:split]` or a file to train on; a malformed row is an error."""
    name, _, split = source.partition(":")
    if name == EMBEDDED:
        return embedded_rows(split or "train", _EMBEDDED_COUNT if limit is None else limit, seed)
    path = _existing(source)
    rows: list[Row] = []
    for entry in _entries(path):
        if limit is not None and len(rows) == limit:
            break
        if isinstance(entry, Malformed):
            raise FormatError(f"{path}, {entry}")
        rows.append(entry.row)
    if not rows:
        raise FormatError(f"{path} holds no rows; it needs at least one question")
    return rows


def load_dataset(source: str, limit: int | None = None) -> Dataset:
    """Load `embedded[:split]` or a file to evaluate on; malformed rows are left out and listed."""
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}", param="limit")
    name, _, split = source.partition(":")
    if name == EMBEDDED:
        split = split or "test"
        drawn = embedded_rows(split, _EMBEDDED_COUNT if limit is None else limit)
        places = tuple(Placed(number, row) for number, row in enumerate(drawn, start=1))
        return Dataset(f"{EMBEDDED}:{split}", places)
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
    path = Path(source)
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
