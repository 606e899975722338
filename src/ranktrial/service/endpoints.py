"""The endpoints of the HTTP service. A 2xx means stored: an answer is sent after the commit that it speaks of."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.datastructures import State
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ranktrial.config import TrialConfig
from ranktrial.report.files import file_stem, report_csv
from ranktrial.report.live_page import report_html
from ranktrial.report.schema import History, Report
from ranktrial.service import events as event_batches
from ranktrial.service import problems
from ranktrial.service.api_keys import Scope
from ranktrial.service.auth import Needs, may_use, scopes, who
from ranktrial.service.limits import Limits
from ranktrial.service.middleware.dispatch import DirectRoute
from ranktrial.service.middleware.routing import BEACON, RANK
from ranktrial.service.openapi import body_of
from ranktrial.service.problems import Refusal, documented
from ranktrial.service.requests import (
    ActionEvent,
    ClickEvent,
    ErasedRows,
    Erasure,
    Exclusion,
    NewShare,
    RankRequest,
    RankResponse,
    SeenEvent,
    Stop,
)
from ranktrial.service.trials import NotAtHand, TrialInfo, TrialList, Trials
from ranktrial.store.base import ALL_TRIALS
from ranktrial.store.tallies import NO_TRIAL
from ranktrial.trial import drawing
from ranktrial.trial.showing import NOT_IN_SHARE, Asked
from ranktrial.trial.trial import Trial

ANY = (400, 403, 405, 414, 429, 500, 503)  # answers that guards may give to every request
SMALL_BATCH = 4096  # bytes of events that are taken on the event loop
RANK_REQUEST = TypeAdapter(RankRequest)
TRIAL = "/v1/trials/{name}"
Name = Annotated[str, PathParameter(max_length=200, description="The trial's name.", examples=["shoes"])]
NewName = Annotated[
    str,
    PathParameter(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="The trial's name.", examples=["shoes"]),
]
NewVersion = Annotated[
    bool, Query(alias="new-version", description="Make a new version, where none shows what this configuration shows.")
]
OfVersion = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="Number of a version, the current one by default.")
]


class Fitted(BaseModel):
    """Position bias that is in force now."""

    theta: list[float]
    fitted: bool
    impressions: int
    note: str


class Health(BaseModel):
    """Health of the service."""

    status: str


def add_routes(app: FastAPI, *, open_to_all: bool) -> None:
    """Add all routes; where they are open to all nobody is asked for a key, and only what changes trials is guarded."""
    add = partial(_add_route, app, open_to_all)
    # These two first: routes are tried in their order.
    example = {"query": "red shoes", "a": ["sku-1", "sku-2", "sku-3"], "b": ["sku-3", "sku-1"], "unit": "user-17"}
    add("POST", RANK, rank, "serve", RankResponse, body=body_of(RankRequest, example), kind=DirectRoute)
    shown = {"id": "AAAAAWkZIDwK5...", "document": "sku-3"}
    ordered = {**shown, "action": "order", "value": "39.90", "event_id": "order-4711"}
    events = body_of((ClickEvent, ActionEvent, SeenEvent, event_batches.UBIEvent), [shown, ordered])
    results = event_batches.EventResults
    add("POST", "/v1/events", take_events, "ingest", results, body=events, kind=DirectRoute)
    add("POST", BEACON, take_beacon, None, results, body=events, kind=DirectRoute)
    add("GET", "/v1/trials", list_trials, "read", TrialList)
    add("GET", TRIAL, get_trial, "read", TrialInfo)
    config = body_of(TrialConfig, {"method": "LogOpt()", "k": 10})
    made = {201: {"model": TrialInfo, "description": "A new trial, or a new version of it"}}
    add("PUT", TRIAL, put_trial, "admin", TrialInfo, 409, body=config, responses=made)
    add("POST", f"{TRIAL}/update", update, "admin", Fitted)
    end = body_of(Stop, {"reason": "B is better", "show": "B"}, required=False)
    add("POST", f"{TRIAL}/stop", stop, "admin", TrialInfo, body=end)
    larger = body_of(NewShare, {"share": 0.1, "reason": "a day without complaints"})
    add("POST", f"{TRIAL}/share", share, "admin", TrialInfo, body=larger)
    robot = body_of(Exclusion, {"unit": "user-17", "reason": "a robot: 500 searches an hour"})
    for what, do in (("exclude", exclude), ("include", include)):
        add("POST", f"{TRIAL}/{what}", do, "admin", History, body=robot)
    asked = body_of(Erasure, {"unit": "user-17", "reason": "asked for it, ticket 4711"})
    add("POST", f"{TRIAL}/erase", erase, "admin", History, body=asked)
    add("DELETE", TRIAL, erase_trial, "admin", ErasedRows, 409)
    add("GET", f"{TRIAL}/report", report, "read", Report, responses={304: {"description": "What If-None-Match names"}})
    for file, kind in (("report.html", "text/html"), ("report.csv", "text/csv")):
        content = {200: {"content": {kind: {}}, "description": "The report as a file"}}
        add("GET", f"{TRIAL}/{file}", report_file, "read", Health, responses=content)
    text: dict[int, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}
    add("GET", "/metrics", show_metrics, "read", Health, responses=text, of_all_trials=True)
    health: dict[int | str, dict[str, Any]] = {200: {"model": Health}, **documented(*ANY)}
    for path, endpoint in (("/healthz", healthz), ("/readyz", readyz)):
        app.add_api_route(path, endpoint, methods=["GET"], response_model=None, responses=health)


def _add_route(
    app: FastAPI,
    open_to_all: bool,
    method: str,
    path: str,
    endpoint: Any,
    scope: Scope | None,
    model: type[BaseModel],
    *errors: int,
    body: dict[str, Any] | None = None,
    responses: Mapping[Any, dict[str, Any]] = {},
    kind: type[APIRoute] = APIRoute,
    of_all_trials: bool = False,
) -> None:
    guarded = scope is not None and (scope == "admin" or not open_to_all)
    known = (*ANY, 422, *errors, *((408, 413, 415) if body else ()), *((401, 404) if scope else ()))
    app.router.add_api_route(
        path,
        endpoint,
        methods=[method],
        route_class_override=kind,
        response_model=None,
        dependencies=[Depends(Needs(scope, of_all_trials=of_all_trials))] if scope and guarded else [],
        responses={200: {"model": model}, **documented(*known), **responses},
        openapi_extra={**({"security": [{"key": []}]} if scope else {}), **(body or {})},
    )


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    raw = to_json(content, inf_nan_mode="null")
    return Response(raw, status, headers, "application/json")


async def _trial(request: Request, name: str) -> Trial:
    trials: Trials = request.app.state.trials
    trial = trials.opened.get(name)
    return await asyncio.to_thread(trials.open, name) if trial is None else trial


async def _info(request: Request, name: str) -> Response:
    return _json(await asyncio.to_thread(request.app.state.trials.info, name))


async def list_trials(request: Request) -> Response:
    """All trials that the key is for, each in the current version of its configuration, and what the key may do."""
    every: TrialList = await asyncio.to_thread(request.app.state.trials.all)
    mine = [one for one in every.trials if may_use(request, one.name)]
    return _json(TrialList(trials=mine, scopes=scopes(request)))


async def get_trial(request: Request, name: Name) -> Response:
    """One trial, in the current version of its configuration."""
    await _trial(request, name)
    return await _info(request, name)


async def put_trial(request: Request, name: NewName, new_version: NewVersion = False) -> Response:
    """Make a trial, or change its configuration.

    Where ``method``, ``k``, ``theta``, ``eta``, ``seed``, ``segments`` or ``covariates`` differ from those of the current
    version the answer is 409, unless a new version is asked for, which has draws and a report of its own. The values of an
    earlier version are that version again.
    All other options change in place; those that are not named stay as they are.
    """
    config = await _read(request, TrialConfig)
    create = partial(request.app.state.trials.create, new_version=new_version)
    made, new = await asyncio.to_thread(create, name, config, who(request))
    return _json(made, 201 if new else 200)


async def rank(request: Request, name: Name) -> Response:
    """Draw the ranking to show for a query. Show ``ranking``, and send ``id`` back with clicks.

    If anything goes wrong inside, or the disk takes too long, this is A's list and ``fallback`` says why.
    """
    state = request.app.state
    trial = state.trials.opened.get(name) or await _trial(request, name)
    raw = await _read_body(request)
    try:
        asked = RANK_REQUEST.validate_json(raw)
    except ValidationError as problem:
        raise problems.invalid(problem) from problem
    unit = None if asked.unit is None else str(asked.unit)
    search = Asked(
        asked.query, asked.a, asked.b, unit, asked.offset, asked.size, False, asked.segment, asked.covariates
    )
    shown = await trial.showing.show_on_loop(search, state.limits.timeout)
    if shown.fallback is None:
        state.metrics.searches(name).inc()
    elif shown.fallback == NOT_IN_SHARE:
        state.metrics.outside(name).inc()
    else:
        state.metrics.fallbacks(name, shown.fallback.partition(": ")[0]).inc()  # without the detail after a colon
    told = {"id": shown.id, "ranking": shown.ranking, "fallback": shown.fallback}
    return Response(to_json(told), media_type="application/json")


async def take_events(request: Request) -> Response:
    """Clicks, orders and seen pages, one or many, ours or OpenSearch UBI 1.3 as they are; any order, any number of times.

    The answer has a result for each and means that all of them are dealt with. On 429 and 503 send the whole batch again.
    """
    state = request.app.state
    raw = await _read_body(request)
    return await _take(raw, state, state.limits.batch, lambda trial: may_use(request, trial.name))


async def take_beacon(request: Request) -> Response:
    """Events from pages of the sites that the service was started for, without a key: the signed ids are the authority.

    JSON, also as text/plain, which browsers send without asking first. Events happen when they arrive, whatever they say, and
    are clicks, seen pages, and the actions that the service was started for.
    """
    state = request.app.state
    raw = await _read_body(request, state.limits.beacon_body, or_text=True)
    return await _take(raw, state, state.limits.beacon_batch, lambda _: True, public=True)


async def _take(
    raw: bytes, state: State, limit: int, may: Callable[[Trial], bool], *, public: bool = False
) -> Response:
    """Deal with a batch: on the event loop if that takes microseconds, in a thread otherwise; then wait for the disk."""
    take = partial(
        event_batches.take,
        may=may,
        limit=limit,
        actions=state.click_actions,
        public=public,
        public_actions=state.beacon_actions,
    )
    batch = None
    if len(raw) <= SMALL_BATCH:
        with contextlib.suppress(NotAtHand):
            batch = take(raw, state.trials.at_hand)
    if batch is None:
        batch = await asyncio.to_thread(take, raw, state.trials.of_impression)
    if batch.strangers:
        state.store.tally(ALL_TRIALS, NO_TRIAL, batch.strangers)
    for stored in batch.stored:
        await stored.on_disk(state.limits.write_timeout)
    counts = Counter(result.outcome for result in batch.results)
    for outcome, count in counts.items():
        state.metrics.events(outcome).inc(count)
    state.metrics.misplaced.inc(batch.misplaced)
    return _json({"results": [result._asdict() for result in batch.results], "counts": counts})


async def update(request: Request, name: Name) -> Response:
    """Fit position bias to all clicks so far and refresh the design with it; this also happens by itself."""
    trial = await _trial(request, name)
    bias = await asyncio.to_thread(trial.update, who=who(request))
    return _json({"theta": bias.theta, "fitted": bias.fitted, "impressions": bias.impressions, "note": bias.note})


async def stop(request: Request, name: Name) -> Response:
    """End the trial: ``rank`` returns one ranker's list from now on, A's unless ``show`` says "B"; clicks on what was shown
    still count.
    """
    trial = await _trial(request, name)
    empty = request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers
    asked = Stop(reason="") if empty else await _read(request, Stop)
    await asyncio.to_thread(trial.stop, asked.reason, show=asked.show, who=who(request))
    return await _info(request, name)


async def share(request: Request, name: Name) -> Response:
    """Change the share of units that take part; everybody else sees A's list. A larger share keeps all who took part."""
    trial = await _trial(request, name)
    asked = await _read(request, NewShare)
    await asyncio.to_thread(trial.set_share, asked.share, asked.reason, who=who(request))
    return await _info(request, name)


async def exclude(request: Request, name: Name) -> Response:
    """Exclude a unit from every report from now on; its impressions stay, and reports show the result with them too."""
    return await _excluded(request, name, Trial.exclude)


async def include(request: Request, name: Name) -> Response:
    """Take a unit back in that was excluded."""
    return await _excluded(request, name, Trial.include)


async def erase(request: Request, name: Name) -> Response:
    """Delete a unit's impressions, or all from before a time, with their clicks and events; this cannot be undone."""
    trial = await _trial(request, name)
    asked = await _read(request, Erasure)
    unit = None if asked.unit is None else str(asked.unit)
    return await _history(request, trial, partial(trial.erase, asked.reason, unit=unit, before=asked.before))


async def erase_trial(request: Request, name: Name) -> Response:
    """Delete a stopped trial with all that is stored of it; this cannot be undone."""
    erased = await asyncio.to_thread(request.app.state.trials.erase, name)
    return _json(erased._asdict())


async def _read_body(request: Request, limit: int | None = None, *, or_text: bool = False) -> bytes:
    """Read the body, no further and no longer than allowed. Only JSON, so that no other site's form can post here, or text too.

    A request that does not send its body in time gives up its place: 408, and the connection is closed.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json") and not (or_text and kind == "text/plain"):
        allowed = "application/json or text/plain" if or_text else "application/json"
        raise Refusal(415, f"the body is {kind or 'of no type'}, must be {allowed}")
    limits: Limits = request.app.state.limits
    limit = limits.body if limit is None else limit
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > limit:
        raise _too_large(limit)
    body, more = b"", True
    try:
        async with asyncio.timeout(limits.body_timeout):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                if len(body) > limit:
                    raise _too_large(limit)
                more = message.get("more_body", False)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.body_timeout:g} s"
        raise Refusal(408, detail, headers={"Connection": "close"}) from None
    return body


def _too_large(limit: int) -> Refusal:
    """413. The connection stays open, and what is still to come of the body is thrown away: many clients read no answer before
    they have sent everything, and would see nothing but a reset.
    """
    return Refusal(413, f"the body is larger than {limit:,} bytes")


M = TypeVar("M", bound=BaseModel)


async def _read(request: Request, model: type[M]) -> M:
    """The body of a request, checked."""
    raw = await _read_body(request)
    try:
        return model.model_validate_json(raw)
    except ValidationError as problem:
        raise problems.invalid(problem) from problem
    except (TypeError, RecursionError, MemoryError) as problem:  # a method that is written strangely enough
        raise Refusal(422, f"the configuration cannot be read: {problem}") from problem


async def _excluded(request: Request, name: str, do: Callable[..., object]) -> Response:
    trial = await _trial(request, name)
    asked = await _read(request, Exclusion)
    return await _history(request, trial, partial(do, trial, str(asked.unit), asked.reason))


async def _history(request: Request, trial: Trial, change: Callable[..., object]) -> Response:
    """The history of a trial after a change."""
    try:
        await asyncio.to_thread(change, who=who(request))
    except ValueError as problem:
        raise Refusal(422, str(problem)) from problem
    return _json(History(history=tuple(await asyncio.to_thread(trial.history))))


async def report(request: Request, name: Name, version: OfVersion = None) -> Response:
    """Report on the trial so far, from everything that is stored. Numbers that are not known yet are null."""
    made: Report = await request.app.state.trials.report(name, version)
    raw = to_json(made, inf_nan_mode="null")
    headers = {"ETag": f'"{hashlib.blake2b(raw, digest_size=12).hexdigest()}"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(raw, headers=headers, media_type="application/json")


async def report_file(request: Request, name: Name, version: OfVersion = None) -> Response:
    """The report as one HTML page that needs no network, or its numbers as a table of comma-separated values."""
    made: Report = await request.app.state.trials.report(name, version)
    file = f"{file_stem(made)}-{request.scope['route'].path.rpartition('/')[2]}"
    if file.endswith(".csv"):
        content, kind = await asyncio.to_thread(report_csv, made), "text/csv"
    else:
        content, kind = await asyncio.to_thread(lambda: report_html(made.to_dict(), str(made))), "text/html"
    headers = {"Content-Disposition": f'attachment; filename="{file}"', "Cache-Control": "no-store"}
    return Response(content, headers={**headers, "X-Content-Type-Options": "nosniff"}, media_type=kind)


async def healthz() -> Response:
    """Liveness of the process."""
    return _json({"status": "alive"})


async def readyz(request: Request) -> Response:
    """Readiness: the store took a commit less than a second ago, and ``rank`` is compiled; until then it shows A's lists."""
    if not drawing.warm.is_set():
        raise problems.try_again(503, "rank is being compiled, A's lists are shown until that is done")
    if (problem := await request.app.state.readiness.problem()) is not None:
        raise problems.try_again(503, f"the store does not take rows: {problem}")
    return _json({"status": "ready"})


async def show_metrics(request: Request) -> Response:
    """Counters of the service and gauges of its trials, for Prometheus."""
    request.app.state.trials.measure()
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
