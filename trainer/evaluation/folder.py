"""The files of an evaluation: what it was begun with, results as they come, results and summary.

A rank appends to a file of its own under parts/; a run that goes on reads them all, whoever wrote them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from latent.errors import FormatError, MismatchError
from latent.files import read_json, write_json, write_text
from trainer.evaluation.records import Record
from trainer.runs.ranks import Ranks

__all__ = ["EvaluationFolder"]


class EvaluationFolder:
    """An evaluation's folder; every rank reads it, and the first one writes what is not a part."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._parts = out / "parts"

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on with another evaluation, naming the first thing that differs."""
        path = self._out / "config.json"
        if not path.is_file():
            return
        saved = read_json(path)
        if not isinstance(saved, dict) or not saved.keys() & identity.keys():
            raise FormatError(f"{path} is not an evaluation's; use another --out", param="out")
        for name in (*identity, *saved):
            if identity.get(name) != saved.get(name):
                raise MismatchError(
                    f"{self._out} was begun with {name} = {saved.get(name)!r}, not "
                    f"{identity.get(name)!r}; use the same command to go on, or another --out",
                    param="out",
                )

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Keep what this evaluation is, for whoever goes on with it."""
        write_json(self._out / "config.json", dict(identity))

    def read(self) -> list[Record]:
        """Read every part's whole lines."""
        records = []
        for path in sorted(self._parts.glob("*.jsonl")):
            data = path.read_bytes()
            for number, line in enumerate(data[: _whole(data)].splitlines(), start=1):
                try:
                    records.append(Record.from_line(line.decode()))
                except ValueError as error:
                    raise FormatError(f"{path}, line {number} is no result: {error}") from error
        return records

    @contextmanager
    def appending(self, ranks: Ranks) -> Iterator[TextIO]:
        """Open this rank's part, cut back to its whole lines."""
        self._parts.mkdir(parents=True, exist_ok=True)
        path = self._parts / f"rank-{ranks.rank}-of-{ranks.size}.jsonl"
        path.touch()
        data = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(_whole(data))
        with path.open("a", encoding="utf-8") as part:
            yield part

    def finish(self, records: Sequence[Record], summary: Mapping[str, Any]) -> None:
        """Write the sorted results, then the summary that tells that all is there."""
        text = "".join(record.to_line() for record in records)
        write_text(self._out / "results.jsonl", text)
        write_json(self._out / "summary.json", dict(summary))


def _whole(data: bytes) -> int:
    """Give the length without a last line that was torn off in writing."""
    return data.rfind(b"\n") + 1
