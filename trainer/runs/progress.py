"""Shows the progress of a run: a live bar at a terminal, plain lines otherwise."""

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """A progress bar if standard output is a terminal, else one line per call of `show`.

    With `line_seconds` a call gives no line so soon after another, unless it is the last.
    """

    def __init__(
        self,
        total: int,
        done: int,
        description: str = "training",
        *,
        line_seconds: float = 0.0,
    ) -> None:
        self._line_seconds = line_seconds
        self._last_line = -line_seconds
        self._console = Console(soft_wrap=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._total = total
        self._task = self._bar.add_task(description, total=total, completed=done)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, step: int, metrics: Mapping[str, float | str]) -> None:
        """Show the number of finished steps and the latest metrics."""
        text = " ".join(
            f"{name}={value if isinstance(value, str) else format(value, '.4g')}"
            for name, value in metrics.items()
        )
        self._bar.update(self._task, completed=step, description=text)
        now = time.monotonic()
        is_due = now - self._last_line >= self._line_seconds or step == self._total
        if not self._console.is_terminal and is_due:
            self._last_line = now
            print(f"{step}/{self._total} {text}", flush=True)

    def note(self, text: str) -> None:
        """Print a line that stays above the bar."""
        if self._console.is_terminal:
            self._bar.console.print(text, highlight=False)
        else:
            print(text, flush=True)
