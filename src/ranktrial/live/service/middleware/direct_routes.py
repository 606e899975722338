"""Direct routes: requests that come all the time are answered without the layers of a framework that others pass through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.live.service.direct import Direct

Handler = Callable[[Request, Exception], Awaitable[Response]]


class DirectRoutesMiddleware:
    """Calls the handler of a ``Direct`` route where path and method are its own, and leaves everything else to the application.

    Args:
        routes: Called once, when all routes are there.
        handlers: What answers an exception, by its class or one that it derives from.
    """

    def __init__(self, app: ASGIApp, routes: Callable[[], Iterable[object]], handlers: Mapping[Any, Handler]) -> None:
        self._app, self._handlers = app, handlers
        self._routes = [
            (method, route.path_regex.fullmatch, route, route.get_route_handler())
            for route in routes()
            if isinstance(route, Direct)
            for method in route.methods or ()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            for method, matching, route, handle in self._routes:
                if scope["method"] == method and (found := matching(scope["path"])):
                    scope["route"], scope["path_params"] = route, found.groupdict()
                    return await self._answered(handle, Request(scope, receive), send)
        return await self._app(scope, receive, send)

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
