"""Shows how a run goes: a live bar at a terminal, plain lines in a log."""

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """A bar or lines, by what standard output is."""

    def __init__(self, total: int, done: int, description: str = "training") -> None:
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
        """Start the bar."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the bar."""
        self._bar.stop()

    def show(self, step: int, metrics: Mapping[str, float | str]) -> None:
        """Show the state after a step."""
        text = " ".join(
            f"{name}={value if isinstance(value, str) else format(value, '.4g')}"
            for name, value in metrics.items()
        )
        self._bar.update(self._task, completed=step, description=text)
        if not self._console.is_terminal:
            print(f"{step}/{self._total} {text}", flush=True)

    def note(self, text: str) -> None:
        """Leave a line that stays."""
        if self._console.is_terminal:
            self._bar.console.print(text, highlight=False)
        else:
            print(text, flush=True)
