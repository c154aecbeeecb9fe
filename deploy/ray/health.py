"""Decides when a replica should be replaced. Knows no Ray."""

import time
from collections.abc import Callable
from typing import Protocol

from service.errors import NotReadyError

__all__ = ["Health"]

PATIENCE_SECONDS = 60.0
PATIENCE_STARTS = 3.0  # a worker takes as long to come back as it took to come, or somewhat longer


class _Engine(Protocol):
    @property
    def is_ready(self) -> bool: ...


class Health:
    """Tolerates an engine that restarts its worker, but not one that stays without."""

    def __init__(
        self, engine: _Engine, start_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine, self._clock = engine, clock
        self._patience = max(PATIENCE_SECONDS, PATIENCE_STARTS * start_seconds)
        self._last_ready = clock()

    def check(self) -> None:
        """Raise if the engine has not been ready for too long."""
        now = self._clock()
        if self._engine.is_ready:
            self._last_ready = now
        elif now - self._last_ready > self._patience:
            raise NotReadyError(
                f"no worker for {now - self._last_ready:.0f} s; replace the replica"
            )
