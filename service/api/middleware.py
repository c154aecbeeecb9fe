"""ASGI middleware around every request: its id, its token, its size, its metrics and log line."""

import asyncio
import contextlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from service.errors import ServiceError, invalid_request
from service.metrics import Metrics
from service.page.routes import PAGE, PAGE_STATIC
from service.settings import Settings

__all__ = [
    "DOCS_STATIC",
    "App",
    "Message",
    "Receive",
    "RequestMiddleware",
    "Send",
    "error_response",
]

_log = logging.getLogger("gts.requests")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_LINGER_BYTES, _LINGER_SECONDS = 16 * 2**20, 3.0  # of a refused body, read after the answer
_PROBES = frozenset({"/livez", "/readyz"})
DOCS_STATIC = "/docs-static"
# A browser cannot send a token when it opens a page; these describe the API and reveal nothing else.
_PAGES = frozenset({PAGE, "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"})
_PAGE_FILES = (f"{DOCS_STATIC}/", f"{PAGE_STATIC}/")
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


class RequestMiddleware:
    """Checks a request and lets it through, or answers it without reading its body."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        tokens: Sequence[str],
        metrics: Metrics,
        endpoints: frozenset[str],
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._endpoints = endpoints
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name.lower(): value for name, value in scope["headers"]}
        asked = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = asked if _REQUEST_ID.fullmatch(asked) else f"req-{secrets.token_hex(8)}"
        log_fields: dict[str, Any] = {"request_id": request_id}
        scope.setdefault("state", {})["log_fields"] = log_fields
        status, has_begun, is_refused, body_bytes = 500, False, False, 0

        async def counted() -> Message:
            """Refuse a body that turns out too large: it may come without a Content-Length."""
            nonlocal body_bytes, is_refused
            message = await receive()
            body_bytes += len(message.get("body", b""))
            if body_bytes > self._settings.max_body_bytes:
                is_refused = True
                raise HTTPException(413, self._too_large)  # the one class that FastAPI lets through
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                added = [(b"x-request-id", request_id.encode())]
                added += [(b"connection", b"close")] if is_refused else []
                message["headers"] = [*message.get("headers", ()), *added]
            elif is_refused and not message.get("more_body", False):
                # The server closes the connection after the last message, and a client that still
                # sends could then lose the answer. So the body of the answer goes out first.
                await send({**message, "more_body": True})
                await _discard(receive)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        try:
            self._check(scope["method"], scope["path"], headers)
            await self._app(scope, counted, send_with_id)
        except ServiceError as error:
            is_refused = _has_body(headers)
            await error_response(error)(scope, receive, send_with_id)
        except Exception:
            _log.exception("unexpected", extra={"request_id": request_id})
            if not has_begun:
                unexpected = ServiceError("something went wrong here; the log says what")
                await error_response(unexpected)(scope, receive, send_with_id)
        finally:
            self._record(scope, log_fields, status, time.perf_counter() - started)

    def _check(self, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        is_open = path in _PROBES or path in _PAGES or path.startswith(_PAGE_FILES)
        is_open |= path == "/metrics" and not self._settings.protect_metrics
        # A browser sends no token with a preflight; there is nothing else behind OPTIONS.
        if self._tokens and not is_open and method != "OPTIONS":
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            # Every token is compared, so that the time does not show which one was close.
            matches = [hmac.compare_digest(given, token) for token in self._tokens]
            if scheme.lower() != b"bearer" or not any(matches):
                message = "a bearer token is needed: Authorization: Bearer TOKEN"
                raise invalid_request(message, 401, "unauthorized")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._settings.max_body_bytes:
            raise invalid_request(self._too_large, 413, "body_too_large")

    @property
    def _too_large(self) -> str:
        return f"the body has more than {self._settings.max_body_bytes} bytes"

    def _record(
        self,
        scope: MutableMapping[str, Any],
        log_fields: dict[str, Any],
        status: int,
        seconds: float,
    ) -> None:
        """Count the request and log it; probes and scrapes are only counted."""
        asked = scope["path"] if scope["path"] in self._endpoints else "other"
        endpoint = getattr(scope.get("route"), "path", asked)  # no route if it was refused here
        outcome = log_fields.pop("stream_outcome", None) or _outcome(status)
        self._metrics.requests.labels(endpoint, log_fields.get("model", ""), outcome).inc()
        self._metrics.request_seconds.labels(endpoint).observe(seconds)
        if endpoint in _PROBES or endpoint == "/metrics":
            return
        _log.info(
            "request",
            extra={
                **log_fields,
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


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


async def _discard(receive: Receive) -> None:
    """Read and drop the rest of a refused body, up to a limit of bytes and of time."""
    total, is_more = 0, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while is_more and total < _LINGER_BYTES:
                message = await receive()
                total += len(message.get("body", b""))
                is_more = message.get("more_body", False)


def error_response(error: ServiceError) -> JSONResponse:
    """Make the response of an error."""
    return JSONResponse(error.body(), status_code=error.status, headers=error.headers())
