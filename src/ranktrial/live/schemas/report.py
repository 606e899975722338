"""What a trial says: the report, its parts, and the trial's history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from ranktrial.charts.live_page import write_report
from ranktrial.interval import Interval
from ranktrial.live.schemas.common import Frozen
from ranktrial.live.schemas.config import TrialConfig
from ranktrial.times import told_time

Status = Literal["pass", "warn", "fail", "unknown"]
Group = Literal["assumptions", "data", "visitors"]
Ranker = Literal["A", "B"]
WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")
GROUPS: dict[Group, str] = {
    "assumptions": "What is assumed of how people click",
    "data": "What arrives from your pages",
    "visitors": "What visitors do and get",
}


class Guardrail(Frozen):
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


class Forecast(Frozen):
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


class LiftTold(Frozen):
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


class Pace(Frozen):
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


class Theta(Frozen):
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


class BandPoint(Frozen):
    """The interval as it was after a number of units, with what is known of position bias now; ``time`` (seconds since 1970)
    is when the last of these units came.
    """

    units: int
    time: float
    delta: float
    low: float
    high: float


class Visitors(Frozen):
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


class Contributor(Frozen):
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


class Reading(Frozen):
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


class Part(Frozen):
    """The result of one version of the configuration."""

    version: int
    config: TrialConfig
    impressions: int
    clicks: int
    delta: float
    interval: Interval
    verdict: str


class Everyone(Frozen):
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


class HistoryEntry(Frozen):
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


class History(Frozen):
    """A trial's history, in order of time."""

    history: tuple[HistoryEntry, ...]


class Report(Frozen):
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
