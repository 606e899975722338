"""A report as files to keep or send: its numbers as one table of comma-separated values."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ranktrial.live.schemas import Report
from ranktrial.times import iso_time

COLUMNS = (
    "part", "name", "time", "units", "impressions", "clicks", "value", "low", "high", "status", "text",
)  # fmt: skip


def report_csv(report: Report) -> str:
    """All numbers of a report, a row each; what is not known is empty. Differences are A - B, times ISO 8601 in UTC."""
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\r\n")  # as RFC 4180 has it
    table.writeheader()
    for row in _rows(report):
        table.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def file_stem(report: Report) -> str:
    """The trial's name as the beginning of a file's name."""
    return re.sub(r"[^\w.-]+", "-", report.trial, flags=re.ASCII).strip(".-") or "trial"


def _rows(report: Report) -> Iterator[dict[str, Any]]:
    lift, pace, wait = report.lift, report.pace, report.forecast
    a, b = report.config.labels

    def row(part: str, name: str, value: object = "", **more: Any) -> dict[str, Any]:
        return {"part": part, "name": name, "value": value, **more}

    def ends(interval: tuple[float, float]) -> dict[str, float]:
        return {"low": interval[0], "high": interval[1]}

    counts = {"units": report.units, "impressions": report.impressions, "clicks": report.clicks}
    yield row("result", "verdict", text=report.verdict, status="" if report.trusted else "not to be trusted")
    yield row("result", "winner", text={"A": a, "B": b, None: ""}[report.winner])
    yield row("result", "difference in clicks per impression, A - B", report.delta, **ends(report.interval), **counts)
    yield row("result", f"share of clicks more, {lift.of}", lift.share, **ends(lift.interval))
    yield row("result", f"clicks a day more, {lift.of}", lift.clicks_a_day, **ends(lift.daily))
    yield row("result", "clicks per impression shown", report.ctr, **counts)
    yield row("result", "level of intervals", report.level)
    yield row("result", "began", time=iso_time(pace.began))
    yield row("result", "latest impression", time=iso_time(pace.latest))
    yield row("result", "impressions a day", pace.impressions_a_day)
    yield row("result", "impressions to a decision", wait.impressions, text=wait.text)
    yield row("result", "days to a decision", wait.days)
    if report.visitors is not None:
        told = report.visitors
        yield row("result", "share of clicks visitors gained", told.gain, **ends(told.interval), text=told.text)
    for one in report.readings:
        status = "speaks" if one.name == report.reading else "contradicted" if one.contradicted else ""
        yield row("reading", one.name, one.delta, **ends(one.interval), status=status, text=one.assumes)
    for check in report.guardrails:
        yield row("guardrail", check.name, check.value, status=check.status, text=str(check))
    for point in report.band:
        at = {"time": iso_time(point.time), "units": point.units}
        yield row("over time", "A - B", point.delta, low=point.low, high=point.high, **at)
    for query in report.contributors:
        yield row("query", query.label, query.contribution, impressions=query.impressions, clicks=query.clicks)
    for rank, (theta, error) in enumerate(zip(report.theta.theta, report.theta.standard_error), 1):
        yield row("position bias", f"rank {rank}", theta, low=theta - 2 * error, high=theta + 2 * error)
    for name, count in report.tallies.items():
        yield row("left out or noticed", name, count)
    for part in report.parts:
        more = {"impressions": part.impressions, "clicks": part.clicks, **ends(part.interval)}
        yield row("version", str(part.version), part.delta, **more, text=part.config.method)
    for entry in report.history:
        yield row("history", entry.what, time=iso_time(entry.time), text=str(entry))


def _cell(value: Any) -> Any:
    """A number, or text that no spreadsheet takes for a formula; nothing for what is not known."""
    if isinstance(value, str):
        return f"'{value}" if value[:1] in tuple("=+-@") else value
    return value if np.isfinite(value) else ""
