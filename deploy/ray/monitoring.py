"""How a replica is watched: its health, its metrics port, the list of all ports. Knows no Ray.

Through Serve's proxy every scrape of /metrics would reach another replica, so each has a port.
"""

import time
from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry, start_http_server

from service.errors import NotReadyError

__all__ = ["Health", "MetricsPort", "Targets"]

PATIENCE_SECONDS = 60.0
PATIENCE_STARTS = 3.0  # a worker takes as long to come back as it took to come, or somewhat longer
FORGET_SECONDS = 30.0  # three health checks: a replica that was killed leaves the list by itself


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


class MetricsPort:
    """Serves a registry at a free port of this node."""

    def __init__(self, registry: CollectorRegistry, host: str) -> None:
        self._server, self._thread = start_http_server(0, host, registry)
        self.address = f"{host}:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Targets:
    """The metrics ports of all replicas. After its restart they are added again within seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_seen: dict[str, float] = {}

    async def add(self, address: str) -> None:
        """Record that a replica is alive."""
        self._last_seen[address] = self._clock()

    async def remove(self, address: str) -> None:
        """Record that a replica has stopped."""
        self._last_seen.pop(address, None)

    async def all(self) -> list[str]:
        """The ports of the replicas that were alive lately."""
        oldest = self._clock() - FORGET_SECONDS
        self._last_seen = {port: seen for port, seen in self._last_seen.items() if seen >= oldest}
        return sorted(self._last_seen)
