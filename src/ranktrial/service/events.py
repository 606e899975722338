"""Batches of events: each goes to the trial that its impression's id names.

Four kinds of events are taken, also mixed: our own clicks (``ClickEvent``), carts, orders and other actions (``ActionEvent``),
what a page really displayed (``SeenEvent``), and those of OpenSearch's User Behavior Insights 1.3 as they are, where
``query_id`` is the impression's id. Where a document stood is known from the impression; a position that an event claims is
compared with that and used for nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import from_json

from ranktrial.schema import LONGEST_TEXT
from ranktrial.service.problems import Refusal
from ranktrial.service.requests import VALUE, ActionEvent, ClickEvent, SeenEvent
from ranktrial.store.stored import Stored
from ranktrial.times import LATEST, seconds
from ranktrial.trial.clicks import ClickOutcome, check_event
from ranktrial.trial.trial import Trial

CLICK_ACTIONS = frozenset({"click", "click_through"})
UBI_ACTIONS = {"add_to_cart": "cart", "purchase": "order"}
IGNORED, INVALID = "ignored", "invalid"
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]


class UBIObject(BaseModel):
    """Object that was acted on."""

    object_id: Text | int | None = None


class UBIPosition(BaseModel):
    """Position of the object as the page saw it; compared with the drawn rank, never trusted."""

    ordinal: int | None = None


class UBIAttributes(BaseModel):
    """Details of an event."""

    object: UBIObject | None = None
    position: UBIPosition | None = None
    value: Annotated[Any, WithJsonSchema(VALUE)] = None


class UBIEvent(BaseModel):
    """An event of OpenSearch's User Behavior Insights 1.3; whatever else it holds is left alone.

    Attributes:
        action_name: What the user did: clicks, ``add_to_cart`` and ``purchase`` count.
        query_id: The impression's id.
        timestamp: When; without an offset it is UTC.
        event_attributes: The document, and where it stood; ``value`` of a cart or an order is ours.
        event_id: Comes back with the result; made from the event if there is none.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "action_name": "click",
                    "query_id": "AAAAAWkZIDwK5...",
                    "client_id": "browser-8",
                    "timestamp": "2026-11-16T12:00:00Z",
                    "event_attributes": {
                        "object": {"object_id": "sku-3", "object_id_field": "sku"},
                        "position": {"ordinal": 1},
                    },
                }
            ]
        }
    )

    action_name: Text
    timestamp: datetime
    query_id: Text | None = None
    event_attributes: UBIAttributes | None = None
    event_id: Text | None = None


class EventResult(BaseModel):
    """Outcome of one event.

    Attributes:
        event_id: Id of the event, its own or one made from it.
        outcome: counted, waiting, later page, later view, late, early (before its impression), fallback, outside the share,
            void, not measured (no metric counts the action), not shown, not ours; ignored if it is nothing that counts, invalid
            if it cannot be read. Nothing but "counted" and "waiting" can change the estimate. For a page that was seen: as
            drawn, not as drawn, not compared (its impression is not stored), fallback, outside the share, void, not ours.
        detail: Error, if the event is invalid.
    """

    event_id: str | None
    outcome: str
    detail: str | None = None


class EventResults(BaseModel):
    """Outcomes of the events, in their order, and the number of each outcome."""

    results: list[EventResult]
    counts: dict[str, int]


class Result(NamedTuple):
    """Outcome of one event; ``EventResult`` describes it."""

    event_id: str | None
    outcome: str
    detail: str | None = None


class ReadClick(NamedTuple):
    """Contents of a click event."""

    event_id: str
    impression: str
    document: str
    time: float | None
    position: int | None


class ReadAction(NamedTuple):
    """Contents of an event with an action; ``own_id`` is the id that it came with."""

    event_id: str
    impression: str
    document: str
    action: str
    value: Any
    own_id: str | None
    time: float | None


class ReadSeen(NamedTuple):
    """Contents of the event of a page that was seen."""

    event_id: str
    impression: str
    documents: list[str]


Read = ReadClick | ReadAction | ReadSeen | Result


@dataclass(frozen=True)
class BatchResult:
    """Outcomes of the events of a batch, valid once these rows are on the disk."""

    results: list[Result]
    stored: set[Stored]
    misplaced: int
    strangers: int  # ids of no trial

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(result.outcome for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        results = [{"event_id": id, "outcome": outcome, "detail": detail} for id, outcome, detail in self.results]
        return {"results": results, "counts": self.counts}


def take(
    raw: bytes,
    trial_of: Callable[[str], Trial | None],
    may: Callable[[Trial], bool],
    limit: int,
    actions: Collection[str] = CLICK_ACTIONS,
    *,
    public: bool = False,
    public_actions: Collection[str] = (),
) -> BatchResult:
    """Give every event of a batch to the trial of its impression, if whoever sends them may.

    Those that are ``public``, sent without a key, happen now, whatever they say; and have no other action than those.

    Raises Overloaded when the store cannot take them all; what ``trial_of`` raises is raised before any is given away.
    """
    read = [_read(event, actions) for event in _events(raw, limit)]
    if public:
        read = [_now(event, public_actions) for event in read]
    results = [
        event if isinstance(event, Result) else Result(event.event_id, ClickOutcome.NOT_OURS.value) for event in read
    ]
    of_trial: dict[Trial | None, list[int]] = {}
    for at, event in enumerate(read):
        if not isinstance(event, Result):
            of_trial.setdefault(trial_of(event.impression), []).append(at)
    strangers = len(of_trial.pop(None, []))
    stored, misplaced = set(), 0
    for trial, places in of_trial.items():
        assert trial is not None
        if not may(trial):
            for at in places:
                results[at] = results[at]._replace(detail=f"the key is not one for trial {trial.name!r}")
            continue
        clicks = [(at, event) for at in places if isinstance(event := read[at], ReadClick)]
        done = [(at, event) for at in places if isinstance(event := read[at], ReadAction)]
        if done:
            for (at, event), taken in zip(done, trial.events((event[1:] for _, event in done), public=public)):
                stored.add(taken.stored)
                results[at] = Result(event.event_id, taken.outcome.value)
        for at in places:
            if isinstance(page := read[at], ReadSeen):
                results[at] = Result(page.event_id, trial.seen(page.impression, page.documents, public=public).value)
        for (at, event), clicked in zip(clicks, trial.clicks((click[1:] for _, click in clicks), public=public)):
            stored.add(clicked.stored)
            wrong = clicked.rank is not None and event.position not in (None, clicked.rank)
            misplaced += wrong
            detail = f"stood at rank {clicked.rank}, the event says {event.position}" if wrong else None
            results[at] = Result(event.event_id, clicked.outcome.value, detail)
    return BatchResult(results, stored, misplaced, strangers)


def _events(raw: bytes, limit: int) -> list[Any]:
    try:
        events = from_json(raw, allow_inf_nan=False)
    except ValueError as problem:
        raise Refusal(400, f"the body is not JSON: {problem}") from problem
    if isinstance(events, dict):
        return [events]
    if not isinstance(events, list):
        raise Refusal(422, f"the body is a {type(events).__name__}, must be an event or a list of events")
    if len(events) > limit:
        raise Refusal(413, f"there are {len(events):,} events, at most {limit:,} are taken at once")
    return events


def _now(event: Read, actions: Collection[str]) -> Read:
    """An event as it is taken from a page: anybody can have made it up."""
    if isinstance(event, ReadAction) and event.action not in actions:
        return Result(event.event_id, IGNORED, f"the service takes no {event.action!r} from pages")
    return event._replace(time=None) if isinstance(event, ReadClick | ReadAction) else event


def _read(event: Any, actions: Collection[str]) -> Read:
    """Read an event; the result is an outcome if it is ignored or invalid."""
    if not isinstance(event, dict):
        return Result(None, INVALID, f"an event is an object, this is {type(event).__name__}")
    try:
        if "action_name" in event:
            return _read_ubi(event, actions)
        if "action" in event:
            return _read_action(event)
        return _read_seen(event) if "seen" in event else _read_own(event)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        return Result(_own_id(event), INVALID, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except ValueError as problem:
        return Result(_own_id(event), INVALID, str(problem))


def _read_own(event: dict[str, Any]) -> ReadClick:
    click = ClickEvent.model_validate(event)
    event_id = click.event_id or _made_id(f"{click.id}\0{click.document}\0{click.time}")
    return ReadClick(event_id, click.id, str(click.document), click.time, click.position)


def _read_action(event: dict[str, Any]) -> ReadAction:
    done = ActionEvent.model_validate(event)
    event_id = done.event_id or _made_id(f"{done.id}\0{done.document}\0{done.action}")
    check_event(done.action, done.value, done.event_id)
    return ReadAction(event_id, done.id, str(done.document), done.action, done.value, done.event_id, done.time)


def _read_seen(event: dict[str, Any]) -> ReadSeen:
    page = SeenEvent.model_validate(event)
    documents = [str(document) for document in page.seen]
    return ReadSeen(page.event_id or _made_id("\0".join([page.id, *documents])), page.id, documents)


def _read_ubi(event: dict[str, Any], actions: Collection[str]) -> ReadClick | ReadAction | Result:
    ubi = UBIEvent.model_validate(event)
    about = ubi.event_attributes
    document = about.object.object_id if about and about.object else None
    event_id = ubi.event_id or _made_id(f"{ubi.query_id}\0{document}\0{ubi.action_name}\0{event['timestamp']}")
    action = UBI_ACTIONS.get(ubi.action_name)
    if ubi.action_name not in actions and action is None:
        return Result(event_id, IGNORED)
    if document is None:
        return Result(event_id, INVALID, f"event_attributes.object.object_id: {ubi.action_name} needs it")
    when = seconds("timestamp", ubi.timestamp)
    if when >= LATEST:
        return Result(event_id, INVALID, f"timestamp: {event['timestamp']} is too far in the future")
    assert about is not None
    if ubi.action_name not in actions and action is not None:
        check_event(action, about.value, ubi.event_id)
        return ReadAction(event_id, ubi.query_id or "", str(document), action, about.value, ubi.event_id, when)
    position = about.position.ordinal if about.position else None
    return ReadClick(event_id, ubi.query_id or "", str(document), when, position)


def _own_id(event: dict[str, Any]) -> str | None:
    found = event.get("event_id")
    return found if isinstance(found, str) and len(found) <= LONGEST_TEXT else None


def _made_id(event: str) -> str:
    return blake2b(event.encode(), digest_size=12).hexdigest()
