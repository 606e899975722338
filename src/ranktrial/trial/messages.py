"""Messages of a trial to those who run it: what there is to tell, from its history and its report, and what was told already.

What is told of a subject is its state, once for every change: a check fails, and is mended. All of it follows from values
alone; ``supervisor`` writes it into the store and sends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from ranktrial.report.schema import Report
from ranktrial.store.base import HistoryRow, Message
from ranktrial.times import iso_time
from ranktrial.trial.versions import changed_options

LATEST_NEWS = 7 * 86_400.0  # seconds for which something that has happened may still be told
NOT_AGAIN_BEFORE = 3_600.0  # seconds from one message about a subject to the next: what flickers is told once an hour
GUARD = "the guard"  # who stops a trial that does harm: the guard on ...
FUTILE = "futile"
AS_IT_SHOULD_BE = ""  # the state of which nobody needs to hear unless there was another


class News(NamedTuple):
    """State of a subject, and what a message about it would say.

    Attributes:
        subject: What it is about.
        state: Its state now.
        kind: Of the message: "started", "share changed", "first results", "guardrail failed", "guardrail mended", "decided",
            "no longer decided", "not better", "perhaps better", "time is over", "harm", "stopped", "no searches",
            "no clicks", "searches and clicks again", "store well again".
        text: The message in words.
        data: Numbers that belong to it.
    """

    subject: str
    state: str
    kind: str
    text: str
    data: Mapping[str, Any] = {}


class Told(NamedTuple):
    """The last message about a subject: its number, the state that it told, and its time in seconds."""

    number: int
    state: str
    time: float


def of_history(trial: str, rows: Iterable[HistoryRow], now: float) -> Iterator[News]:
    """News from the history: versions, shares, and the end."""
    for row in rows:
        if now - row.time / 1e6 > LATEST_NEWS:
            continue
        if row.what == "version":
            first = row.detail.startswith("1: ")
            kind, text = "started", f"{trial} has started, " if first else f"{trial} goes on with another version, "
            text += row.detail.partition(": ")[2] if first else row.detail
        elif row.what == "stopped":
            harm = row.who.startswith(GUARD) and not row.who.endswith("futility")
            kind, text = "harm" if harm else "stopped", f"{trial} is stopped {row.detail}"
        elif row.what == "changed" and "share" in (changes := changed_options(row.detail)):
            kind, text = "share changed", f"{trial}: share of the visitors who take part {changes['share']}"
        else:
            continue
        text += f", by {row.who}" * bool(row.who) + f": {row.reason}" * bool(row.reason)
        yield News(f"history {row.id}", row.what, kind, text, {"who": row.who, "reason": row.reason})


def of_report(report: Report) -> Iterator[News]:
    """News from the report on a trial that runs."""
    trial, decision, about = report.trial, report.decision, f"version {report.version}"
    numbers = {
        "state": decision.state,
        "winner": decision.winner,
        "difference": decision.difference,
        "low": decision.interval.low,
        "high": decision.interval.high,
        "searches": report.impressions,
        "clicks": report.clicks,
        "share": report.config.share,
    }
    if _says_something(report):
        yield News(
            f"{about} first results", "there", "first results", f"{trial}: first results. {report.text}", numbers
        )
    state = decision.winner or ("alike" if decision.state == "alike" else AS_IT_SHOULD_BE)
    kind = "decided" if state else "no longer decided"
    advice = report.text.next if report.config.then == "tell" else ""  # what the trial does by itself is told next
    yield News(f"{about} decision", state, kind, f"{trial}: {kind}. {report.text} {advice}".strip(), numbers)
    if report.over:
        text = f"{trial}: the time is over. {report.text} {advice}".strip()
        yield News(f"{about} time", "over", "time is over", text, numbers)
    state, kind = (
        (FUTILE, "not better") if report.futile and decision.winner is None else (AS_IT_SHOULD_BE, "perhaps better")
    )
    text = f"{trial}: {report.futile or 'B may be better by what matters after all.'} {report.text}"
    yield News(f"{about} futility", state, kind, text, numbers)
    for check in report.guardrails:
        if check.status == "unknown":
            continue
        fails = check.status == "fail"
        kind, verb = ("guardrail failed", "fails") if fails else ("guardrail mended", "does not fail any more")
        text = f'{trial}: the check "{check.name}" {verb}. {check.text}'
        state = "fail" if fails else AS_IT_SHOULD_BE
        yield News(f"{about} check {check.name}", state, kind, text, {"check": check.name, "status": check.status})
    yield _quiet(report, about)


def _says_something(report: Report) -> bool:
    """True if the interval leaves out 0, or is narrower than the clicks per search: or the value, by another metric."""
    low, high = report.interval
    value = report.metrics[0].value if report.metrics else report.ctr
    return bool(np.isfinite(high - low)) and (0 not in report.interval or high - low < value)


def _quiet(report: Report, about: str) -> News:
    """News of searches and clicks that do not come any more, or do again."""
    warning = report.pace.warning
    state = "" if not warning else "no searches" if warning.startswith("No search") else "no clicks"
    text = f"{report.trial}: {warning or 'searches and clicks come again.'}"
    data = {"last_search": iso_time(report.pace.latest), "last_click": iso_time(report.pace.latest_click)}
    return News(f"{about} pace", state, state or "searches and clicks again", text, data)


def last_told(messages: Iterable[Message]) -> dict[str, Told]:
    """The last message about each subject."""
    return {one.subject: Told(one.number, one.state, one.time / 1e6) for one in messages}


def untold(news: Iterable[News], told: Mapping[str, Told], now: float) -> list[tuple[News, int]]:
    """News to tell now, each with its number among the messages about its subject.

    >>> fails, mended = News("check", "fail", "guardrail failed", ""), News("check", "", "guardrail mended", "")
    >>> [number for _, number in untold([fails], {}, 0.0)], untold([mended], {}, 0.0)
    ([1], [])
    >>> told = {"check": Told(1, "fail", 0.0)}
    >>> untold([fails], told, 9e9), untold([mended], told, 60.0), [n for _, n in untold([mended], told, 3_600.0)]
    ([], [], [2])
    """
    found = []
    for one in news:
        last = told.get(one.subject)
        if one.state == (AS_IT_SHOULD_BE if last is None else last.state):
            continue
        if last is None or now - last.time >= NOT_AGAIN_BEFORE:
            found.append((one, 1 if last is None else last.number + 1))
    return found


def messages_of(
    trial: str, found: Iterable[tuple[News, int]], hooks: Sequence[str], secret: bytes, now: float
) -> list[Message]:
    """Messages for the outbox: each of the news once for every hook, with the same id."""
    moment = int(now * 1e6)
    return [
        Message(trial, one.subject, number, one.state, hook, moment, id, body_of(id, trial, one, now), moment)
        for one, number in found
        for id in (message_id(secret, one.subject, number),)
        for hook in hooks
    ]


def message_id(secret: bytes, subject: str, number: int) -> str:
    """The id of a message: the same whoever writes it, and however often."""
    return (
        "msg_"
        + blake2b(f"{number} {subject}".encode(), digest_size=12, key=secret, person=b"ranktrial msg").hexdigest()
    )


def body_of(id: str, trial: str, news: News, now: float) -> str:
    """The JSON that is sent."""
    data = {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in news.data.items()
    }
    told = {"id": id, "type": news.kind, "time": iso_time(now), "trial": trial, "text": news.text, "data": data}
    return json.dumps(told)
