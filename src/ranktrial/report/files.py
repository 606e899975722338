"""Reports as files to keep or send: their numbers as one table of comma-separated values."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ranktrial.times import iso_time

if TYPE_CHECKING:
    from ranktrial.report.schema import Report

COLUMNS = (
    "part", "name", "time", "units", "impressions", "clicks", "value", "low", "high", "status", "text",
)  # fmt: skip


def report_csv(report: Report) -> str:
    """All numbers of a report, a row each; what is not known is empty. Differences are B - A, times ISO 8601 in UTC."""
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\r\n")  # as RFC 4180 has it
    table.writeheader()
    for row in report_rows(report):
        table.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def file_stem(report: Report) -> str:
    """The trial's name as the beginning of a file's name."""
    return re.sub(r"[^\w.-]+", "-", report.trial, flags=re.ASCII).strip(".-") or "trial"


def report_rows(report: Report) -> Iterator[dict[str, Any]]:
    """Rows of that table; cells that say nothing are empty or left out."""
    decision, pace = report.decision, report.pace
    a, b = report.config.labels

    def row(part: str, name: str, value: object = "", **more: Any) -> dict[str, Any]:
        return {"part": part, "name": name, "value": value, **more}

    def ends(interval: tuple[float, float]) -> dict[str, float]:
        return {"low": interval[0], "high": interval[1]}

    counts = {"units": report.units, "impressions": report.impressions, "clicks": report.clicks}
    daily = [end * pace.searches_a_day for end in decision.interval]
    yield row("result", "verdict", text=report.verdict, status=decision.state)
    yield row("result", "winner", text={"A": a, "B": b, None: ""}[report.winner])
    yield row("result", "what to do next", text=report.text.next)
    yield row("result", "what it rests on", text=report.text.trust)
    yield row("result", f"{report.unit}, B - A", decision.difference, **ends(decision.interval), **counts)
    yield row("result", f"{report.measure} of B against A, share", decision.lift.share, **ends(decision.lift.interval))
    yield row(
        "result",
        f"{report.measure} a day, B - A",
        decision.difference * pace.searches_a_day,
        low=daily[0],
        high=daily[1],
    )
    yield row("result", "clicks per search shown", report.ctr, **counts)
    yield row("result", "level of intervals", decision.level)
    yield row("result", "allowance, clicks per search", decision.allowance)
    yield row("result", "share of hostile searches that could have made it up", decision.overturned_by)
    yield row("result", "began", time=iso_time(pace.began))
    yield row("result", "latest search", time=iso_time(pace.latest), text=pace.warning)
    yield row("result", "latest search with a click", time=iso_time(pace.latest_click))
    yield row("result", "searches a day", pace.searches_a_day)
    yield row("result", "searches to a decision", decision.forecast.searches)
    yield row("result", "days to a decision", report.days_left)
    yield row("result", "course", text=report.course)
    yield row("result", "share of the visitors who take part", report.config.share)
    yield row("result", "not better by what matters", text=report.futile)
    for guard in report.guards:
        yield row("guard", guard.name, guard.value, low=guard.at_least, status=guard.status, text=guard.text)
    if report.visitors is not None:
        told = report.visitors
        yield row("result", "share of clicks visitors gained", told.gain, **ends(told.interval), text=told.text)
    for one in report.estimates:
        status = "used" if one.used else "contradicted" if one.contradicted else ""
        yield row("estimate", one.name, one.difference, **ends(one.interval), status=status, text=one.assumes)
    for metric in report.metrics:
        size = {"impressions": metric.searches, "text": metric.note}
        yield row("metric", metric.title, metric.difference, **ends(metric.interval), **size, status=metric.finding)
        yield row(
            "metric, share", metric.title, metric.lift.share, **ends(metric.lift.interval), text=str(metric.metric)
        )
        yield row("metric, searches that wait", metric.title, metric.waiting)
    for segment in [] if report.segments is None else report.segments.answers:
        size = {"units": segment.visitors, "impressions": segment.searches, "clicks": segment.clicks}
        status, name = "told from chance" if segment.discovery else "", f"{segment.attribute}: {segment.value}"
        name += f", {segment.metric}" if segment.metric else ""
        yield row("segment", name, segment.difference, **ends(segment.interval), **size, status=status)
        yield row("segment, share of clicks", name, segment.lift.share, **ends(segment.lift.interval))
        yield row("segment, for ranking", name, segment.shrunken)
        yield row("segment, share of searches", name, segment.share)
        yield row("segment, least false discovery rate", name, segment.rate)
    for test in [] if report.segments is None else report.segments.tests:
        yield row("segments differ, p", test.attribute, test.p)
    for check in report.guardrails:
        yield row("guardrail", check.name, check.value, status=check.status, text=str(check))
    for point in report.band:
        at = {"time": iso_time(point.time), "units": point.units}
        yield row("over time", "B - A", point.difference, low=point.low, high=point.high, **at)
    for query in report.contributors:
        yield row("query", query.label, query.contribution, impressions=query.impressions, clicks=query.clicks)
    for rank, (theta, error) in enumerate(zip(report.theta.theta, report.theta.standard_error), 1):
        yield row("position bias", f"rank {rank}", theta, low=theta - 2 * error, high=theta + 2 * error)
    for name, count in report.tallies.items():
        yield row("left out or noticed", name, count)
    for part in report.parts:
        more = {"impressions": part.impressions, "clicks": part.clicks, **ends(part.interval)}
        yield row("version", str(part.version), part.difference, **more, text=part.config.method)
    for entry in report.history:
        yield row("history", entry.what, time=iso_time(entry.time), text=str(entry))


def _cell(value: Any) -> Any:
    """A number, or text that no spreadsheet takes for a formula; nothing for what is not known."""
    if isinstance(value, str):
        return f"'{value}" if value[:1] in tuple("=+-@") else value
    return value if np.isfinite(value) else ""
