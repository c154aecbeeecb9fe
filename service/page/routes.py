"""Serves the playground: its page at `/` and its scripts, styles and icon under `/page`. No API here."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.staticfiles import StaticFiles

__all__ = ["PAGE", "PAGE_STATIC", "add_page"]

PAGE = "/"
PAGE_STATIC = "/page"
_FOLDER = Path(__file__).parent / "static"
# Nothing from elsewhere, nothing inline, and no text that becomes markup.
_HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Asked for again after an update; an unchanged file is a 304.
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """The files of the page, with its headers."""

    def file_response(self, *args: Any, **options: Any) -> Any:
        """Make the response of one file."""
        response = super().file_response(*args, **options)
        response.headers.update(_HEADERS)
        return response


def add_page(app: FastAPI) -> None:
    """Add the page to the application."""

    async def page() -> FileResponse:
        return FileResponse(_FOLDER / "index.html", headers=_HEADERS)

    app.add_api_route(PAGE, page, methods=["GET", "HEAD"], include_in_schema=False)
    app.mount(PAGE_STATIC, _Files(directory=_FOLDER), name="page")
