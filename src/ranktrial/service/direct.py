"""Routes whose parameters are known: FastAPI documents them, and has nothing to work out when they are called."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response


class DirectRoute(APIRoute):
    """A route that FastAPI documents, and calls without working out what its parameters are: they are known."""

    @cached_property
    def handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Handler of requests, made once."""
        return self.get_route_handler()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        needed, endpoint = [depends.dependency for depends in self.dependencies], self.endpoint

        async def handle(request: Request) -> Response:
            for need in needed:
                await need(request)  # type: ignore[misc]
            answer: Response = await endpoint(request, **request.path_params)
            return answer

        return handle
