"""Schemas of the report, its parts, and the trial's history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import computed_field

from ranktrial import frames, notebook
from ranktrial.analysis.analyse import BandPoint, Theta
from ranktrial.analysis.answers import EstimateRow
from ranktrial.analysis.calibration import Discrepancy
from ranktrial.analysis.decision import Decision, Ranker
from ranktrial.analysis.guardrails.status import GROUPS, WORST_FIRST, Guardrail
from ranktrial.analysis.metrics import MetricAnswer
from ranktrial.analysis.segments import AttributeTest, SegmentAnswer, answer_lines, table_heading
from ranktrial.analysis.verdict import Verdict, headline
from ranktrial.config import TrialConfig
from ranktrial.interval import Interval
from ranktrial.report.files import report_csv
from ranktrial.report.harm import Guard
from ranktrial.report.live_page import write_report
from ranktrial.schema import Frozen
from ranktrial.texts import text_table
from ranktrial.times import time_text


class Pace(Frozen):
    """Times of searches and clicks; all is nan before the first search.

    Attributes:
        began: Time of the first search, in seconds since 1970.
        latest: Time of the last search.
        latest_click: Time of the last search that was clicked.
        days: Between the first search and the last.
        searches_a_day: Searches a day in that time; nan before it is a day, as an hour says little of one.
        longest_pause: Longest time between two searches, in seconds.
        text: When it began and how fast it goes, in a sentence.
        warning: A sentence if searches or clicks seem to have stopped; "" otherwise.
    """

    began: float
    latest: float
    latest_click: float
    days: float
    searches_a_day: float
    longest_pause: float
    text: str
    warning: str = ""


class Visitors(Frozen):
    """Clicks that a trial cost its visitors, or gave them, as shares.

    Attributes:
        gain: Of an A/B test's clicks, more than it would have got.
        interval: Of that.
        better: Of the clicks of the winner for everybody, more than that would have got; nan without a winner.
        text: The same in words.
    """

    gain: float
    interval: Interval
    better: float
    text: str


class Contributor(Frozen):
    """A query's share of the estimate: contributions of all queries add up to its difference of B against A.

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


class Segmentation(Frozen):
    """Answers by segment: for each value of the attributes that were declared.

    Attributes:
        answers: A row for each value that has searches, by attribute.
        tests: Whether the values of an attribute differ at all.
        rate: False discovery rate of all segments together.
        theta_by: Attribute by which position bias surely differs, each value having its own; "" if it is one for all.
        thetas: Position bias of each value of that attribute.
        text: What that says, in sentences.
    """

    answers: tuple[SegmentAnswer, ...]
    tests: tuple[AttributeTest, ...]
    rate: float
    theta_by: str
    thetas: dict[str, tuple[float, ...]]
    text: str

    @property
    def lines(self) -> list[str]:
        """A table with a row for each segment, and the sentences, as text."""
        rows = answer_lines(self.answers)
        return [*rows, f"  {self.text}"] if rows else []


METRIC_HEADS = "metric", "role", "lift", "per search, B - A", "searches", "finding"


class Part(Frozen):
    """The result of one version of the configuration."""

    version: int
    config: TrialConfig
    impressions: int
    clicks: int
    difference: float
    interval: Interval
    verdict: str


class Everyone(Frozen):
    """The result with everyone in, where rules and exclusions left something out.

    Attributes:
        units: Number of units left out, by the reason.
        without: Impressions that were left out with them.
        decision: The decision with everyone in.
        text: All this in a sentence.
    """

    units: dict[str, int]
    without: int
    decision: Decision
    text: str


class HistoryEntry(Frozen):
    """Entry of a trial's history.

    Attributes:
        time: Seconds since 1970.
        what: "version" (a new one, or an earlier one again), "changed" (options in place), "updated"
            (position bias, and with it the design), "excluded", "included", "erased" or "stopped".
        unit: Unit that was excluded or included, as reports name it: units are stored as keyed hashes.
        detail: Details; of an erasure the number of rows, not whose they were.
        reason: Reason, if one was given.
        who: API key that was used, or the user of the process; "" in older stores.
    """

    time: float
    what: Literal["version", "changed", "updated", "excluded", "included", "erased", "stopped"]
    unit: str | None = None
    detail: str = ""
    reason: str = ""
    who: str = ""

    def __str__(self) -> str:
        what = " ".join(filter(None, [self.what, self.unit, self.detail]))
        who = f" by {self.who}" if self.who else ""
        return f"{time_text(self.time)}: {what}{who}{f': {self.reason}' if self.reason else ''}"


class History(Frozen):
    """A trial's history, in order of time."""

    history: tuple[HistoryEntry, ...]


class Report(Frozen):
    """The report on a trial.

    Attributes:
        trial: Name of the trial.
        version: The version of its configuration that the numbers are about.
        decision: The answer: who gets more clicks, by how much and how surely, of B against A.
        text: The answer in words: headline, details, next (what to do) and trust (what it rests on).
        lift: The difference in per cent and in clicks a day, in a sentence.
        pace: When it began, how fast it goes, and whether searches or clicks have stopped.
        days_left: Days to a decision at the pace so far; nan if that cannot be told.
        estimates: All estimates, those with fewest assumptions first.
        impressions: Number of searches that the estimate is from.
        units: Number of visitors (or other units) that made them.
        clicks: Number of clicks that count.
        ctr: Clicks per search on what was shown.
        theta: Position bias.
        band: The interval over time.
        contributors: Queries that moved the estimate most.
        guardrails: Checks of everything the numbers rest on.
        tallies: Counters of what was left out or noticed.
        parts: Every version by itself; they are never pooled.
        segments: Answers by segment; None where no attributes were declared, or nothing is estimated yet.
        metrics: Answers by metric, the primary one first; none where the trial measures clicks alone.
        shows: The ranker that a stopped trial shows; None while it runs.
        visitors: Clicks that the trial cost or gave; None where that cannot be told.
        discrepancy: Difference of the position-based and the A/B estimate, for ``calibrate``; None where one is missing.
        everyone: The result without rules and exclusions, where they left something out.
        guards: What the guards have found that stop the trial where it does harm.
        course: How many take part, until when the trial runs, and why, in sentences; "" where nothing was said about that.
        over: True if the longest time that it may take is over.
        futile: A sentence if B is surely not better by the smallest difference that matters; "" otherwise.
        history: Who changed what, when and why.
    """

    trial: str
    version: int
    decision: Decision
    text: Verdict
    lift: str
    pace: Pace
    days_left: float
    estimates: tuple[EstimateRow, ...]
    impressions: int
    units: int
    clicks: int
    ctr: float
    theta: Theta
    band: tuple[BandPoint, ...]
    contributors: tuple[Contributor, ...]
    guardrails: tuple[Guardrail, ...]
    tallies: dict[str, int]
    parts: tuple[Part, ...]
    segments: Segmentation | None = None
    metrics: tuple[MetricAnswer, ...] = ()
    shows: Ranker | None = None
    visitors: Visitors | None = None
    discrepancy: Discrepancy | None = None
    everyone: Everyone | None = None
    guards: tuple[Guard, ...] = ()
    course: str = ""
    over: bool = False
    futile: str = ""
    history: tuple[HistoryEntry, ...] = ()

    @property
    def harm(self) -> Guard | None:
        """The guard that is sure of harm; None if none is."""
        return next((guard for guard in self.guards if guard.status == "harm"), None)

    @property
    def ended(self) -> str:
        """Reason why the trial has come to its end, in a sentence; "" if it has not."""
        if self.decision.winner is not None or self.decision.state == "alike":
            return self.text.headline
        return f"The time is over. {headline(self.decision, self.config.labels, ended=True)}" if self.over else ""

    @property
    def winner(self) -> Ranker | None:
        """The ranker that is better by the metric that decides, where that is decided; None otherwise."""
        return self.decision.winner

    @property
    def difference(self) -> float:
        """Clicks per search of B minus those of A."""
        return self.decision.difference

    @property
    def interval(self) -> Interval:
        """The interval of the difference."""
        return self.decision.interval

    @computed_field  # type: ignore[prop-decorator]
    @property
    def measure(self) -> str:
        """Name of the metric that decides: "clicks"."""
        return self.decision.metric.title

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unit(self) -> str:
        """Unit of differences by the metric that decides: "clicks per search"."""
        return self.decision.metric.unit

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """The answer and its numbers in words."""
        return str(self.text)

    @property
    def stopped(self) -> bool:
        """True if the trial has ended."""
        return self.shows is not None

    def to_html(self, file: str | Path) -> Path:
        """Write the report as one HTML file that needs no network."""
        return write_report(self.to_dict(), str(self), file)

    def to_csv(self, file: str | Path) -> Path:
        """Write all numbers as one table of comma-separated values."""
        path = Path(file)
        path.write_text(report_csv(self), encoding="utf-8", newline="")
        return path

    @property
    def before(self) -> str:
        """Numbers of searches of the other versions, in a few words; empty if there are none."""
        others = [part for part in self.parts if part.version != self.version]
        return ", ".join(f"version {part.version} had {part.impressions:,} searches" for part in others)

    @property
    def config(self) -> TrialConfig:
        """Configuration of the version that the numbers are about."""
        return next(part.config for part in self.parts if part.version == self.version)

    @property
    def about(self) -> str:
        """The trial in a line."""
        a, b = self.config.labels
        state = "running" if self.shows is None else f"stopped, shows {self.shows}"
        version = "; ".join(filter(None, [f"version {self.version}", state, self.before]))
        return f"{self.trial} ({version}): {b} against {a}"

    @property
    def lines(self) -> list[str]:
        """Sentences below the verdict: what to do, warning, lift, trust, pace, visitors, what was left out on purpose."""
        more = [one.text for one in (self.pace, self.visitors, *self.guards, self.everyone) if one is not None]
        sentences = self.text.next, self.course, self.pace.warning, self.futile, self.lift, self.text.trust, *more
        return [sentence for sentence in sentences if sentence]

    def grouped(self) -> Iterator[tuple[str, list[Guardrail], list[Guardrail]]]:
        """Guardrails by what they are about: a heading, those that do not pass, the worst first, and those that pass."""
        for group, heading in GROUPS.items():
            some = [check for check in self.guardrails if check.group == group]
            open_ = sorted((c for c in some if c.status != "pass"), key=lambda check: WORST_FIRST.index(check.status))
            yield heading, open_, [check for check in some if check.status == "pass"]

    to_frame = frames.to_frame

    chart = notebook.chart

    def _repr_html_(self) -> str:
        """Render the verdict, the interval and the checks for notebooks."""
        return notebook.of_report(self)

    def __repr__(self) -> str:
        return f"<Report on {self.about}>\n{self.text.headline}"

    def __str__(self) -> str:
        rows = []
        for heading, open_, passing in self.grouped():
            rows += ["", heading, *(f"  {check.status:7}  {check}" for check in open_)]
            rows += [f"  pass     {', '.join(check.name for check in passing)}"] if passing else []
        estimates = [
            f"  {one.name:14}  B - A  {one.difference:+.4f}  {one.interval}{'' if one.used else '  (not used)'}"
            for one in self.estimates
            if len(self.estimates) > 1 and np.isfinite(one.interval.low)
        ]
        if estimates:
            estimates = ["", "Estimates, each with its own interval", *estimates]
        metrics = []
        if self.metrics:
            notes = [f"  {one.title}: {one.note}" for one in self.metrics if one.note]
            metrics = ["", "By metric", *text_table(METRIC_HEADS, [one.cells for one in self.metrics]), *notes]
        segments = [] if self.segments is None else self.segments.lines
        if segments and self.segments is not None:
            segments = [
                "",
                table_heading(self.segments.rate),
                *segments,
            ]
        history = ["", "Who changed what", *(f"  {entry}" for entry in self.history)] if self.history else []
        return "\n".join([self.about, self.verdict, *self.lines, *metrics, *estimates, *segments, *rows, *history])
