"""Where Prometheus finds each replica: a metrics port of its own, and the list of all of them.

Through Serve's proxy, /metrics would be another replica's at every scrape. Knows no Ray.
"""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server

__all__ = ["MetricsPort", "Targets"]

FORGET_SECONDS = 30.0  # three health checks: a replica that was killed leaves the list by itself


class MetricsPort:
    """A registry at a free port of this node."""

    def __init__(self, registry: CollectorRegistry, host: str) -> None:
        self._server, self._thread = start_http_server(0, host, registry)
        self.address = f"{host}:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Targets:
    """The metrics ports of all replicas. One that restarts is told them again within seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}

    async def tell(self, address: str) -> None:
        """Note that a replica lives."""
        self._told[address] = self._clock()

    async def forget(self, address: str) -> None:
        """Note that a replica has stopped."""
        self._told.pop(address, None)

    async def all(self) -> list[str]:
        """Give the ports of those who have been heard of lately."""
        oldest = self._clock() - FORGET_SECONDS
        self._told = {address: told for address, told in self._told.items() if told >= oldest}
        return sorted(self._told)
