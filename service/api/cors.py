"""Cross-origin requests: lets pages of the origins in the settings call the API from a browser."""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from service.api.middleware import error_response
from service.errors import invalid_request

__all__ = ["add_cors"]


class _Cors(CORSMiddleware):
    """Starlette's, with the service's errors."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight; a refusal has the shape of every other."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        reason = bytes(response.body).decode()
        refusal = error_response(invalid_request(reason, response.status_code, "cors"))
        refusal.headers["Vary"] = "Origin"
        return refusal


def add_cors(app: FastAPI, origins: Sequence[str]) -> None:
    """Allow these origins. Call it last: around all else, so that refusals have the headers too."""
    if origins:
        app.add_middleware(
            _Cors,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),  # OpenAI's client sends a dozen of its own
            expose_headers=("X-Request-Id", "Retry-After"),
        )
