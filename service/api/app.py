"""Builds the ASGI application: engine, endpoints, middleware, and the mapping of errors to HTTP."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, cast

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from latent.errors import GtsError
from service.api import openai_routes, routes
from service.api.cors import add_cors
from service.api.middleware import DOCS_STATIC, RequestMiddleware, error_response
from service.api.routes import State
from service.engine.engine import Engine
from service.engine.process import WorkerMain, worker_main
from service.errors import ServiceError, as_service_error, invalid_field, invalid_request
from service.metrics import Metrics
from service.models import Catalog
from service.page.routes import add_page
from service.settings import Settings, read_tokens

__all__ = ["build_app"]

_ROUTERS = (routes.router, openai_routes.router)
_ROUTES = [route for one in _ROUTERS for route in one.routes if isinstance(route, APIRoute)]
_TYPES = frozenset({"str", "int", "float"})
_PLACE = re.compile(r"[a-z_]+|\d+")
_HTTP_CODES = {
    400: "bad_json",
    404: "no_such_endpoint",
    405: "method_not_allowed",
    413: "body_too_large",
}


def build_app(settings: Settings, catalog: Catalog, main: WorkerMain = worker_main) -> FastAPI:
    """Build the app of these settings; its workers start and stop with it."""
    tokens = read_tokens(settings.token_file)
    metrics = Metrics(catalog)
    engine = Engine(settings, catalog, metrics, main)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            await engine.start()
            yield
        finally:
            engine.close()

    # The pages' scripts and styles come from a package, so they work without outside network.
    app = FastAPIOffline(
        title="gts",
        version=version("gts"),
        summary="Latent reasoning with inference-time scaling.",
        lifespan=lifespan,
        static_url=DOCS_STATIC,
    )
    app.state.gts = State(settings, catalog, metrics, engine)
    # For the schema only; the middleware compares the tokens, in constant time.
    bearer = [Security(HTTPBearer(auto_error=False))] if tokens else []
    for router in _ROUTERS:
        app.include_router(router, dependencies=bearer)
    add_page(app)
    for kind, handler in (
        (GtsError, _on_domain_error),
        (ServiceError, _on_service_error),
        (RequestValidationError, _on_bad_body),
        (HTTPException, _on_http_error),
    ):
        app.add_exception_handler(kind, cast(Any, handler))
    endpoints = frozenset(route.path for route in _ROUTES)
    app.add_middleware(
        cast(Any, RequestMiddleware),
        settings=settings,
        tokens=tokens,
        metrics=metrics,
        endpoints=endpoints,
    )
    add_cors(app, settings.cors_origins)
    return app


async def _on_domain_error(_: Request, error: GtsError) -> JSONResponse:
    return error_response(as_service_error(error))


async def _on_service_error(_: Request, error: ServiceError) -> JSONResponse:
    return error_response(error)


async def _on_bad_body(request: Request, error: RequestValidationError) -> JSONResponse:
    """Name the first field that is wrong; malformed JSON is a 400, another Content-Type a 415."""
    first = error.errors()[0]
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if first["loc"] == ("body",) and kind != "application/json" and not kind.endswith("+json"):
        message = f"send JSON with Content-Type: application/json; this has {kind or 'none'}"
        return error_response(invalid_request(message, 415, "not_json"))
    if first["type"] == "json_invalid":
        return error_response(invalid_request("the body is not valid JSON", 400, "bad_json"))
    # Besides fields and positions, a location names the branch of a union that was tried.
    places = [str(p) for p in first["loc"][1:] if str(p) not in _TYPES and _PLACE.fullmatch(str(p))]
    where = f"{'.'.join(places)}: " if places else ""
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "there is no such field; leave it out"
    return error_response(invalid_field(f"{where}{message}", places[0] if places else None))


async def _on_http_error(request: Request, error: HTTPException) -> JSONResponse:
    code, message = _HTTP_CODES.get(error.status_code, "bad_request"), str(error.detail)
    if error.status_code == 404:
        known = ", ".join(f"{' '.join(route.methods or ())} {route.path}" for route in _ROUTES)
        message = (
            f"there is no such endpoint; there are {known}; GET /docs describes them, and GET / is "
            "a page to try them"
        )
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "GET")
        message = f"{request.method} is not possible here; use {allowed}"
    response = error_response(invalid_request(message, error.status_code, code))
    response.headers.update(error.headers or {})
    return response
