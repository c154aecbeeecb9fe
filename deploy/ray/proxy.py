"""Middleware for Serve's HTTP proxies: gives Serve's own errors the service's JSON shape.

A replica that dies leaves its requests with a bare 500, and Serve's own refusals are plain text. Both
become errors on which a client may try again: with its seed, the second answer is the same.
"""

from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ServiceError

__all__ = ["Answers", "middlewares"]

_OWN_PATHS = "/-/"  # Serve's probes and routes
_ID = b"x-request-id"


def middlewares() -> list[Middleware]:
    """The middlewares, for RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH."""
    return [Middleware(Answers)]


class Answers:
    """ASGI middleware around a proxy of Serve."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the service's answers on, and replace Serve's own errors."""
        if scope["type"] != "http" or scope["path"].startswith(_OWN_PATHS):
            await self._app(scope, receive, send)
            return
        has_begun, refusal = False, None

        async def send_or_replace(message: Message) -> None:
            nonlocal has_begun, refusal
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                if message["status"] >= 400 and headers.get(b"content-type") != b"application/json":
                    refusal = _refusal(message["status"])
                else:
                    has_begun = True
                    message["headers"] = _with_one_id(message["headers"])
            if refusal is None:
                await send(message)

        await self._app(scope, receive, send_or_replace)
        if not has_begun:
            error = refusal or ServiceError(
                "the replica that had this request was lost; ask again",
                status=503,
                type="unavailable",
                code="replica_lost",
                retry_after=1,
            )
            headers = {**error.headers(), **_given_id(scope)}
            response = JSONResponse(error.body(), status_code=error.status, headers=headers)
            await response(scope, receive, send)


def _refusal(status: int) -> ServiceError:
    """The service's error for a refusal by Serve."""
    if status == 404:
        return ServiceError(
            "Not Found", status=404, type="invalid_request", code="no_such_endpoint"
        )
    return ServiceError(
        "no replica can take this request now; try again in a moment",
        status=503,
        type="unavailable",
        code="no_replica",
        retry_after=1,
    )


def _with_one_id(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Keep the first request id, which is the service's; Serve adds its own."""
    ids = [header for header in headers if header[0] == _ID]
    return [header for header in headers if header[0] != _ID] + ids[:1]


def _given_id(scope: Scope) -> dict[str, str]:
    given = dict(scope["headers"]).get(_ID)
    return {} if given is None else {"X-Request-Id": given.decode("latin-1")}
