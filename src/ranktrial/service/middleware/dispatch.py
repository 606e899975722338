"""Dispatch: requests go to the route that was found for them, frequent ones without the layers of a framework."""

from __future__ import annotations

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranktrial.service.middleware.routing import RouteMatch
from ranktrial.service.problems import on_problem


class DirectRoute(APIRoute):
    """A route that FastAPI documents, and ``DispatchMiddleware`` calls: what its parameters are is known beforehand."""


class DispatchMiddleware:
    """Calls ``DirectRoute`` routes, answers 404 or 405 where there is no route, and leaves the others to the application.

    Exceptions become problem documents.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

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
                if not asked.methods:
                    raise HTTPException(404)
                raise HTTPException(405, headers={"Allow": ", ".join(sorted(asked.methods))})
            for needed in route.dependencies:  # may refuse the request
                await needed.dependency(request)  # type: ignore[misc]
            answer: Response = await route.endpoint(request, **asked.parameters)
        except Exception as problem:
            answer = await on_problem(request, problem)
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
            answer = await on_problem(Request(scope), problem)
            if not begun:
                await answer(scope, receive, send)
