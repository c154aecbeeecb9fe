"""A Python client of the service, synchronous and asynchronous. Imports no torch.

    from service.client import Client

    with Client("http://127.0.0.1:8000") as client:
        solved = client.solve("Ivan has 88 apples. He finds 10 on the ground. …", budget=32)
        print(solved.answer, solved.confidence)

A call is tried again on 429, 503 and lost connections, as `Retries` allows and no sooner than the
server asks. Its seed is drawn here when absent, so that another try gives the same answer. Every
error is a `ClientError`. This module only sends and sleeps; `wire` decides what, and how long.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Self, Unpack

import httpx
from httpx_sse import EventSource

from service.api.diagnose_schemas import DiagnoseResponse
from service.api.model_schemas import ModelOut, ModelsResponse
from service.api.schemas import RoundEvent, SolveManyResponse, SolveResponse
from service.client.wire import (
    LIST_MODELS,
    Call,
    DiagnoseOptions,
    Peer,
    Retries,
    Shape,
    SolveOptions,
    Tries,
    ask,
    cut_short,
)
from service.errors import ErrorResponse

__all__ = ["AsyncClient", "Client"]

_SECONDS = 600.0  # for an answer, the time in the queue included
_RETRIES = Retries()


class Client:
    """Asks the service and waits. Use it in a `with` block, or close it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_seconds: float = _SECONDS,
        retries: Retries = _RETRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._peer, self._retries = Peer(url, token, timeout_seconds), retries
        self._http = httpx.Client(**self._peer.options, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def solve(self, question: str, **options: Unpack[SolveOptions]) -> SolveResponse:
        """Draw trajectories of a question and vote."""
        return self._call(SolveResponse, ask("/solve", question, options))

    def solve_many(
        self, questions: Sequence[str], **options: Unpack[SolveOptions]
    ) -> list[SolveResponse | ErrorResponse]:
        """Solve several, all with one seed: a result or an error for each, in order."""
        return self._call(SolveManyResponse, ask("/solve", list(questions), options)).results

    def stream(
        self, question: str, **options: Unpack[SolveOptions]
    ) -> Iterator[RoundEvent | SolveResponse]:
        """Yield the candidates after each round, then the response. Once begun it is not retried."""
        response = self._send(ask("/solve", question, options, is_streamed=True))
        try:
            for sent in EventSource(response).iter_sse():
                event = self._peer.event(sent)
                yield event
                if isinstance(event, SolveResponse):
                    return
        except httpx.RequestError as error:
            raise self._peer.loss(error) from error
        finally:
            response.close()
        raise cut_short()

    def diagnose(self, question: str, **options: Unpack[DiagnoseOptions]) -> DiagnoseResponse:
        """Measure how samplers explore a question."""
        return self._call(DiagnoseResponse, ask("/diagnose", question, options))

    def models(self) -> list[ModelOut]:
        """List the models that are served, the default first."""
        return self._call(ModelsResponse, LIST_MODELS).models()

    def _call(self, shape: type[Shape], call: Call) -> Shape:
        return self._peer.read(shape, self._send(call).content)

    def _send(self, call: Call) -> httpx.Response:
        tries = Tries(self._retries)
        while True:
            request = self._http.build_request(**call.request())
            try:
                response = self._http.send(request, stream=call.is_streamed)
                if response.is_success:
                    return response
                response.read()
                failure = self._peer.refusal(response)
            except httpx.RequestError as error:
                failure = self._peer.loss(error)
            time.sleep(tries.wait_after(failure))


class AsyncClient:
    """The same for asyncio. Use it in an `async with` block, or close it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_seconds: float = _SECONDS,
        retries: Retries = _RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._peer, self._retries = Peer(url, token, timeout_seconds), retries
        self._http = httpx.AsyncClient(**self._peer.options, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def solve(self, question: str, **options: Unpack[SolveOptions]) -> SolveResponse:
        """Draw trajectories of a question and vote."""
        return await self._call(SolveResponse, ask("/solve", question, options))

    async def solve_many(
        self, questions: Sequence[str], **options: Unpack[SolveOptions]
    ) -> list[SolveResponse | ErrorResponse]:
        """Solve several, all with one seed: a result or an error for each, in order."""
        call = ask("/solve", list(questions), options)
        return (await self._call(SolveManyResponse, call)).results

    async def stream(
        self, question: str, **options: Unpack[SolveOptions]
    ) -> AsyncIterator[RoundEvent | SolveResponse]:
        """Yield the candidates after each round, then the response. Once begun it is not retried."""
        response = await self._send(ask("/solve", question, options, is_streamed=True))
        try:
            async for sent in EventSource(response).aiter_sse():
                event = self._peer.event(sent)
                yield event
                if isinstance(event, SolveResponse):
                    return
        except httpx.RequestError as error:
            raise self._peer.loss(error) from error
        finally:
            await response.aclose()
        raise cut_short()

    async def diagnose(self, question: str, **options: Unpack[DiagnoseOptions]) -> DiagnoseResponse:
        """Measure how samplers explore a question."""
        return await self._call(DiagnoseResponse, ask("/diagnose", question, options))

    async def models(self) -> list[ModelOut]:
        """List the models that are served, the default first."""
        return (await self._call(ModelsResponse, LIST_MODELS)).models()

    async def _call(self, shape: type[Shape], call: Call) -> Shape:
        return self._peer.read(shape, (await self._send(call)).content)

    async def _send(self, call: Call) -> httpx.Response:
        tries = Tries(self._retries)
        while True:
            request = self._http.build_request(**call.request())
            try:
                response = await self._http.send(request, stream=call.is_streamed)
                if response.is_success:
                    return response
                await response.aread()
                failure = self._peer.refusal(response)
            except httpx.RequestError as error:
                failure = self._peer.loss(error)
            await asyncio.sleep(tries.wait_after(failure))
