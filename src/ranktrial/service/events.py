"""Batches of events: each goes to the trial that its impression's id names.

Four kinds of events are taken, also mixed: our own clicks (``ClickEvent``), carts, orders and other actions (``ActionEvent``),
what a page really displayed (``SeenEvent``), and those of OpenSearch's User Behavior Insights 1.3 as they are, where
``query_id`` is the impression's id. Where a document stood is known from the impression; a position that an event claims is
compared with that and used for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import from_json

from ranktrial.schema import LONGEST_TEXT
from ranktrial.service.problems import Refusal
from ranktrial.service.requests import VALUE, ActionEvent, ClickEvent, SeenEvent
from ranktrial.store.stored import Stored
from ranktrial.times import LATEST, seconds
from ranktrial.trial.clicks import ClickJudge, ClickOutcome, check_event
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


class UBIClick(NamedTuple):
    """A click of UBI: what ``ClickEvent`` has, in a tenth of the time that a model takes to make."""

    id: str
    document: Text | int
    time: float | None
    position: int | None


class ReadEvent(NamedTuple):
    """A valid event, with its own ``event_id`` or one made from it."""

    event_id: str
    event: ClickEvent | UBIClick | ActionEvent | SeenEvent


class BatchResult(NamedTuple):
    """Outcomes of the events of a batch, valid once these rows are on the disk."""

    results: list[Result]
    stored: set[Stored]
    misplaced: int
    strangers: int  # ids of no trial


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
        read = [_taken_from_page(event, public_actions) for event in read]
    results = [
        event if isinstance(event, Result) else Result(event.event_id, ClickOutcome.NOT_OURS.value) for event in read
    ]
    of_trial: dict[Trial | None, list[tuple[int, ReadEvent]]] = {}
    for at, event in enumerate(read):
        if isinstance(event, ReadEvent):
            of_trial.setdefault(trial_of(event.event.id), []).append((at, event))
    batch = BatchResult(results, set(), 0, len(of_trial.pop(None, ())))
    for trial, events in of_trial.items():
        assert trial is not None
        if may(trial):
            batch = batch._replace(misplaced=batch.misplaced + _give(trial.judge, events, batch, public))
        else:
            for at, _ in events:
                results[at] = results[at]._replace(detail=f"the key is not one for trial {trial.name!r}")
    return batch


def _give(judge: ClickJudge, events: Sequence[tuple[int, ReadEvent]], batch: BatchResult, public: bool) -> int:
    """Give events to their trial, and note their outcomes; returns how many clicks stood at another rank than they say."""
    judged = []
    for at, (event_id, event) in events:
        match event:
            case (
                ClickEvent(id=id, document=document, time=time, position=position)
                | UBIClick(id=id, document=document, time=time, position=position)
            ):
                found = judge.click(id, str(document), time, position, public=public)
            case ActionEvent(id=id, document=document, action=action, value=value, event_id=own_id, time=time):
                found, position = judge.event(id, str(document), action, value, own_id, time, public=public), None
            case SeenEvent(id=id, seen=seen):
                outcome = judge.seen(id, [str(document) for document in seen], public=public)
                batch.results[at] = Result(event_id, outcome.value)
                continue
        judged.append((at, event_id, position, found))
    misplaced = 0
    for (at, event_id, position, _), taken in zip(judged, judge.take([found for *_, found in judged])):
        batch.stored.add(taken.stored)
        wrong = taken.rank is not None and position not in (None, taken.rank)
        misplaced += wrong
        detail = f"stood at rank {taken.rank}, the event says {position}" if wrong else None
        batch.results[at] = Result(event_id, taken.outcome.value, detail)
    return misplaced


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


def _taken_from_page(read: ReadEvent | Result, actions: Collection[str]) -> ReadEvent | Result:
    """An event as it is taken from a page: it happens now, for anybody can have made it up."""
    if isinstance(read, Result) or isinstance(read.event, SeenEvent):
        return read
    if isinstance(read.event, ActionEvent) and read.event.action not in actions:
        return Result(read.event_id, IGNORED, f"the service takes no {read.event.action!r} from pages")
    if isinstance(read.event, UBIClick):
        return read._replace(event=read.event._replace(time=None))
    return read._replace(event=read.event.model_copy(update={"time": None}))


def _read(event: Any, actions: Collection[str]) -> ReadEvent | Result:
    """Read an event; the result is an outcome if it is ignored or invalid."""
    if not isinstance(event, dict):
        return Result(None, INVALID, f"an event is an object, this is {type(event).__name__}")
    try:
        if "action_name" in event:
            return _read_ubi(event, actions)
        if "action" in event:
            done = ActionEvent.model_validate(event)
            check_event(done.action, done.value, done.event_id)
            return _known(done, done.id, done.document, done.action)
        if "seen" in event:
            page = SeenEvent.model_validate(event)
            return _known(page, page.id, *page.seen)
        click = ClickEvent.model_validate(event)
        return _known(click, click.id, click.document, click.time)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        return Result(_own_id(event), INVALID, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except ValueError as problem:
        return Result(_own_id(event), INVALID, str(problem))


def _read_ubi(event: dict[str, Any], actions: Collection[str]) -> ReadEvent | Result:
    ubi = UBIEvent.model_validate(event)
    about = ubi.event_attributes or UBIAttributes()
    document = about.object.object_id if about.object else None
    event_id = ubi.event_id or _made_id(ubi.query_id, document, ubi.action_name, event["timestamp"])
    is_click, action = ubi.action_name in actions, UBI_ACTIONS.get(ubi.action_name)
    if not is_click and action is None:
        return Result(event_id, IGNORED)
    if document is None:
        return Result(event_id, INVALID, f"event_attributes.object.object_id: {ubi.action_name} needs it")
    when = seconds("timestamp", ubi.timestamp)
    if when >= LATEST:
        return Result(event_id, INVALID, f"timestamp: {event['timestamp']} is too far in the future")
    if is_click:
        position = about.position.ordinal if about.position else None
        return ReadEvent(event_id, UBIClick(ubi.query_id or "", document, when, position))
    check_event(action, about.value, ubi.event_id)
    done = ActionEvent.model_construct(
        id=ubi.query_id or "", document=document, time=when, event_id=ubi.event_id, action=action, value=about.value
    )
    return ReadEvent(event_id, done)


def _known(event: ClickEvent | ActionEvent | SeenEvent, *told: object) -> ReadEvent:
    return ReadEvent(event.event_id or _made_id(*told), event)


def _own_id(event: dict[str, Any]) -> str | None:
    found = event.get("event_id")
    return found if isinstance(found, str) and len(found) <= LONGEST_TEXT else None


def _made_id(*told: object) -> str:
    return blake2b("\0".join(map(str, told)).encode(), digest_size=12).hexdigest()
