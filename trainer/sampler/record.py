"""What a sampler run leaves while it goes: log lines, checkpoints, and word to whoever watches.

Only the first rank writes; the others' recorders do nothing.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from latent.errors import FormatError
from latent.files import write_json
from trainer.sampler.config import SamplerConfig
from trainer.sampler.resume import RunFolder, RunState
from trainer.sampler.watch import Validation

__all__ = ["Live", "Recorder", "describe", "recording"]

_SHOWN_EVERY = 10


class Live(Protocol):
    """Somebody who watches a run; trainer.runs.progress.Progress is one."""

    def show(self, step: int, metrics: dict[str, float | str]) -> None:
        """Hear of a finished step."""

    def note(self, text: str) -> None:
        """Hear of something worth a line."""


class Recorder:
    """Records nothing, as the ranks that do not write; the base of the one that does."""

    def step(self, state: RunState, measured: dict[str, Any], seconds: float) -> None:
        """Record a finished step."""

    def validation(self, state: RunState) -> None:
        """Record the last validation."""

    def checkpoint(self, state: RunState) -> None:
        """Make everything so far last."""


class _FirstRecorder(Recorder):
    def __init__(self, log: BinaryIO, folder: RunFolder, live: Live | None, budget: int) -> None:
        self._log = log
        self._folder = folder
        self._live = live
        self._budget = budget

    def step(self, state: RunState, measured: dict[str, Any], seconds: float) -> None:
        self._write({"kind": "step", "step": state.step, **measured, "seconds": seconds})
        if self._live is not None and state.step % _SHOWN_EVERY == 0:
            names = ("reward", "mean@1", "pass@N", "uniform_share", "confidence", "kl", "entropy")
            shown = {name: measured[name] for name in names}
            self._live.show(state.step, {**shown, "seconds": seconds})

    def validation(self, state: RunState) -> None:
        last = state.validations[-1]
        self._write({"kind": "validation", **asdict(last), "deterministic": state.deterministic})
        if self._live is not None:
            self._live.note(f"step {last.step}: validation {describe(last, self._budget)}")

    def checkpoint(self, state: RunState) -> None:
        os.fsync(self._log.fileno())
        self._folder.save(state, self._log.tell())

    def _write(self, record: dict[str, Any]) -> None:
        self._log.write(json.dumps(record).encode() + b"\n")
        self._log.flush()


@contextmanager
def recording(
    out: Path,
    log_bytes: int,
    folder: RunFolder,
    live: Live | None,
    config: SamplerConfig,
    *,
    is_first: bool,
) -> Iterator[Recorder]:
    """Open the log, cut back to what its checkpoint knows of."""
    if not is_first:
        yield Recorder()
        return
    path = out / "log.jsonl"
    write_json(out / "config.json", config.to_json())
    with path.open("ab") as log:
        if log.tell() < log_bytes:
            raise FormatError(f"{path} is shorter than its checkpoint says: it was changed")
        log.truncate(log_bytes)
        yield _FirstRecorder(log, folder, live, config.validation_budget)


def describe(validation: Validation, budget: int) -> str:
    """Say a validation in a few words."""
    return (
        f"pass@{budget} {validation.pass_at_n:.4f}, mean@1 {validation.mean_at_1:.4f}, "
        f"confidence {validation.confidence:.4f}, uniform groups {validation.uniform_share:.0%}"
    )
