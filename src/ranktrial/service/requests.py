"""Schemas of HTTP requests to a trial, and of their immediate responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from ranktrial.metrics import ACTION
from ranktrial.schema import LONGEST_LIST, LONGEST_TEXT, Frozen, Id, Moment

# Whatever is given: what is no declared value is "other", and counted, so that nothing is refused for it.
SEGMENT = {"description": "Value of each declared attribute.", "examples": [{"device": "phone"}]}
COVARIATES = {"description": "Value of each declared covariate, a number.", "examples": [{"clicks_last_month": 3}]}


VALUE = {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}], "examples": ["39.90"]}


class RankRequest(Frozen):
    """Two lists of ids for one query."""

    query: str = Field(max_length=LONGEST_TEXT)
    a: list[Id] = Field(max_length=LONGEST_LIST)
    b: list[Id] = Field(max_length=LONGEST_LIST)
    unit: Id | None = None
    offset: int = Field(0, ge=0, le=LONGEST_LIST * 2)
    size: int | None = Field(None, ge=0, le=LONGEST_LIST * 2)
    segment: Annotated[Any, WithJsonSchema(SEGMENT)] = None
    covariates: Annotated[Any, WithJsonSchema(COVARIATES)] = None


class RankResponse(Frozen):
    """Ranking to show, and the id to send back with clicks."""

    id: str
    ranking: list[str]
    fallback: str | None = None


class ClickEvent(Frozen):
    """A click on a document of an impression; ``time`` is now by default, ``event_id`` as you like it.

    ``position`` is where the visitor saw it, from 1: compared with what was drawn, and used for nothing else.
    """

    id: str = Field(max_length=LONGEST_TEXT)
    document: Id
    position: int | None = Field(None, ge=1, strict=True)
    time: Moment | None = None
    event_id: str | None = Field(None, max_length=LONGEST_TEXT)


class ActionEvent(Frozen):
    """An event with an action and a value on a document of an impression, such as an order; ``time`` is now by default.

    ``value`` is a number or a decimal text, negative for what is paid back. ``event_id`` tells events with this action on this
    document apart: the same again replaces nothing, and without one the action counts once.
    """

    id: str = Field(max_length=LONGEST_TEXT)
    document: Id
    action: str = Field(pattern=f"^{ACTION.pattern}$", examples=["order"])
    value: Annotated[Any, WithJsonSchema(VALUE)] = None
    event_id: str | None = Field(None, max_length=LONGEST_TEXT)
    time: Moment | None = None


class SeenEvent(Frozen):
    """Documents that the page of an impression really displayed, from the top; compared with the drawn ranking."""

    id: str = Field(max_length=LONGEST_TEXT)
    seen: list[Id] = Field(max_length=LONGEST_LIST)
    event_id: str | None = Field(None, max_length=LONGEST_TEXT)


class Stop(Frozen):
    """Reason for stopping a trial, and the ranker whose list is shown from then on; A by default."""

    reason: str = Field("", max_length=LONGEST_TEXT)
    show: Literal["A", "B"] | None = None


class NewShare(Frozen):
    """Share of units that are to take part, and why."""

    share: float = Field(ge=0, le=1)
    reason: str = Field("", max_length=LONGEST_TEXT)


class Exclusion(Frozen):
    """A unit to exclude or to include again, by the name it has in ``rank`` or in a report (``#`` and 16 digits), and why."""

    unit: Id
    reason: str = Field(min_length=1, max_length=LONGEST_TEXT)


class Erasure(Frozen):
    """Request to erase a unit, by its name in ``rank`` or in a report, or all impressions before a time (UTC)."""

    unit: Id | None = None
    before: Moment | None = None
    reason: str = Field(min_length=1, max_length=LONGEST_TEXT)


class ErasedRows(Frozen):
    """Numbers of erased rows."""

    impressions: int
    clicks: int
    events: int
