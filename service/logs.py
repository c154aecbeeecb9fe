"""Formats log lines: JSON, or text at a terminal."""

import json
import logging
import sys
import time
from typing import Any, Literal

__all__ = ["set_up_logging"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",  # uvicorn's, for a terminal
}


def set_up_logging(format: Literal["auto", "json", "text"]) -> None:
    """Log to standard error, one line per record."""
    is_text = sys.stderr.isatty() if format == "auto" else format == "text"
    handler = logging.StreamHandler()
    handler.setFormatter(_Text() if is_text else _Json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True  # the middleware logs requests
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # the server logs its own start


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extras = " ".join(f"{key}={value}" for key, value in _extras(record).items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = f"{clock} {record.levelname.lower():7} {record.getMessage()} {extras}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}
