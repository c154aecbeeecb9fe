"""Reads training rows from files or from the embedded generator. Knows nothing of tokens or models."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from latent.errors import FormatError, InputError, NotFoundError
from trainer.problems import SPLITS, generate

ANNOTATION = re.compile(r"<<([^<>]*)>>")
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
EMBEDDED = "embedded"


@dataclass(frozen=True)
class Row:
    """One question with its equations (without the angle brackets) and its answer as text."""

    question: str
    steps: tuple[str, ...]
    answer: str


def load_rows(source: str, limit: int | None = None, seed: int = 0) -> list[Row]:
    """Load `embedded[:split]`, a JSONL file (plain or GSM8K) or a file of GSM8K-Aug lines."""
    name, _, split = source.partition(":")
    if name == EMBEDDED:
        return embedded_rows(split or "train", 1000 if limit is None else limit, seed)
    path = Path(source)
    if not path.is_file():
        raise NotFoundError(f"no such data file: {source} (or use embedded[:split])")
    rows: list[Row] = []
    for row in _read_rows(path):
        if limit is not None and len(rows) == limit:
            break
        rows.append(row)
    if not rows:
        raise FormatError(f"{path} holds no rows; it needs at least one question")
    return rows


def embedded_rows(split: str, count: int, seed: int = 0) -> list[Row]:
    """Draw the first `count` problems of a split of the embedded task."""
    if split not in SPLITS:
        raise InputError(f"embedded:{split} is unknown; the splits are {', '.join(SPLITS)}")
    problems = (generate(split, index, seed) for index in range(count))
    return [Row(p.question, p.steps, str(p.answer)) for p in problems]


def parse_row(line: str) -> Row:
    """Read one line in any of the three formats; raise ValueError saying what is wrong with it."""
    if line.lstrip().startswith("{"):
        return _parse_json(json.loads(line))
    question, bars, solution = line.partition("||")
    chain, marks, answer = solution.rpartition("####")
    if not bars or not marks:
        raise ValueError("expected a JSON object or `question||<<..>> <<..>> #### answer`")
    return _checked(question, tuple(ANNOTATION.findall(chain)), answer)


def _read_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    try:
                        yield parse_row(line)
                    except ValueError as error:
                        raise FormatError(f"{path}, line {number}: {error}") from error
        except UnicodeDecodeError as error:
            raise FormatError(f"{path} is not UTF-8 text: {error.reason}") from error


def _parse_json(record: object) -> Row:
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object with question and answer")
    question, answer = record.get("question"), record.get("answer")
    if not isinstance(question, str):
        raise ValueError("the field question must be a text")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise ValueError("the field answer must be a number or a text")
    text = str(int(answer)) if isinstance(answer, float) and answer.is_integer() else str(answer)
    if "####" in text:  # GSM8K: the solution with its annotations, then the answer
        chain, _, final = text.rpartition("####")
        return _checked(question, tuple(ANNOTATION.findall(chain)), final)
    steps = record.get("steps", [])
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise ValueError("the field steps must be a list of texts")
    return _checked(question, tuple(step.strip("<> ") for step in steps), text)


def _checked(question: str, steps: tuple[str, ...], answer: str) -> Row:
    question, answer = question.strip(), answer.strip().replace(",", "")
    if not question:
        raise ValueError("the question is empty")
    if not NUMBER.fullmatch(answer):
        raise ValueError(f"the answer {answer!r} is not a number")
    return Row(question, steps, answer)
