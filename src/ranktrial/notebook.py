"""HTML snippets of results for notebooks: a heading, an interval as a small chart, and what can be folded away; and a bar of
progress.

They hold no script and nothing from elsewhere; text of strangers is escaped. Colours are those of the notebook.
"""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from ranktrial.texts import counted, shown

WIDTH, HEIGHT, MARGIN = 420, 58, 14
MOST_ROWS = 5  # of a log or a pair
MARKS = {"pass": "✓", "warn": "!", "fail": "✗", "unknown": "?"}
CELL = 'style="text-align:left;vertical-align:top;padding:1px 12px 1px 0"'


def of_report(report: Any) -> str:
    """A trial's report: the verdict, the interval, what to do, and the checks folded."""
    name_a, name_b = report.config.labels
    used = [
        (one.name, f"{one.difference:+.4f}", str(one.interval), "used" if one.used else "") for one in report.estimates
    ]
    segments = "" if report.segments is None else _segments(report.segments)
    metrics = [(*one.cells, one.note) for one in report.metrics]
    heads = "metric", "role", "lift", "per search, B - A", "searches", "finding", ""
    return card(
        report.text.headline,
        interval_chart(
            report.difference, report.interval.low, report.interval.high, f"{report.unit}, {name_b} - {name_a}"
        ),
        *(line(text) for text in report.lines),
        folded("By metric", table(heads, metrics), opened=True) if metrics else "",
        segments,
        folded("Estimates", table(("", "B - A", "its own interval", ""), used)) if used else "",
        _checks(report.guardrails),
    )


def _segments(segments: Any) -> str:
    """Answers by segment, opened."""
    rows = [
        (
            f"{one.attribute}: {one.value}", f"{one.share:.0%}", f"{one.difference:+.4f}", str(one.interval),
            f"{one.shrunken:+.4f}", "yes" if one.discovery else "",
        )
        for one in segments.answers
    ]  # fmt: skip
    heads = "segment", "of searches", "B - A", "interval", "for ranking", "told from chance"
    summary = f"By segment; of those told from chance on average at most {segments.rate:.0%} are false"
    return folded(summary, table(heads, rows), line(segments.text), opened=True)


def _checks(checks: Sequence[Any]) -> str:
    """Checks, folded."""
    rows = [(MARKS[one.status], one.title or one.name, one.text) for one in checks]
    bad = sum(one.status in ("warn", "fail") for one in checks)
    summary = f"{counted(len(rows), 'check')}, {bad or 'none'} to look at"
    return folded(summary, table(("", "check", "what was found"), rows))


def of_answer(answer: Any) -> str:
    """The decision on a log: the verdict, the interval, what to do, and estimates and checks folded."""
    decision, text = answer.decision, answer.text
    low, high = decision.interval
    rows = [
        (one.name, f"{one.difference:+.4f}", "used" if one.used else "")
        for one in answer.rows
        if one.difference == one.difference  # there is one
    ]
    return card(
        text.headline,
        interval_chart(decision.difference, low, high, "clicks per search, B - A"),
        *(line(part) for part in (text.details, text.next, text.trust, answer.worth, answer.note)),
        folded("Estimates", table(("", "B - A", ""), rows)) if rows else "",
        _checks(answer.checks) if answer.checks else "",
        line(answer.unchecked),
    )


def of_estimate(found: Any) -> str:
    """One estimate of B against A, its interval, and what it rests on, folded; nothing is decided by one estimate."""
    low, high = found.confidence_interval()
    low, high = 0.0 - high, 0.0 - low
    value = 0.0 - found.delta
    rows = [
        ("searches", f"{found.impressions:,}"), ("visitors", f"{found.units:,}"),
        ("standard error", f"{found.standard_error:.5f}"), ("effective clicks", f"{found.effective_clicks:,.0f}"),
        ("largest weight of a click", f"{found.largest_weight:.2f}"),
    ]  # fmt: skip
    text = (
        f"95% interval {low:+.4f} to {high:+.4f}, by this estimator alone, for a number of searches fixed beforehand."
    )
    return card(
        f"B against A: {value:+.4f} clicks per search.",
        interval_chart(value, low, high, "clicks per search, B - A"),
        line(f"{text} Which ranker gets more clicks is decided from several estimates and checks: decide(log)."),
        folded("What it rests on", table((), rows)),
    )


def of_plan(plan: Any) -> str:
    """A plan: advice, and a row for each method."""
    rows = [(row.method, searches(row.impressions), searches(row.anytime), f"{row.wrong:.0%}") for row in plan.rows]
    first, *rest = plan.verdict or ("A plan",)
    heads = "method", "searches", "looked at all the time", "points the wrong way"
    return card(
        first, *(line(text) for text in rest), folded(counted(len(rows), "method"), table(heads, rows), opened=True)
    )


def of_position_bias(bias: Any) -> str:
    """Position bias: a bar for each rank with its interval."""
    rows = [
        (f"{rank}", bar(theta), f"{theta:.3f}", f"{interval.low:.3f} to {interval.high:.3f}")
        for rank, (theta, interval) in enumerate(zip(bias.theta, bias.confidence_interval()), 1)
    ]
    limits = folded("What the log can tell", line(str(bias.identifiability)), line(bias.note))
    bars = table(("rank", "", "theta", "95 %"), rows, raw=1)
    return card("How often people look at each rank, against the first", bars, limits)


def of_pair(pair: Any) -> str:
    """A pair of rankers: its size, and the lists of its first queries."""
    rows = [
        (
            str(pair.queries[query]),
            *(ids(pair.ids[d] for d in top[query] if d >= 0) for top in (pair.top_a, pair.top_b)),
        )
        for query in range(min(pair.n_queries, MOST_ROWS))
    ]
    heading = f"Two rankers: {counted(pair.n_queries, 'query', 'queries')}, {counted(pair.n_documents, 'document')}, "
    heading += f"k = {pair.k}"
    return card(heading, folded("First queries", table(("query", "A", "B"), rows), opened=True))


def of_log(log: Any) -> str:
    """A log: its size, and its first searches."""
    rows = []
    for at in range(min(len(log), MOST_ROWS)):
        page = [slot for slot in log.rankings[log.row[at]] if slot >= 0]
        names = [log.documents[log.document[slot]] for slot in page]
        clicked = [name for name, flag in zip(names, log.clicks[at]) if flag]
        rows.append((str(log.queries[log.query[log.design[at]]]), ids(names), ids(clicked)))
    heading = f"{counted(len(log), 'search', 'searches')}, {counted(int(log.clicks.sum()), 'click')}, "
    heading += f"{counted(len(log.queries), 'query', 'queries')}, k = {log.k}"
    return card(heading, folded("First searches", table(("query", "shown", "clicked"), rows), opened=True))


def of_trial(trial: Any) -> str:
    """A trial: how it is set up, whether it runs, and how to go on."""
    over = f"stopped: everybody gets {trial.shows}'s list" if trial.stopped else "running"
    rows = [
        ("state", over),
        ("configuration", f"version {trial.version}"),
        ("method", str(trial.config.method)),
        ("results on a page", f"{trial.config.k}"),
        ("share of visitors", f"{trial.share:.0%}"),
        ("searches so far", f"{trial.state.seen.impressions:,}"),
    ]
    return card(
        f"Trial {trial.name}", table((), rows), line("trial.report() says who gets more clicks, and how surely.")
    )


def chart(result: Any) -> Any:
    """Draw the result as an Altair chart, with the extra ``charts``: ``.save("file.html")`` keeps it."""
    return import_module("ranktrial.report.drawing").chart(result)  # charts stand above what they show


class Progress:
    """Bar of progress that a notebook shows and renews in place; lines on standard error elsewhere.

    It is what ``progress=`` takes, and needs no widgets.

    >>> from ranktrial import Pair, plan
    >>> from ranktrial.notebook import Progress
    >>> pair = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2).knowing(theta=[1, 0.5])
    >>> planned = plan(pair, [0.4, 0.1], progress=Progress("planning"))
    """

    def __init__(self, text: str, *, every: float = 0.2) -> None:
        self.text, self.every = text, every
        self._begun, self._shown_at, self._handle = time.monotonic(), -math.inf, None

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done, at most once in ``every`` seconds and at the end."""
        now = time.monotonic()
        if now - self._shown_at < self.every and done < total:
            return
        self._shown_at = now
        text = f"{self.text}: {done:,} of {total:,}, {now - self._begun:.0f} s"
        if (shell := _shell()) is None:
            print(f"\r{text}", end="\n" if done >= total else "", file=sys.stderr, flush=True)
            return
        content = {"text/html": f"{bar(done / total if total else 1.0)} {escaped(text)}", "text/plain": text}
        if self._handle is None:
            self._handle = shell.display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _shell() -> Any:
    """The module that shows things in the notebook that runs; None elsewhere."""
    running = sys.modules.get("IPython")
    kernel = None if running is None else running.get_ipython()
    return import_module("IPython.display") if hasattr(kernel, "kernel") else None


# --- pieces -----------------------------------------------------------------------------------------------------------


def card(heading: str, *parts: str) -> str:
    """A heading above its parts."""
    return f'<div class="ranktrial"><p><strong>{escaped(heading, 300)}</strong></p>{"".join(parts)}</div>'


def line(text: str) -> str:
    """A paragraph; nothing where there is no text."""
    return f"<p>{escaped(text, 600)}</p>" if text else ""


def folded(summary: str, *parts: str, opened: bool = False) -> str:
    """Parts that are seen when somebody opens them."""
    start = '<details open="open">' if opened else "<details>"
    return f"{start}<summary>{escaped(summary)}</summary>{''.join(parts)}</details>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, raw: int | None = None) -> str:
    """A table of texts; the cells of column ``raw`` are HTML already."""
    top = f"<tr>{''.join(f'<th {CELL}>{escaped(head)}</th>' for head in heads)}</tr>" if heads else ""
    cells = (
        "".join(f"<td {CELL}>{cell if at == raw else escaped(cell, 400)}</td>" for at, cell in enumerate(row))
        for row in rows
    )
    return f"<table>{top}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def bar(share: float) -> str:
    """A bar as long as a share from 0 to 1."""
    width = 160 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="160" height="12" role="img">'
        f'<rect width="{width:.1f}" height="12" fill="#4c78a8"/></svg>'
    )


def interval_chart(value: float, low: float, high: float, label: str) -> str:
    """An interval with its value, and 0 as a dashed line; nothing where an end is not known."""
    if not all(map(math.isfinite, (value, low, high))):
        return ""
    left, right = min(low, 0.0), max(high, 0.0)
    scale = (WIDTH - 2 * MARGIN) / ((right - left) or 1.0)

    def at(number: float) -> float:
        return round(MARGIN + (number - left) * scale, 1)

    colour = "#4c78a8" if low > 0 or high < 0 else "#888888"
    middle = min(max(at((low + high) / 2), 70), WIDTH - 70)
    ends = f'<text x="{middle}" y="42" font-size="11" text-anchor="middle" fill="currentColor">{low:+.4f} to {high:+.4f}</text>'
    zero = f'<text x="{at(0) + 4}" y="12" font-size="11" fill="currentColor">0</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="'
        f'{escaped(f"{label}: {value:+.4f}, from {low:+.4f} to {high:+.4f}")}">'
        f'<line x1="{at(0)}" x2="{at(0)}" y1="6" y2="30" stroke="currentColor" stroke-dasharray="3 3"/>'
        f'<line x1="{at(low)}" x2="{at(high)}" y1="18" y2="18" stroke="{colour}" stroke-width="6"/>'
        f'<circle cx="{at(value)}" cy="18" r="6" fill="{colour}"/>{ends}{zero}'
        f'<text x="{WIDTH // 2}" y="55" font-size="11" text-anchor="middle" fill="currentColor">{escaped(label)}</text></svg>'
    )


def ids(documents: Iterable[Any]) -> str:
    """Ids in a row."""
    return ", ".join(shown(str(document), 24) for document in documents)


def searches(number: float) -> str:
    """A number of searches in three digits; none suffices where it is infinite."""
    if not math.isfinite(number):
        return "no number suffices"
    digits = max(0, math.floor(math.log10(number)) - 2) if number > 0 else 0
    return f"{round(number, -digits):,.0f}"


def escaped(text: str, longest: int = 80) -> str:
    """Text as it may stand in HTML."""
    return html.escape(shown(text, longest))
