"""A Python client of the service, synchronous and asynchronous. Imports no torch."""

from service.client.client import AsyncClient, Client
from service.client.retries import ClientError, Retries
from service.client.wire import DiagnoseOptions, RoundEvent, SolveOptions, StopOption

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
