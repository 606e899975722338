"""Routing: the purpose of a request, found once and put into its scope, so that no guard looks at the path itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.problems import Refusal, response

BEACON = "/v1/beacon"  # where pages send events to, without a key
RANK = "/v1/trials/{name}/rank"
PROBES = ("/healthz", "/readyz", "/metrics")
LONGEST_PATH = 1_000  # characters
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
AMBIGUOUS = "ambiguous"


class Purpose(Enum):
    """Kind of request that guards tell apart: visitors wait for ``RANK``, anybody may send ``BEACON`` and ``PROBE``.

    Where there is nothing at the path of a request it is for ``NOTHING``.
    """

    RANK = "rank"
    BEACON = "beacon"
    PROBE = "probe"
    OTHER = "other"
    NOTHING = "nothing"


PURPOSES = {RANK: Purpose.RANK, BEACON: Purpose.BEACON, **dict.fromkeys(PROBES, Purpose.PROBE)}


class RouteMatch(NamedTuple):
    """Route of a request.

    Attributes:
        purpose: That of the path, whatever the method.
        route: The route of path and method; None if there is none.
        parameters: Parts of the path, by name.
        methods: Those that the path has routes for; none if there is nothing at that path.
    """

    purpose: Purpose
    route: Route | None = None
    parameters: dict[str, str] = {}  # noqa: RUF012 (never changed)
    methods: Collection[str] = ()


NOTHING = RouteMatch(Purpose.NOTHING)


class Routes:
    """All routes of an application, by path and method."""

    def __init__(self, routes: Iterable[object]) -> None:
        by_path: dict[str, tuple[Purpose, dict[str, Route]]] = {}
        patterns: dict[str, re.Pattern[str]] = {}
        for route in routes:
            if isinstance(route, Route):
                _, by_method = by_path.setdefault(route.path, (PURPOSES.get(route.path, Purpose.OTHER), {}))
                for method in route.methods or ():
                    by_method.setdefault(method, route)
                if route.param_convertors:
                    patterns[route.path] = route.path_regex
        self._fixed = {path: there for path, there in by_path.items() if path not in patterns}
        self._patterns = [(pattern, by_path[path]) for path, pattern in patterns.items()]

    def asked(self, method: str, path: str) -> RouteMatch:
        """Find what a request is for."""
        found, parameters = self._fixed.get(path), {}
        if found is None:
            for pattern, there in self._patterns:
                if (match := pattern.fullmatch(path)) is not None:
                    found, parameters = there, match.groupdict()
                    break
            else:
                return NOTHING
        purpose, by_method = found
        return RouteMatch(purpose, by_method.get(method), parameters, by_method.keys())


class RoutingMiddleware:
    """Notes the route of every request, sends it through the guards for its purpose, and refuses what can be read in two ways.

    That is paths with control characters (400), paths longer than any route's (414), and bodies with two lengths (400): a
    proxy in front may read them in the other way.

    Args:
        routes: Called once, when all routes are there.
        guards: Middleware for one purpose alone, the outermost first.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Callable[[], Iterable[object]],
        guards: Mapping[Purpose, Sequence[Middleware]] = {},
    ) -> None:
        self._app, self._routes = app, Routes(routes())
        self._guarded = dict.fromkeys(Purpose, app)
        for purpose, some in guards.items():
            for guard in reversed(some):
                self._guarded[purpose] = guard.cls(self._guarded[purpose], *guard.args, **guard.kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        path = scope["path"]
        if (root := scope.get("root_path")) and path.startswith(f"{root}/"):
            path = path[len(root) :]
        names = {name for name, _ in scope["headers"]}
        two_lengths = b"transfer-encoding" in names and b"content-length" in names
        if len(path) > LONGEST_PATH or two_lengths or CONTROL.search(path):
            scope["asked"] = NOTHING
            return await response(_refusal(path))(scope, receive, send)
        scope["asked"] = asked = self._routes.asked(scope["method"], path)
        if asked.route is not None:
            scope["route"] = asked.route
        return await self._guarded[asked.purpose](scope, receive, send)


def _refusal(path: str) -> Refusal:
    if len(path) > LONGEST_PATH:
        return Refusal(414, f"the path has {len(path):,} characters, at most {LONGEST_PATH:,} are possible")
    if CONTROL.search(path):
        return Refusal(400, "the path has control characters", kind=AMBIGUOUS)
    detail = "the request has a Content-Length and a Transfer-Encoding: one of them at most"
    return Refusal(400, detail, headers={"Connection": "close"}, kind=AMBIGUOUS)
