"""Dispatch: requests go to the route that was found for them, frequent ones without the layers of a framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.direct import DirectRoute
from ranktrial.service.middleware.routing import RouteMatch

Handler = Callable[[Request, Exception], Awaitable[Response]]


class DispatchMiddleware:
    """Calls the handler of a ``DirectRoute``, answers 404 or 405 where there is none, leaves others to the application.

    Args:
        handlers: What answers an exception, by its class or one that it derives from.
    """

    def __init__(self, app: ASGIApp, handlers: Mapping[Any, Handler]) -> None:
        self._app, self._handlers = app, handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        asked: RouteMatch = scope["asked"]
        route = asked.route
        if route is None:
            return await self._answered(_nothing_there, Request(scope, receive), send)
        if not isinstance(route, DirectRoute):
            return await self._app(scope, receive, send)
        scope["path_params"] = asked.parameters
        return await self._answered(route.handler, Request(scope, receive), send)

    async def _answered(self, handle: Callable[[Request], Awaitable[Response]], request: Request, send: Send) -> None:
        try:
            answer = await handle(request)
        except Exception as problem:
            kinds = type(problem).__mro__
            handler = next((self._handlers[kind] for kind in kinds if kind in self._handlers), None)
            if handler is None:
                raise
            answer = await handler(request, problem)
        await answer(request.scope, request.receive, send)


async def _nothing_there(request: Request) -> Response:
    asked: RouteMatch = request.scope["asked"]
    if asked.methods:
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(asked.methods))})
    raise HTTPException(404)
