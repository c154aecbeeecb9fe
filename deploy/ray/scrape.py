"""The metrics port of each replica, and the list of all ports for Prometheus.

Through Serve's proxy every scrape of /metrics would reach another replica. Knows no Ray.
"""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server

__all__ = ["MetricsPort", "Targets"]

FORGET_SECONDS = 30.0  # three health checks: a replica that was killed leaves the list by itself


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
