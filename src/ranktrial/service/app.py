"""HTTP service: one application for a store, with its middleware.

``rank`` and small batches of events are worked out on the event loop, in microseconds, and then wait for the disk without
holding it up; large batches and everything rare go to threads, reports and refits to another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from math import ceil
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

import ranktrial
from ranktrial.metrics import checked_action
from ranktrial.report.making import QUERY_UNITS
from ranktrial.service import events as event_batches
from ranktrial.service import problems, telemetry
from ranktrial.service.api_keys import KeyFile, Keys
from ranktrial.service.client_address import Network, checked_networks
from ranktrial.service.compiling import compile_beside
from ranktrial.service.endpoints import add_routes
from ranktrial.service.limits import BURST, Limits
from ranktrial.service.metrics import Metrics
from ranktrial.service.middleware.answered import AnsweredMiddleware
from ranktrial.service.middleware.cors import CORSMiddleware, checked_origin
from ranktrial.service.middleware.dispatch import DispatchMiddleware
from ranktrial.service.middleware.load_shedding import LoadSheddingMiddleware
from ranktrial.service.middleware.rate_limit import RateLimiter, RateLimitMiddleware
from ranktrial.service.middleware.routing import Purpose, RoutingMiddleware
from ranktrial.service.middleware.same_origin import SameOriginMiddleware
from ranktrial.service.middleware.trusted_host import TrustedHostMiddleware
from ranktrial.service.openapi import documented_schema
from ranktrial.service.page import mount_files
from ranktrial.service.readiness import Readiness
from ranktrial.service.report_process import ReportProcess
from ranktrial.service.trials import Trials
from ranktrial.store import open_store, when_available
from ranktrial.store.base import StoreUnavailable
from ranktrial.store.protocols import Store
from ranktrial.trial import warming
from ranktrial.trial.webhooks import Webhook

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
    beacon_actions: Collection[str] = (),
    proxies: Collection[str] = (),
    hosts: Collection[str] | None = None,
    log_all: bool = False,
    query_units: int = QUERY_UNITS,
    webhooks: Sequence[Webhook] = (),
) -> FastAPI:
    """The service for one store, which is opened when the application starts and closed when it ends.

    Args:
        store_path: The SQLite file, or ``postgresql://...``; made if it does not exist.
        keys: Who may do what, or the file that says so; without keys everyone may do everything, so bind to the loopback only.
        limits: Bounds of all there is.
        click_actions: ``action_name`` of UBI events that are clicks.
        origins: Sites whose pages may send events to ``/v1/beacon``, such as ``https://shop.example``; none by default.
        beacon_actions: Actions, such as "cart", that these pages may send besides clicks; none by default.
        proxies: Addresses or networks of proxies whose ``X-Forwarded-For`` tells the address that is limited there.
        hosts: Names that requests may call this machine by; any by default.
        log_all: Log every request, not only faults and what changes a trial.
        query_units: How many units must have asked a query before a report names it.
        webhooks: Receivers of messages about all trials.
    """
    shut_down = telemetry.set_up() if telemetry.asked_for() else None
    bounds = limits or Limits()
    sites, trusted = [checked_origin(one) for one in origins], checked_networks(proxies)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opened = partial(open_store, store_path, queue_size=bounds.rows)
        store = await asyncio.to_thread(when_available, store_path, STARTING, opened, log_waiting)
        app.state.store, app.state.trials = store, Trials(store, ReportProcess(store_path), query_units, webhooks)
        app.state.readiness = Readiness(store)
        tasks = [_refresh_forever(app.state.trials), _check_forever(store)]
        if not await asyncio.to_thread(warming.load):
            tasks.append(compile_beside())
        watchers = [asyncio.create_task(task) for task in tasks]
        renew = partial(asyncio.get_running_loop().call_soon_threadsafe, app.state.trials.measure)
        try:
            with contextlib.nullcontext() if shut_down is None else telemetry.sending(metrics, renew):
                yield
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.to_thread(app.state.trials.close)
            await asyncio.to_thread(store.close)  # writes what is queued
            if shut_down is not None:
                await asyncio.to_thread(shut_down)

    metrics = Metrics(lambda: app.state.store.waiting, lambda: app.state.trials.watched())
    app: FastAPI = FastAPI(
        title="ranktrial",
        version=ranktrial.__version__,
        summary="Which of two rankers gets more clicks, on live traffic.",
        lifespan=lifespan,
        middleware=[
            Middleware(AnsweredMiddleware, metrics=metrics, log_all=log_all),
            Middleware(
                RoutingMiddleware,
                routes=lambda: app.routes,
                guards=_guards(bounds, sites, trusted, shut_down is not None),
            ),
            *_middleware(bounds, hosts),
        ],
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=dict.fromkeys((RequestValidationError, HTTPException), problems.on_problem),
        telemetry={"tracing": False, "metrics": False, "logs": False},  # FastAPI's own, beside that of ``telemetry``
    )
    known = app.state.keys = KeyFile(keys) if isinstance(keys, str | Path) else keys
    app.state.metrics, app.state.limits, app.state.click_actions = metrics, bounds, click_actions
    app.state.beacon_actions = frozenset(map(checked_action, beacon_actions))
    add_routes(app, open_to_all=known is None)
    mount_files(app)
    app.openapi = lambda: documented_schema(app)  # type: ignore[method-assign]
    return app


def _guards(
    bounds: Limits, sites: Collection[str], proxies: tuple[Network, ...], traced: bool
) -> dict[Purpose, list[Middleware]]:
    """Middleware for requests of each purpose, the outermost first."""
    of_all = [Middleware(telemetry.TelemetryMiddleware)] if traced else []
    guards = dict.fromkeys(Purpose, of_all)
    guards[Purpose.BEACON] = [
        *of_all,
        Middleware(CORSMiddleware, origins=sites),
        Middleware(
            RateLimitMiddleware, limiter=RateLimiter(bounds.beacon_rate, ceil(BURST * bounds.beacon_rate)),
            at_once=bounds.beacon_address_in_flight, proxies=proxies,
        ),
    ]  # fmt: skip
    return guards


def _middleware(bounds: Limits, hosts: Collection[str] | None) -> list[Middleware]:
    """Middleware for all requests that have been routed, the outermost first."""
    own = [] if hosts is None else [Middleware(TrustedHostMiddleware, hosts=hosts), Middleware(SameOriginMiddleware)]
    return [
        Middleware(
            LoadSheddingMiddleware, in_flight=bounds.in_flight, kept_for_rank=bounds.kept_for_rank,
            beacons=bounds.beacon_in_flight, probes=bounds.probes_in_flight,
        ),
        *own,
        Middleware(DispatchMiddleware),
    ]  # fmt: skip


def log_waiting(problem: StoreUnavailable) -> None:
    """Log that the store is waited for, and why."""
    log.warning("waiting for the store", extra={"problem": str(problem)})


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
