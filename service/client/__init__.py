"""A Python client of the service, synchronous and asynchronous. Imports no torch."""

from service.api.schemas import RoundEvent
from service.client.client import AsyncClient, Client
from service.client.wire import (
    ClientError,
    DiagnoseOptions,
    Retries,
    SolveOptions,
    StopOption,
)

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "DiagnoseOptions",
    "Retries",
    "RoundEvent",
    "SolveOptions",
    "StopOption",
]
