"""What every request passes on its way in and out: its id, its token, its size, its log line."""

import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from service.errors import ServiceError
from service.metrics import Metrics
from service.settings import Settings

__all__ = ["Gate"]

_log = logging.getLogger("gts.requests")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_DISCARD_BYTES = 64 * 2**20
_PROBES = frozenset({"/livez", "/readyz"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_OUTCOMES = {
    401: "unauthorized",
    404: "not_found",
    413: "too_large",
    429: "overloaded",
    499: "cancelled",
    503: "unavailable",
    504: "deadline",
}


class Gate:
    """ASGI middleware around the whole app."""

    def __init__(
        self, app: App, settings: Settings, metrics: Metrics, endpoints: frozenset[str]
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._endpoints = endpoints
        self._tokens = [token.encode() for token in settings.tokens]

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name.lower(): value for name, value in scope["headers"]}
        asked = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = asked if _REQUEST_ID.fullmatch(asked) else f"req-{secrets.token_hex(8)}"
        facts: dict[str, Any] = {"request_id": request_id}
        scope.setdefault("state", {})["facts"] = facts
        status, has_begun = 500, False

        async def tell(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            self._check(scope["path"], headers)
            await self._app(scope, self._bounded(receive), tell)
        except ServiceError as error:
            await _discard(receive)
            await _answer(error, tell)
        except Exception:
            _log.exception("unexpected", extra={"request_id": request_id})
            if not has_begun:
                await _answer(ServiceError("something went wrong here; the log says what"), tell)
        finally:
            self._record(scope, facts, 499 if facts.get("is_gone") else status, started)

    def _check(self, path: str, headers: dict[bytes, bytes]) -> None:
        is_open = path in _PROBES or (path == "/metrics" and not self._settings.protect_metrics)
        if self._tokens and not is_open:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            # Every token is compared, so that time tells nothing about which one was close.
            matches = [hmac.compare_digest(given, token) for token in self._tokens]
            if scheme.lower() != b"bearer" or not any(matches):
                raise ServiceError(
                    "a bearer token is needed: Authorization: Bearer TOKEN",
                    status=401,
                    type="invalid_request",
                    code="unauthorized",
                )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._settings.max_body_bytes:
            raise ServiceError(
                self._too_large, status=413, type="invalid_request", code="body_too_large"
            )

    @property
    def _too_large(self) -> str:
        return f"the body has more than {self._settings.max_body_bytes} bytes"

    def _bounded(self, receive: Receive) -> Receive:
        """Count what comes in without a Content-Length."""
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self._settings.max_body_bytes:
                await _discard(receive)
                raise HTTPException(413, self._too_large)  # the one that FastAPI lets through
            return message

        return counted

    def _record(
        self, scope: MutableMapping[str, Any], facts: dict[str, Any], status: int, started: float
    ) -> None:
        asked = scope["path"] if scope["path"] in self._endpoints else "other"
        endpoint = getattr(scope.get("route"), "path", asked)  # no route: the gate has answered
        seconds = time.perf_counter() - started
        outcome = facts.pop("stream_outcome", None) or _outcome(status)
        self._metrics.requests.labels(endpoint, facts.get("model", ""), outcome).inc()
        self._metrics.request_seconds.labels(endpoint).observe(seconds)
        if endpoint in _PROBES or endpoint == "/metrics":
            return
        _log.info(
            "request",
            extra={
                **{key: value for key, value in facts.items() if key != "is_gone"},
                "method": scope["method"],
                "path": endpoint,
                "status": status,
                "outcome": outcome,
                "total_ms": round(seconds * 1e3, 2),
            },
        )


def _outcome(status: int) -> str:
    named = _OUTCOMES.get(status)
    if named is not None:
        return named
    return "ok" if status < 400 else "invalid" if status < 500 else "error"


async def _discard(receive: Receive) -> None:
    """Read what a client still sends, within bounds: one that is cut off never sees the answer."""
    total, is_more = 0, True
    while is_more and total < _DISCARD_BYTES:
        message = await receive()
        total += len(message.get("body", b""))
        is_more = message.get("more_body", False)


async def _answer(error: ServiceError, send: Send) -> None:
    body = json.dumps(error.body()).encode()
    headers = {"content-type": "application/json", **error.headers()}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    encoded.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
