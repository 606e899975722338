"""Dispatch: requests go to the route that was found for them, frequent ones without the layers of a framework."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranktrial.service.middleware.routing import RouteMatch
from ranktrial.service.problems import Refusal, response
from ranktrial.texts import shown

Handler = Callable[[Request, Exception], Awaitable[Response]]
CLIENT_CLOSED_REQUEST = 499  # as nginx has it; nobody reads the answer but metrics and log
log = logging.getLogger("ranktrial.service")


class DirectRoute(APIRoute):
    """A route that FastAPI documents, and ``DispatchMiddleware`` calls: what its parameters are is known beforehand."""

    @cached_property
    def needs(self) -> list[Callable[[Request], Awaitable[None]]]:
        """Dependencies, which may refuse a request."""
        return [depends.dependency for depends in self.dependencies]  # type: ignore[misc]


class DispatchMiddleware:
    """Calls ``DirectRoute`` routes, answers 404 or 405 where there is no route, and leaves the others to the application.

    An exception without a handler is logged, and answered with 500. A client that did not wait for its answer is no fault.

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
        if route is not None and not isinstance(route, DirectRoute):
            return await self._by_application(scope, receive, send)
        scope["path_params"] = asked.parameters
        request = Request(scope, receive)
        try:
            if route is None:
                raise _nothing_there(asked)
            for need in route.needs:
                await need(request)
            answer: Response = await route.endpoint(request, **asked.parameters)
        except Exception as problem:
            kinds = type(problem).__mro__
            handler = next((self._handlers[kind] for kind in kinds if kind in self._handlers), on_fault)
            answer = await handler(request, problem)
        return await answer(scope, receive, send)

    async def _by_application(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the application answer; where it fails before it has begun to, answer that."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as problem:
            answer = await on_fault(Request(scope), problem)
            if not begun:
                await answer(scope, receive, send)


def _nothing_there(asked: RouteMatch) -> HTTPException:
    if asked.methods:
        return HTTPException(405, headers={"Allow": ", ".join(sorted(asked.methods))})
    return HTTPException(404)


async def on_fault(request: Request, problem: Exception) -> Response:
    """500, and a line in the log with the traceback; not for a client that has gone."""
    if isinstance(problem, ClientDisconnect):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    log.error("fault", exc_info=problem, extra={"path": shown(request.scope["path"], 200)})
    return response(Refusal(500, "a fault of the service; its log says more"))
