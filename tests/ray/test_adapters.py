"""The parts of deploy/ray that know no Ray: what stands between Serve and the service's app."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deploy.ray.disconnects import Disconnects
from deploy.ray.monitoring import FORGET_SECONDS, Health, MetricsPort, Targets
from deploy.ray.proxy import Answers
from service.errors import NotReadyError


def ask(app: ASGIApp, path: str = "/solve") -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(Answers(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
            return await client.get(path, headers={"X-Request-Id": "mine"})

    return asyncio.run(send())


def test_a_request_whose_replica_was_lost_may_be_asked_again() -> None:
    async def lost(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    answer = ask(lost)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["x-request-id"] == "mine"
    assert answer.json()["error"]["code"] == "replica_lost"


@pytest.mark.parametrize(
    ("status", "becomes", "code"),
    [(404, 404, "no_such_endpoint"), (408, 503, "no_replica"), (503, 503, "no_replica")],
)
def test_a_refusal_of_serves_own_gets_the_services_shape(
    status: int, becomes: int, code: str
) -> None:
    answer = ask(PlainTextResponse("Serve's words", status_code=status))
    assert answer.status_code == becomes
    assert set(answer.json()["error"]) == {"type", "message", "param", "code"}
    assert answer.json()["error"]["code"] == code


def test_the_services_answers_keep_their_bytes_and_one_id() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_both_ids(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(b"x-request-id", b"ours"), (b"x-request-id", b"Serve's")]
            await send(message)

        response = JSONResponse({"error": "x"}, status_code=429, headers={"Retry-After": "9"})
        await response(scope, receive, with_both_ids)

    answer = ask(app)
    assert (answer.status_code, answer.json()) == (429, {"error": "x"})
    assert answer.headers["retry-after"] == "9"
    assert answer.headers.get_list("x-request-id") == ["ours"]


def test_serves_own_probes_are_left_alone() -> None:
    assert ask(PlainTextResponse("unhealthy", status_code=503), "/-/healthz").text == "unhealthy"


def run_cancelled(app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
    """Cancel a request while the app listens for the next message."""

    async def never() -> Any:
        await asyncio.Event().wait()

    async def nowhere(message: Message) -> None:
        pass

    async def cancel() -> None:
        serving = asyncio.ensure_future(Disconnects(app)({"type": "http"}, never, nowhere))
        await asyncio.sleep(0.01)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(cancel())


def test_an_app_is_told_of_a_cancelled_request_and_may_finish() -> None:
    heard = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append((await receive())["type"])
        await asyncio.sleep(0.01)
        heard.append("finished")

    run_cancelled(app)
    assert heard == ["http.disconnect", "finished"]


@pytest.mark.parametrize(("start_seconds", "patience"), [(2.0, 60.0), (40.0, 120.0)])
def test_a_replica_is_replaced_only_when_its_worker_stays_away(
    start_seconds: float, patience: float
) -> None:
    class Engine:
        is_ready = True

    now, engine = 0.0, Engine()
    health = Health(engine, start_seconds, clock=lambda: now)
    for moment, is_ready in ((1000.0, True), (1001.0, False), (1000.0 + patience, False)):
        now, engine.is_ready = moment, is_ready
        health.check()
    now += 1
    with pytest.raises(NotReadyError, match="no worker for"):
        health.check()
    engine.is_ready = True
    health.check()


def test_a_replica_leaves_the_list_when_it_says_so_or_falls_silent() -> None:
    now = 0.0
    targets = Targets(clock=lambda: now)
    for address in ("b:1", "a:1", "c:1"):
        asyncio.run(targets.add(address))
    assert asyncio.run(targets.all()) == ["a:1", "b:1", "c:1"]
    asyncio.run(targets.remove("a:1"))
    now = FORGET_SECONDS
    asyncio.run(targets.add("b:1"))
    assert asyncio.run(targets.all()) == ["b:1", "c:1"]
    now += 1
    assert asyncio.run(targets.all()) == ["b:1"]


def test_a_metrics_port_serves_its_registry_until_it_is_closed() -> None:
    registry = CollectorRegistry()
    Counter("gts_things", "Things.", registry=registry).inc(3)
    port = MetricsPort(registry, "127.0.0.1")
    assert "gts_things_total 3.0" in httpx.get(f"http://{port.address}/metrics").text
    port.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{port.address}/metrics")
