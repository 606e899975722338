"""The HTTP service: one application for a store, with what goes around every request.

``rank`` and small batches of events are worked out on the event loop, in microseconds, and then wait for the disk without
holding it up; large batches and everything rare go to threads, reports and refits to another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection
from math import ceil
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

import ranktrial
from ranktrial.live import warming
from ranktrial.live.api_keys import KeyFile, Keys
from ranktrial.live.report_process import ReportFailed, ReportProcess
from ranktrial.live.reports import QUERY_UNITS
from ranktrial.live.service import events as event_batches
from ranktrial.live.service import problems
from ranktrial.live.service.client_address import checked_networks
from ranktrial.live.service.client_script import mount_client
from ranktrial.live.service.compiling import compile_beside
from ranktrial.live.service.endpoints import add_routes
from ranktrial.live.service.limits import BEACON, BURST, Limits
from ranktrial.live.service.metrics import Metrics
from ranktrial.live.service.middleware.access_log import AccessLogMiddleware
from ranktrial.live.service.middleware.body_timeout import BodyTimeoutMiddleware
from ranktrial.live.service.middleware.cors import CORSMiddleware, checked_origin
from ranktrial.live.service.middleware.direct_routes import DirectRoutesMiddleware
from ranktrial.live.service.middleware.load_shedding import LoadSheddingMiddleware
from ranktrial.live.service.middleware.rate_limit import RateLimiter, RateLimitMiddleware
from ranktrial.live.service.middleware.request_metrics import RequestMetricsMiddleware
from ranktrial.live.service.middleware.same_origin import SameOriginMiddleware
from ranktrial.live.service.middleware.server_errors import ServerErrorMiddleware
from ranktrial.live.service.middleware.trusted_host import TrustedHostMiddleware
from ranktrial.live.service.openapi import documented_schema
from ranktrial.live.service.page import mount_page
from ranktrial.live.service.problems import Refusal
from ranktrial.live.service.trials import Trials
from ranktrial.live.stores import open_store
from ranktrial.live.stores.base import Store, StoreError, StoreUnavailable

STARTING = 30.0  # seconds that a store may take to become available
CHECK_EVERY = 60.0  # seconds between looks for damage
log = logging.getLogger("ranktrial.service")


def create_app(
    store_path: str | Path,
    *,
    keys: Keys | str | Path | None = None,
    limits: Limits | None = None,
    click_actions: Collection[str] = event_batches.CLICK_ACTIONS,
    origins: Collection[str] = (),
    proxies: Collection[str] = (),
    hosts: Collection[str] | None = None,
    log_all: bool = False,
    query_units: int = QUERY_UNITS,
) -> FastAPI:
    """The service for one store, which is opened when the application starts and closed when it ends.

    Args:
        store_path: The SQLite file, or ``postgresql://...``; made if it does not exist.
        keys: Who may do what, or the file that says so; without keys everyone may do everything, so bind to the loopback only.
        limits: Bounds of all there is.
        click_actions: ``action_name`` of UBI events that are clicks.
        origins: Sites whose pages may send events to ``/v1/beacon``, such as ``https://shop.example``; none by default.
        proxies: Addresses or networks of proxies whose ``X-Forwarded-For`` tells the address that is limited there.
        hosts: Names that requests may call this machine by; any by default.
        log_all: Log every request, not only faults and what changes a trial.
        query_units: How many units must have asked a query before a report names it.
    """
    bounds, sites, trusted = limits or Limits(), [checked_origin(one) for one in origins], checked_networks(proxies)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store = await _opened(store_path, bounds.rows)
        app.state.store, app.state.trials = store, Trials(store, ReportProcess(store_path), query_units)
        tasks = [_refresh_forever(app.state.trials), _check_forever(store)]
        if not await asyncio.to_thread(warming.load):
            tasks.append(compile_beside())
        watchers = [asyncio.create_task(task) for task in tasks]
        try:
            yield
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.to_thread(app.state.trials.close)
            await asyncio.to_thread(store.close)  # writes what is queued

    metrics = Metrics(lambda: app.state.store.waiting)
    middleware = [  # the outermost first
        Middleware(RequestMetricsMiddleware, metrics=metrics),
        Middleware(AccessLogMiddleware, log_all=log_all),
        Middleware(CORSMiddleware, path=BEACON, origins=sites),
        Middleware(ServerErrorMiddleware),
        Middleware(
            RateLimitMiddleware, path=BEACON, limiter=RateLimiter(bounds.beacon_rate, ceil(BURST * bounds.beacon_rate)),
            at_once=bounds.beacon_address_in_flight, proxies=trusted,
        ),
        Middleware(
            LoadSheddingMiddleware, in_flight=bounds.in_flight, kept_for_rank=bounds.kept_for_rank,
            beacons=bounds.beacon_in_flight,
        ),
        Middleware(BodyTimeoutMiddleware, seconds=bounds.body_timeout),
    ]  # fmt: skip
    if hosts is not None:
        middleware += [Middleware(TrustedHostMiddleware, hosts=hosts), Middleware(SameOriginMiddleware, but=BEACON)]
    handlers: dict[Any, Any] = {
        Refusal: problems.on_refusal,
        RequestValidationError: problems.on_invalid,
        HTTPException: problems.on_http_error,
        ReportFailed: problems.on_report_failed,
        **dict.fromkeys((StoreError, TimeoutError), problems.on_store_error),
    }
    middleware.append(Middleware(DirectRoutesMiddleware, routes=lambda: app.routes, handlers=handlers))
    app: FastAPI = FastAPI(
        title="ranktrial",
        version=ranktrial.__version__,
        summary="Which of two rankers gets more clicks, on live traffic.",
        lifespan=lifespan,
        middleware=middleware,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=handlers,
    )
    app.state.keys = KeyFile(keys) if isinstance(keys, str | Path) else keys
    app.state.metrics, app.state.limits, app.state.click_actions = metrics, bounds, click_actions
    add_routes(app)
    mount_page(app)
    mount_client(app)
    app.openapi = lambda: documented_schema(app)  # type: ignore[method-assign]
    return app


async def _opened(store_path: str | Path, rows: int) -> Store:
    """The store; waits for a database that is only just starting, as when all is restarted at once."""
    until = time.monotonic() + STARTING
    while True:
        try:
            return await asyncio.to_thread(open_store, store_path, queue_size=rows)
        except StoreUnavailable as problem:
            if time.monotonic() > until:
                raise
            log.warning("waiting for the store", extra={"problem": str(problem)})
            await asyncio.sleep(1.0)


async def _refresh_forever(trials: Trials) -> None:
    while True:
        await asyncio.sleep(1.0)
        with contextlib.suppress(Exception):  # a store that is down for a moment; requests tell
            await asyncio.to_thread(trials.refresh)


async def _check_forever(store: Store) -> None:
    """Look for damage, from the start on; never for more than a small share of the time."""
    while True:
        start = time.perf_counter()
        with contextlib.suppress(Exception):  # noted by the store, which then takes no rows
            await asyncio.to_thread(store.check)
        await asyncio.sleep(max(CHECK_EVERY, 50 * (time.perf_counter() - start)))
