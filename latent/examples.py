"""Reads and writes `examples.json`: questions that a reasoner is known to answer. Needs no torch.

The file is not part of the reasoner's fingerprint; it names the fingerprint that it was made for.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latent.errors import FormatError
from latent.files import read_json, write_json

__all__ = ["FILE_NAME", "Example", "read_examples", "write_examples"]

FILE_NAME = "examples.json"
FORMAT_VERSION = 1
_MAX_EXAMPLES = 16  # /v1/models sends all of them


@dataclass(frozen=True)
class Example:
    """A question and its true answer, as text."""

    question: str
    answer: str


def read_examples(folder: Path, reasoner_fingerprint: str) -> tuple[Example, ...]:
    """Read the examples of a reasoner folder; none if there is no file, or it is of other weights."""
    path = folder / FILE_NAME
    if not path.exists():
        return ()
    data = read_json(path)
    if not isinstance(data, dict) or set(data) != {"format", "reasoner_fingerprint", "examples"}:
        raise FormatError(f"{path} must hold format, reasoner_fingerprint and examples")
    if data["format"] != FORMAT_VERSION:
        raise FormatError(f"{path}: format {data['format']!r} is not {FORMAT_VERSION}")
    rows = data["examples"]
    if not isinstance(rows, list) or len(rows) > _MAX_EXAMPLES:
        raise FormatError(f"{path}: examples must be a list of at most {_MAX_EXAMPLES}")
    examples = tuple(_example(row, f"{path}: examples[{n}]") for n, row in enumerate(rows))
    return examples if data["reasoner_fingerprint"] == reasoner_fingerprint else ()


def write_examples(folder: Path, reasoner_fingerprint: str, examples: Sequence[Example]) -> None:
    """Write `examples.json`, atomically."""
    data = {
        "format": FORMAT_VERSION,
        "reasoner_fingerprint": reasoner_fingerprint,
        "examples": [asdict(example) for example in examples],
    }
    write_json(folder / FILE_NAME, data)


def _example(row: Any, at: str) -> Example:
    if not isinstance(row, dict) or set(row) != {"question", "answer"}:
        raise FormatError(f"{at} must have question and answer")
    if not all(isinstance(value, str) and value.strip() for value in row.values()):
        raise FormatError(f"{at}: question and answer must be text")
    return Example(**row)
