"""Turns Serve's cancellation of a request into the ASGI disconnect message. Knows no Ray.

If it were cancelled, the app could not free the lanes of a client that disconnected, nor count it.
"""

import asyncio

from service.api.middleware import App, Message, Receive, Send

__all__ = ["Disconnects"]


class Disconnects:
    """ASGI middleware inside a replica."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Run the app in a task of its own; when this one is cancelled, send it the disconnect."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        gone = asyncio.Event()
        work = asyncio.ensure_future(self._app(scope, _until(gone, receive), send))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            gone.set()
            await asyncio.wait({work})
            raise


def _until(gone: asyncio.Event, receive: Receive) -> Receive:
    async def heard() -> Message:
        message = asyncio.ensure_future(receive())
        left = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait({message, left}, return_when=asyncio.FIRST_COMPLETED)
            return {"type": "http.disconnect"} if gone.is_set() else await message
        finally:
            message.cancel()
            left.cancel()

    return heard
