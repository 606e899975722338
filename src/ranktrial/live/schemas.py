"""Schemas of what goes in and out of a trial: configuration, impressions, clicks and the report.

The same models give JSON Schema, OpenAPI and the documents in the store. They are checked at the border (when a trial is
made, when a request arrives over HTTP); ``Trial.rank`` itself never builds one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ranktrial.charts.live_page import write_report
from ranktrial.inference.rules import Rules
from ranktrial.interval import Interval
from ranktrial.methods import Beliefs, LogOpt, Method, parse_method
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.texts import shown
from ranktrial.times import LATEST, seconds, told_time
from ranktrial.users import rank_decay

Status = Literal["pass", "warn", "fail", "unknown"]
Group = Literal["assumptions", "data", "visitors"]
Ranker = Literal["A", "B"]
WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")
GROUPS: dict[Group, str] = {
    "assumptions": "What is assumed of how people click",
    "data": "What arrives from your pages",
    "visitors": "What visitors do and get",
}
LONGEST_TEXT = 1000  # characters of a document's id, and of a query or a unit that comes in over HTTP
LONGEST_NAME = 40  # characters of what people call a ranker
NO_NAMES = "A", "B"
LONGEST_LIST = 1000  # ids of one ranker that come in over HTTP
Id = Annotated[str, Field(max_length=LONGEST_TEXT)] | Annotated[int, Field(ge=-(2**63), lt=2**63, strict=True)]

Moment = Annotated[
    float,
    BeforeValidator(partial(seconds, "it")),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "exclusiveMaximum": LATEST}, {"type": "string", "format": "date-time"}],
            "description": "Seconds since 1970, not milliseconds; or a date and time, UTC unless it says otherwise.",
        }
    ),
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not known (infinite, nan) is None."""
        return {name: _plain(value) for name, value in self.model_dump().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _first_logopt(*, refit: bool = True, floor: float = 0.5, holdback: float = 0.1, **options: Any) -> LogOpt:
    """What ``LogOpt()`` was in a live trial of version 0.1."""
    return LogOpt(
        bias="estimated" if refit else "known",
        relevance="constant",
        estimate="constant",
        loss=None,
        keep=0,
        floor=floor,
        holdback=holdback,
        **options,
    )


class TrialConfig(_Frozen):
    """A method, and what is not a method's business; never changed, a changed one is a new version.

    Attributes:
        method: Decides what is shown and how it is valued, as it is written: ``LogOpt(floor=0.9)``, ``AB(split=0.5)``.
        k: Results that count: the first page.
        level: Of the interval.
        eta: Position bias to start from, 1 / rank^eta,
        theta: or rank by rank. A method with ``bias="known"`` takes it as known.
        smallest: The smallest difference that matters, in clicks per impression.
        tightest_at: The number of units at which the confidence sequence is tightest, as ``plan`` says. By default where it
            finds ``smallest`` soonest, and 10,000 without one.
        click_window: Seconds after an impression in which a click counts.
        view_window: Seconds after an impression in which the same search again is a retry; later it is another view of the
            impression, and clicks on that do not count.
        rules: The most that a unit may do before reports leave it out; none by default.
        seed: For a trial that must repeat exactly (tests, demonstrations): the secret is made from it.
        names: What people call A and B, in reports and on the page. Labels: other ones make no new version.
    """

    model_config = ConfigDict(allow_inf_nan=False)  # what is not finite could not be read back

    method: str = "LogOpt()"
    k: int = Field(10, ge=1, le=MOST_RANKS)
    level: float = Field(0.95, gt=0.5, lt=1)
    eta: float = Field(1.0, ge=0, le=100)
    theta: tuple[float, ...] | None = None
    smallest: float | None = Field(None, gt=0)
    tightest_at: float | None = Field(None, ge=1)
    click_window: float = Field(86_400.0, gt=0)
    view_window: float = Field(30.0, ge=0)
    rules: Rules = Rules()
    seed: int | None = Field(None, ge=0)
    names: tuple[str, str] = NO_NAMES

    @field_validator("names")
    @classmethod
    def _name(cls, names: tuple[str, str]) -> tuple[str, str]:
        a, b = names
        for one in names:
            if not one or one != shown(one, LONGEST_NAME):
                limit = f"must have 1 to {LONGEST_NAME} characters, none of them a control character"
                raise ValueError(f"a name is {one!r}, {limit} or a space at either end")
        if a == b or a == "B" or b == "A":
            raise ValueError(f"names are {a!r} for A and {b!r} for B: nobody could tell which is which")
        return names

    @field_validator("method", mode="before")
    @classmethod
    def _spell(cls, method: str | Method) -> str:
        parsed = parse_method(method) if isinstance(method, str) else method
        if not isinstance(parsed, Method) or not parsed.runs_live:
            raise ValueError(f"method is {parsed}, which cannot run live: LogOpt() and AB() can")
        return str(parsed)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.theta is not None:
            if len(self.theta) != self.k:
                raise ValueError(f"theta has {len(self.theta)} ranks, must have k = {self.k}")
            if not all(0 < value <= 1 for value in self.theta) or self.theta[0] != 1:
                raise ValueError(f"theta is {self.theta}, must start with 1 and stay above 0 and at most 1")
        return self

    @classmethod
    def stored(cls, text: str) -> TrialConfig:
        """As it stands in a store. Before version 0.2 options that are now a method's stood beside it, and ``unit`` chose
        between errors over impressions and over units: they are over units now.
        """
        told = json.loads(text)
        told.pop("unit", None)
        options = {name: told.pop(name) for name in ("floor", "holdback", "schedule", "refit") if name in told}
        if options and told["method"].startswith("LogOpt("):
            told["method"] = str(_first_logopt(**options))
        elif options:  # an A/B test was always adjusted by query then
            told["method"] = str(replace(parse_method(told["method"]), estimate="adjusted"))  # type: ignore[call-arg]
        return cls.model_validate(told)

    def to_store(self) -> str:
        """The text that is stored: a later release may have other defaults, a trial that has begun keeps its own."""
        return self.model_copy(update={"method": self.comparison.spelled_out}).model_dump_json()

    def same_but_for_names(self, other: TrialConfig) -> bool:
        """Whether the other configuration would show and count the same."""
        return self.model_copy(update={"names": other.names}) == other

    @property
    def labels(self) -> tuple[str, str]:
        """A and B with their names, where they have some: ``A (current)``.

        >>> TrialConfig(names=("current", "with popularity")).labels, TrialConfig().labels
        (('A (current)', 'B (with popularity)'), ('A', 'B'))
        """
        a, b = (letter if name == letter else f"{letter} ({name})" for letter, name in zip(NO_NAMES, self.names))
        return a, b

    @property
    def comparison(self) -> Method:
        """The method itself."""
        return _parsed(self.method)

    @property
    def first_beliefs(self) -> Beliefs:
        """What is believed of users before any click."""
        theta = rank_decay(self.k, self.eta) if self.theta is None else np.array(self.theta, np.float64)
        return Beliefs(theta, note="assumed at the start")


_parsed = cache(parse_method)


class RankRequest(_Frozen):
    """Two lists of ids for one query."""

    query: str = Field(max_length=LONGEST_TEXT)
    a: list[Id] = Field(max_length=LONGEST_LIST)
    b: list[Id] = Field(max_length=LONGEST_LIST)
    unit: Id | None = None
    offset: int = Field(0, ge=0, le=LONGEST_LIST * 2)
    size: int | None = Field(None, ge=0, le=LONGEST_LIST * 2)


class RankResponse(_Frozen):
    """What to show."""

    id: str
    ranking: list[str]
    fallback: str | None = None


class ClickEvent(_Frozen):
    """A click on a document of an impression; ``time`` is now by default, ``event_id`` as you like it.

    ``position`` is where the visitor saw it, from 1: compared with what was drawn, and used for nothing else.
    """

    id: str = Field(max_length=LONGEST_TEXT)
    document: Id
    position: int | None = Field(None, ge=1, strict=True)
    time: Moment | None = None
    event_id: str | None = Field(None, max_length=LONGEST_TEXT)


class SeenEvent(_Frozen):
    """What the page of an impression really displayed, from the top: compared with what was drawn."""

    id: str = Field(max_length=LONGEST_TEXT)
    seen: list[Id] = Field(max_length=LONGEST_LIST)
    event_id: str | None = Field(None, max_length=LONGEST_TEXT)


class Guardrail(_Frozen):
    """One thing that must hold for the numbers to be trusted.

    Attributes:
        name: What is checked.
        status: pass, warn or fail; unknown where it cannot be checked.
        value: The number it rests on; nan where there is none.
        text: What was found, in a sentence; where it is unknown, what it would take.
        group: What it is about: "assumptions" on how people click, "data" that arrive, "visitors".
        title: The statement that is checked, in plain words.
        cause: What usually makes it warn or fail, where it does.
        remedy: What to do then.
    """

    name: str
    status: Status
    value: float
    text: str
    group: Group = "data"
    title: str = ""
    cause: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        told = f"{self.title} ({self.name})" if self.title else self.name
        return " ".join(filter(None, [f"{told}: {self.text}", self.cause, self.remedy]))


class Forecast(_Frozen):
    """When there will be a decision.

    Attributes:
        target: The half-width that decides: the estimate itself, or the smallest difference that matters.
        impressions: How many it takes from the start; infinite if never.
        remaining: How many are still to come.
        days: How long that takes at the rate so far; nan if there is no rate yet.
        text: In a sentence.
    """

    target: float
    impressions: float
    remaining: float
    days: float
    text: str


class LiftTold(_Frozen):
    """How many more clicks one ranker gets than the other, as shares and a day.

    Attributes:
        of: Whose clicks are told: the winner's, or B's as long as there is none.
        share: More clicks, as a share of the other's; negative if they are fewer. nan where it cannot be told.
        interval: Of that, as sure as the interval of the difference.
        clicks_a_day: More clicks a day on as many searches as the trial has; nan before it has run for a day.
        daily: The interval of that.
        text: In a sentence; "" where there is nothing to say.
    """

    of: Ranker
    share: float
    interval: Interval
    clicks_a_day: float
    daily: Interval
    text: str


class Pace(_Frozen):
    """When impressions came; all is nan before the first.

    Attributes:
        began: Time of the first, in seconds since 1970.
        latest: Time of the last.
        days: Between the two.
        impressions_a_day: In that time; nan before it is a day, as an hour says little of one.
        text: In a sentence.
    """

    began: float
    latest: float
    days: float
    impressions_a_day: float
    text: str


class Theta(_Frozen):
    """Position bias behind the numbers.

    Attributes:
        theta: Examination probability of each rank, relative to the first.
        standard_error: By a jackknife over units; 0 where it is assumed.
        fitted: From this trial's clicks, or assumed.
        note: How, or why not.
        inflation: How much wider the interval is because theta is estimated.
    """

    theta: tuple[float, ...]
    standard_error: tuple[float, ...]
    fitted: bool
    note: str
    inflation: float


class BandPoint(_Frozen):
    """The interval as it was after a number of units, with what is known of position bias now; ``time`` (seconds since 1970)
    is when the last of these units came.
    """

    units: int
    time: float
    delta: float
    low: float
    high: float


class Visitors(_Frozen):
    """Clicks that a trial cost its visitors, or gave them, as shares.

    Attributes:
        gain: Of an A/B test's clicks, more than it would have got.
        interval: Of that.
        better: Of the clicks of the better ranker for everybody, more than that would have got.
        text: The same in words.
    """

    gain: float
    interval: Interval
    better: float
    text: str


class Contributor(_Frozen):
    """A query's share of the estimate: contributions of all queries add up to delta.

    Attributes:
        query: What was asked; where few have asked it, only that.
        label: The same as it is shown: cut where it is long, without marks that turn the direction of text.
        impressions: Of it.
        clicks: On them.
        contribution: By how much it moved the estimate.
        rare: How many queries, without their names, this row is of; 0 for a query by its name.
    """

    query: str
    label: str
    impressions: int
    clicks: int
    contribution: float
    rare: int = 0


class Reading(_Frozen):
    """A rung of the ladder of assumptions: what the log says with these.

    Attributes:
        name: "A/B", "direct", "affine" or "position-based".
        assumes: In a few words.
        delta: What it says; nan if it cannot say anything yet.
        interval: At any time; all readings hold together at the level of the configuration.
        contradicted: Whether a reading with fewer assumptions contradicts it.
        hidden: A bias of this size from how people click could be there unseen.
        text: What it waits for, or what tests it.
    """

    name: str
    assumes: str
    delta: float
    interval: Interval
    contradicted: bool
    hidden: float
    text: str


class Part(_Frozen):
    """The result of one version of the configuration."""

    version: int
    config: TrialConfig
    impressions: int
    clicks: int
    delta: float
    interval: Interval
    verdict: str


class Everyone(_Frozen):
    """What rules and exclusions left out of a report, and the result with everyone in.

    Attributes:
        units: How many units were left out, by why.
        without: Impressions that were left out with them.
        delta: With everyone in.
        interval: The same.
        verdict: The same.
        text: All this in a sentence.
    """

    units: dict[str, int]
    without: int
    delta: float
    interval: Interval
    verdict: str
    text: str


class HistoryEntry(_Frozen):
    """Something that was done to a trial.

    Attributes:
        time: Seconds since 1970.
        what: "version" (a new one), "renamed", "updated" (position bias, and with it the design), "excluded", "included",
            "erased" or "stopped".
        unit: That was excluded or included, as reports name it: units are stored as keyed hashes.
        detail: What exactly; of what was erased how much, not whose.
        reason: Why, where somebody said so.
        who: The API key that it was done with, or the user of the process; "" where that was not kept yet.
    """

    time: float
    what: Literal["version", "renamed", "updated", "excluded", "included", "erased", "stopped"]
    unit: str | None = None
    detail: str = ""
    reason: str = ""
    who: str = ""

    def __str__(self) -> str:
        what = " ".join(filter(None, [self.what, self.unit, self.detail]))
        who = f" by {self.who}" if self.who else ""
        return f"{told_time(self.time)}: {what}{who}{f': {self.reason}' if self.reason else ''}"


class Stop(_Frozen):
    """Why a trial is stopped; nobody has to say so."""

    reason: str = Field("", max_length=LONGEST_TEXT)


class Exclusion(_Frozen):
    """A unit to exclude or to include again, by the name it has in ``rank`` or in a report (``#`` and 16 digits), and why."""

    unit: Id
    reason: str = Field(min_length=1, max_length=LONGEST_TEXT)


class Erasure(_Frozen):
    """What to erase: a unit, by the name it has in ``rank`` or in a report, or all impressions before a time (UTC); and why."""

    unit: Id | None = None
    before: Moment | None = None
    reason: str = Field(min_length=1, max_length=LONGEST_TEXT)


class ErasedRows(_Frozen):
    """How much was erased."""

    impressions: int
    clicks: int


class History(_Frozen):
    """A trial's history, in order of time."""

    history: tuple[HistoryEntry, ...]


class Report(_Frozen):
    """What a trial says.

    Attributes:
        trial: Its name.
        version: The version of its configuration that the numbers are about.
        delta: CTR(A) - CTR(B) in clicks per impression; nan before the first impression.
        interval: Holds at all times at once, at the level of the configuration.
        verdict: One sentence: the headline and what it rests on.
        headline: What a hurried reader needs.
        details: The rest of the verdict.
        winner: Who gets more clicks, where that is decided and may be trusted; None otherwise.
        trusted: Whether no guardrail fails that the numbers rest on.
        lift: The difference in per cent and in clicks a day.
        pace: When it began and how fast it goes.
        reading: The reading that delta, interval and verdict are of; None if none can say anything yet.
        readings: All of them, those with fewest assumptions first.
        impressions: That the estimate rests on.
        units: That made them.
        clicks: That count.
        ctr: Clicks per impression on what was shown.
        forecast: When there will be a decision.
        theta: Position bias.
        band: The interval over time.
        contributors: Queries that moved the estimate most.
        guardrails: What must hold for all this to be trusted.
        tallies: What was left out, and how often.
        parts: Every version by itself; they are never pooled.
        stopped: Whether the trial has ended.
        visitors: Clicks that the trial cost or gave; None where that cannot be told.
        everyone: The result without rules and exclusions, where they left something out.
        history: Who changed what, when and why.
    """

    trial: str
    version: int
    delta: float
    interval: Interval
    level: float
    verdict: str
    headline: str
    details: str
    winner: Ranker | None
    trusted: bool
    lift: LiftTold
    pace: Pace
    reading: str | None
    readings: tuple[Reading, ...]
    impressions: int
    units: int
    clicks: int
    ctr: float
    forecast: Forecast
    theta: Theta
    band: tuple[BandPoint, ...]
    contributors: tuple[Contributor, ...]
    guardrails: tuple[Guardrail, ...]
    tallies: dict[str, int]
    parts: tuple[Part, ...]
    stopped: bool
    visitors: Visitors | None = None
    everyone: Everyone | None = None
    history: tuple[HistoryEntry, ...] = ()

    def to_html(self, file: str | Path) -> Path:
        """Write the report as one HTML file that needs no network."""
        return write_report(self.to_dict(), str(self), file)

    def to_csv(self, file: str | Path) -> Path:
        """Write all numbers as one table of comma-separated values."""
        from ranktrial.live.report_files import report_csv

        path = Path(file)
        path.write_text(report_csv(self), encoding="utf-8", newline="")
        return path

    @property
    def before(self) -> str:
        """What earlier versions had, in a few words; nothing if there are none."""
        earlier = [part for part in self.parts if part.version < self.version]
        return ", ".join(f"version {part.version} had {part.impressions:,} impressions" for part in earlier)

    @property
    def config(self) -> TrialConfig:
        """Of the version that the numbers are about."""
        return next(part.config for part in self.parts if part.version == self.version)

    @property
    def sign(self) -> int:
        """What turns A - B into numbers as they are told: of the winner, or of B as long as there is none."""
        return 1 if self.winner == "A" else -1

    @property
    def about(self) -> str:
        """The trial in a line."""
        a, b = self.config.labels
        state = "stopped" if self.stopped else "running"
        version = "; ".join(filter(None, [f"version {self.version}", state, self.before]))
        return f"{self.trial} ({version}): {a} against {b}"

    @property
    def lines(self) -> list[str]:
        """What it says below the verdict, a line each: lift, pace, forecast, visitors, what was left out on purpose."""
        told = (self.lift, self.pace, self.forecast, self.visitors, self.everyone)
        return [one.text for one in told if one is not None and one.text]

    def grouped(self) -> Iterator[tuple[str, list[Guardrail], list[Guardrail]]]:
        """Guardrails by what they are about: a heading, those that do not pass, the worst first, and those that pass."""
        for group, heading in GROUPS.items():
            some = [check for check in self.guardrails if check.group == group]
            open_ = sorted((c for c in some if c.status != "pass"), key=lambda check: WORST_FIRST.index(check.status))
            yield heading, open_, [check for check in some if check.status == "pass"]

    def __str__(self) -> str:
        rows = []
        for heading, open_, passing in self.grouped():
            rows += ["", heading, *(f"  {check.status:7}  {check}" for check in open_)]
            rows += [f"  pass     {', '.join(check.name for check in passing)}"] if passing else []
        minus = "A - B" if self.sign > 0 else "B - A"
        readings = [
            f"  {one.name:14}  {minus}  {self.sign * one.delta:+.4f}  {turned(one.interval, self.sign)}"
            for one in self.readings
            if len(self.readings) > 1 and np.isfinite(one.interval.low)
        ]
        history = ["", "Who changed what", *(f"  {entry}" for entry in self.history)] if self.history else []
        return "\n".join([self.about, self.verdict, *self.lines, *readings, *rows, *history])


def turned(interval: Interval, sign: int) -> Interval:
    """The interval of a difference, or of the difference the other way round."""
    return interval if sign > 0 else Interval(-interval.high, -interval.low)
