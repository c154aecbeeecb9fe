"""Requests that are refused before their body is read."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import service.api.middleware
from service.api.middleware import Message, Receive, RequestMiddleware, Send
from service.metrics import Metrics
from service.models import Catalog
from service.settings import Settings
from tests.service.server import TOKEN, RunningServer


@pytest.mark.parametrize(
    ("length", "token", "status"),
    [(500_000, "wrong", b"401"), (5_000_000, TOKEN, b"413")],
)
def test_a_refused_body_is_not_waited_for(
    narrow: RunningServer, length: int, token: str, status: bytes
) -> None:
    head = (
        f"POST /solve HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", narrow.port), timeout=60) as client:
        client.sendall(head.encode())  # and never the body
        answer = b""
        while piece := client.recv(65536):  # to the end: the server closes the connection
            answer += piece
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in answer.lower()
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request"


def test_a_client_that_sends_its_whole_body_first_reads_the_refusal(narrow: RunningServer) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(80):
            yield b"x" * 100_000

    kind = {"Content-Type": "application/json"}
    with httpx.Client(base_url=narrow.url, timeout=60) as http:
        for content in (b"x" * 8_000_000, chunks()):
            assert http.post("/solve", content=content, headers=kind).status_code == 401


def test_a_refusal_without_a_body_keeps_the_connection(narrow: RunningServer) -> None:
    with httpx.Client(base_url=narrow.url, timeout=60) as http:
        refused = http.get("/v1/models")
    assert refused.status_code == 401
    assert "connection" not in refused.headers


def test_tokens_guard_everything_but_the_probes_and_the_api_pages(narrow: RunningServer) -> None:
    with httpx.Client(base_url=narrow.url, timeout=60) as http:
        assert http.get("/livez").status_code == http.get("/readyz").status_code == 200
        for path in ("/docs", "/redoc", "/openapi.json", "/docs-static/swagger-ui.css"):
            assert http.get(path).status_code == 200
        for path in ("/metrics", "/v1/models"):
            refused = http.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
        for token, code in (
            (TOKEN, 200),
            ("second-token", 200),
            ("third", 401),
            (f"{TOKEN}2", 401),
            ("# rotated weekly", 401),
        ):
            headers = {"Authorization": f"Bearer {token}"}
            assert http.get("/metrics", headers=headers).status_code == code


def test_what_is_read_of_a_refused_body_is_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.api.middleware, "_LINGER_BYTES", 10_000)
    catalog, received, sent = Catalog([str(folder)]), 0, []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise AssertionError("a refused request reaches nobody")

    async def endless() -> Message:
        nonlocal received
        assert sent[1]["body"], "the answer goes out first"
        received += 1000
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    middleware = RequestMiddleware(app, Settings(), ("secret",), Metrics(catalog), frozenset())
    headers = [(b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/solve", "headers": headers}
    asyncio.run(middleware(scope, endless, send))
    assert [message.get("status") for message in sent] == [401, None, None]
    assert received == 10_000
