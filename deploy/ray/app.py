"""gts on Ray Serve: the service's own app is the ingress of every replica, which owns one device.

Serve places, scales, checks and drains the replicas. What a request is, and the worker process that
runs its rounds, stay the service's; so a seed gives the answer that it gives on a single server.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

import ray
from fastapi.responses import JSONResponse
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle

from deploy.ray.disconnects import Disconnects
from deploy.ray.monitoring import Health, MetricsPort, Targets
from latent.errors import InputError
from service.api.app import build_app
from service.api.routes import State
from service.errors import NotReadyError
from service.logs import set_up_logging
from service.models import Catalog
from service.settings import Settings, read_settings

__all__ = ["build", "read_replica_settings"]

_CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
_ELSEWHERE = {
    "host": "Serve listens; set http_options in serve.yaml",
    "port": "Serve listens; set http_options in serve.yaml",
    "protect_metrics": "each replica's metrics port asks for no token; keep it inside the cluster",
}
_STOP_SECONDS = 5.0  # after the drain, for the workers to stop


class Replica:
    """One replica: the app, its engine, and the engine's worker on the device that Ray gave it."""

    def __init__(self, settings: Settings, targets: DeploymentHandle[Any]) -> None:
        set_up_logging(settings.log_format)
        if "threads" not in settings.model_fields_set:
            given = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
            threads = max(1, int(given.get("CPU", 1)))
            settings = settings.model_copy(update={"threads": threads})
        self._app = build_app(settings, Catalog(settings.models, settings.panels))
        self._app.add_api_route("/metrics/targets", self._list_targets, include_in_schema=False)
        self._state: State = self._app.state.gts
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._port = MetricsPort(self._state.metrics.registry, host)
        self._targets = targets

    async def __serve_build_asgi_app__(self) -> Disconnects:
        """Return the app to Serve, once the workers are warm."""
        began = time.monotonic()
        try:
            await self._state.engine.start()
        except NotReadyError as error:
            raise InputError(str(error)) from error
        self._health = Health(self._state.engine, time.monotonic() - began)
        return Disconnects(self._app)

    async def check_health(self) -> None:
        """Raise when this replica should be replaced; Serve asks every few seconds."""
        self._targets.add.remote(self._port.address)  # again each time, in case the call is lost
        self._health.check()

    async def __del__(self) -> None:
        # Serve has drained the replica, and the app's lifespan has stopped the workers.
        self._targets.remove.remote(self._port.address)
        self._port.close()

    async def _list_targets(self) -> JSONResponse:
        return JSONResponse([{"targets": await self._targets.all.remote()}])


Gts = serve.deployment(
    name="Gts",
    max_ongoing_requests=256,  # the engine refuses by lanes; Serve must not queue before it
    max_constructor_retry_count=3,  # a bad setting does not get better
)(serve.ingress()(Replica))
Ports = serve.deployment(name="Targets", num_replicas=1, ray_actor_options={"num_cpus": 0})(Targets)


def build(args: Mapping[str, Any]) -> Application:
    """Make the application from the `args` of serve.yaml: the flags of `gts serve`, by their names."""
    if not os.environ.get(_CALLBACK):
        raise InputError(
            f"{_CALLBACK} is not set; set it to deploy.ray.proxy:middlewares on every node"
        )
    settings = read_replica_settings(args)
    deployment = Gts.options(graceful_shutdown_timeout_s=settings.drain_seconds + _STOP_SECONDS)
    return deployment.bind(settings, Ports.bind())


def read_replica_settings(given: Mapping[str, Any]) -> Settings:
    """Read the service's settings, without those that are Serve's."""
    for name in given:
        if name in _ELSEWHERE:
            raise InputError(f"{name} cannot be set here: {_ELSEWHERE[name]}", param=name)
    return read_settings(given)
