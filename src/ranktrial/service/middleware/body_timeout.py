"""Body time-out: a request that does not send its body in time gives up its place."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranktrial.service.problems import Refusal


class BodyTimeoutMiddleware:
    """Answers 408, and closes the connection, where a body has not arrived whole after so many seconds.

    Args:
        seconds: From the end of the request's headers to the end of its body.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        deadline, whole = asyncio.get_running_loop().time() + self._seconds, False

        async def receive_in_time() -> Message:
            nonlocal whole
            if whole:  # what comes now is the end of the connection, whenever that is
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                detail = f"the body did not arrive within {self._seconds:g} s"
                raise Refusal(408, detail, headers={"Connection": "close"}) from None
            whole = not message.get("more_body", False)
            return message

        return await self._app(scope, receive_in_time, send)
