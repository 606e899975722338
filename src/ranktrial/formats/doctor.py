"""Diagnosis of a log: its contents, its problems, the estimates it allows, and the columns that would allow more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from ranktrial.distributions import normal_cdf
from ranktrial.formats.bias import ENOUGH_CLICKS, day_effect, position_bias, results_of
from ranktrial.formats.layout import covariate, open_duckdb
from ranktrial.formats.readers import LogSource, read_source
from ranktrial.formats.readers.common import ITEMS, LINES, PAGES, TRIAL, Use
from ranktrial.formats.readers.ubi import AGAIN, FROM_IMPRESSIONS, NO_USE, VALUES
from ranktrial.position_bias import NotIdentifiable
from ranktrial.trec.files import FormatError

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

ALWAYS_CLICKED = 0.95  # share of pages with a click above which pages without one were probably not logged
LARGE_UNIT = 0.05  # share of impressions of one unit that is no person's
UNLIKELY = 1e-4  # chance of a split as uneven as this, below which it is not the one that was meant
USABLE = 0.95  # share of searches, and of clicks, that a log of several kinds of rows should have used
WELL_KNOWN = 0.1  # relative error of theta


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        status: pass, warn, fail, or note where it is only said.
        name: What.
        text: What was found, in a sentence or two.
    """

    status: str
    name: str
    text: str


@dataclass(frozen=True)
class Examination:
    """All findings on a log, and its click rates by rank."""

    findings: tuple[Finding, ...]
    rates: tuple[tuple[int, float, float], ...] = ()
    source: LogSource | None = None

    @property
    def sound(self) -> bool:
        return all(finding.status != "fail" for finding in self.findings)

    @property
    def uses(self) -> tuple[Use, ...]:
        """Uses of the rows, where the format has rows of several kinds."""
        return () if self.source is None else self.source.uses

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        ranks = [{"rank": rank, "shown": shown, "clicks": clicks} for rank, shown, clicks in self.rates]
        told = {"sound": self.sound, "findings": [asdict(one) for one in self.findings], "ranks": ranks}
        return told | ({"rows": [asdict(one) for one in self.uses]} if self.uses else {})


def examine(path: str | Path | IntoFrame, **options: Any) -> Examination:
    """Look at a log; options are those of ``read_source``. A log with wrong rows is looked at without them."""
    try:
        source = read_source(path, **options)
        read = [Finding("pass", "rows", f"{source.rows:,} rows, read as {source.format}; none is wrong")]
    except FormatError as problem:
        read = [Finding("fail", "rows", str(problem))]
        try:
            source = read_source(path, **{**options, "skip": True, "connection": open_duckdb()})
        except (FormatError, duckdb.Error):
            return Examination(tuple(read))
        left_out = f"{source.skipped:,} wrong rows; all that follows is about the others"
        read.append(Finding("note", "without them", left_out))
    except OSError as problem:
        return Examination((Finding("fail", "file", str(problem)),))
    rates = source.connection.execute(
        f"SELECT rank, sum(shown), sum(clicked) FROM {results_of(source)} GROUP BY rank ORDER BY rank"
    ).fetchall()
    return Examination((*read, *_findings(source)), tuple((int(r), float(n), float(c)) for r, n, c in rates), source)


def _findings(source: LogSource) -> Iterator[Finding]:
    """All findings on the rows of a log that are right."""
    if source.uses:
        yield from _used(source)
    results, shows, clicks, queries, documents = _one(
        source,
        "SELECT count(*), coalesce(sum(shown), 0), coalesce(sum(clicked), 0), count(DISTINCT query), "
        f"count(DISTINCT (query, document)) FROM {results_of(source)}",
    )
    if not results:
        yield Finding("fail", "contents", "no results")
        return
    told = f"{shows:,.0f} shows and {clicks:,.0f} clicks on {documents:,} documents of {queries:,} queries"
    yield _contents(source, f"{told}, at ranks 1 to {source.k}", bool(clicks))
    if source.kind in (TRIAL, PAGES):
        yield from _pages(source)
        yield from _measured(source)
    yield _bias(source)
    if source.kind == PAGES:
        yield from _learning(source)
    if source.kind == TRIAL:
        yield from _two_rankers(source)
    else:
        text = (
            "the log does not say what two rankers would have shown. For each search log both lists (a, b), what was shown and "
            "what was clicked: then an ordinary A/B test needs several times fewer searches"
        )
        yield Finding("note" if source.kind == ITEMS else "warn", "two rankers", text)
    yield _third(source)


def _one(source: LogSource, query: str) -> tuple[Any, ...]:
    return tuple(source.connection.execute(query).fetchall()[0])


def _contents(source: LogSource, told: str, clicked: bool) -> Finding:
    if source.kind in (TRIAL, PAGES):
        pages, units, days, first, last = _one(
            source, "SELECT count(*), count(DISTINCT unit), count(DISTINCT day), min(day), max(day) FROM impressions"
        )
        when = f"on {first}" if days == 1 else f"on {days:,} days from {first} to {last}"
        when = when if first.year > LINES else "without times"
        told = f"{pages:,} searches of {units:,} visitors {when}: {told}"
    return Finding("pass", "contents", told) if clicked else Finding("fail", "contents", f"{told}: nothing was clicked")


def _used(source: LogSource) -> Iterator[Finding]:
    """Findings on the searches, clicks, carts and orders of a log of several kinds of rows, and on its other events."""
    clicks = [one for one in source.uses if one.kind in source.actions]
    values = [one for one in source.uses if one.kind in VALUES and one.kind not in source.actions]
    yield _share("searches", source.searches, again=False)
    if clicks:
        yield _share("clicks", clicks)
    else:
        yield Finding("fail", "clicks", f"there is no event {' or '.join(source.actions)}: --action names others")
    if values:
        yield _share("carts and orders", values)
    other = Counter[str]()
    for one in source.uses:
        other[one.kind] += one.count if one.use == NO_USE else 0
    if told := ", ".join(f"{count:,} {kind}" for kind, count in other.most_common() if count):
        yield Finding("note", "other events", f"{told}: no clicks and no values (--action NAME makes one a click)")
    if any(one.use == FROM_IMPRESSIONS for one in source.searches):
        text = (
            "where queries have no hit ids the list is made of impression events, which pages often send as results scroll "
            "into view. If yours do, it is as deep as somebody scrolled, and position bias is that of people who came so far"
        )
        yield Finding("note", "lists", text)


def _share(name: str, uses: Sequence[Use], *, again: bool = True) -> Finding:
    """Finding on how many were used and why the others were not; those that only repeat another do not count against it."""
    count = sum(one.count for one in uses)
    used = sum(one.count for one in uses if one.used)
    fine = sum(one.count for one in uses if one.used or (again and one.use == AGAIN))
    told = f"{used:,} of {count:,} {name} are used"
    kinds = [f"{one.use} ({one.count:,})" for one in uses if one.used]
    if len(kinds) > 1:
        told += f": {', '.join(kinds)}"
    rest = Counter[str]()
    for one in uses:
        rest[one.use] += 0 if one.used else one.count
    if left := ", ".join(f"{use} ({many:,})" for use, many in rest.items() if many):
        told += f"; not used: {left}"
    status = "fail" if not used and name in ("searches", "clicks") else "pass" if fine >= USABLE * count else "warn"
    return Finding(status, name, told)


def _pages(source: LogSource) -> Iterator[Finding]:
    """Findings on pages without clicks and on large units."""
    pages, clicked, largest = _one(
        source,
        "SELECT count(*), avg(CASE WHEN list_sum(clicked) > 0 THEN 1.0 ELSE 0 END), "
        "(SELECT max(n) FROM (SELECT count(*) AS n FROM impressions GROUP BY unit)) FROM impressions",
    )
    if clicked > ALWAYS_CLICKED:
        text = (
            f"{clicked:.1%} of the pages have a click: were those without one logged? Without them every click rate is too "
            "high, and position bias too flat"
        )
        yield Finding("warn", "pages without a click", text)
    if pages >= 1000 and largest > LARGE_UNIT * pages:
        text = f"one visitor has {largest:,} of {pages:,} searches: a robot, or a missing id?"
        yield Finding("warn", "visitors", text)


def _measured(source: LogSource) -> Iterator[Finding]:
    """Findings on attributes of searches, on what is known of visitors, and on events after searches."""
    for name, values in source.latest.attributes.attributes:
        yield Finding("note", f"attribute {name}", f"values {', '.join(values)}; all others count as other")
    for name in source.latest.covariates:
        yield _covariate(source, name)
    rows = source.connection.execute(
        "SELECT action, count(*), sum(amount) / 1000000 FROM events WHERE action <> 'click' GROUP BY action "
        "ORDER BY count(*) DESC, action"
    ).fetchall()
    if rows:
        told = (f"{count:,} {action}" + (f" worth {amount:,.2f}" if amount else "") for action, count, amount in rows)
        yield Finding("note", "events", f"{', '.join(told)}: for metrics (estimate --metric)")


def _covariate(source: LogSource, name: str) -> Finding:
    """Finding on a covariate, which must not change with what visitors are shown."""
    units, known, changed, mean, spread = _one(
        source,
        "SELECT count(*), count(first), count(*) FILTER (low < high), coalesce(avg(first), 0), coalesce(stddev_pop(first), 0) "
        "FROM (SELECT first(z ORDER BY time, impression) AS first, min(z) AS low, max(z) AS high "
        f"FROM (SELECT unit, time, impression, {covariate(name)} AS z FROM impressions) GROUP BY unit)",
    )
    told = f"known of {known:,} of {units:,} visitors, mean {mean:.4g}, standard deviation {spread:.3g}"
    if not known or not spread:
        told += ": it tells nobody from others, and nothing is adjusted by it"
    elif changed:
        told += (
            f"; it changes between searches of {changed:,} of them. It must be known before the trial: what can have come of "
            "it makes estimates wrong. The value of the first search counts"
        )
    return Finding("note" if known and spread and not changed else "warn", f"covariate {name}", told)


def _bias(source: LogSource) -> Finding:
    if source.k == 1:
        return Finding("pass", "position bias", "one rank has none")
    try:
        bias = position_bias(source)
    except NotIdentifiable as refusal:
        text = (
            f"it cannot be told from relevance: {refusal}. Show the same document at several ranks of the same query: swap "
            "neighbours on a part of the traffic, or run a trial"
        )
        return Finding("fail", "position bias", text)
    usable = bias.theta[1:] > 0
    relative = np.divide(bias.standard_error[1:], bias.theta[1:], out=np.full(bias.k - 1, np.inf), where=usable)
    worst = int(np.nanargmax(relative)) if not np.isnan(relative).all() else 0
    theta = ", ".join(f"{value:.2f}" for value in bias.theta)
    told = f"theta {theta}; least sure at rank {worst + 2}, +- {bias.standard_error[worst + 1]:.3f}; {bias.identifiability}"
    return Finding("pass" if relative[worst] < WELL_KNOWN else "warn", "position bias", told)


def _learning(source: LogSource) -> Iterator[Finding]:
    """Findings on whether the ranker moves documents because of their clicks; none for a log without times."""
    name, (first, last) = "changes over time", _one(source, "SELECT min(day), max(day) FROM impressions")
    if source.k == 1 or first == last or first.year <= LINES:
        return
    effect = day_effect(source)
    if effect is None:
        text = (
            f"fewer than 20 queries, or than {ENOUGH_CLICKS} clicks on documents that stood at several ranks on the same day. "
            "So the log cannot tell whether the ranker learns from clicks; if it does, position bias is not right"
        )
        yield Finding("note", name, text)
        return
    worst = int(np.argmax(np.abs(effect.pooled - effect.within)))
    told = (
        f"theta at rank {worst + 1}: {effect.pooled[worst]:.2f} pooled, {effect.within[worst]:.2f} within days; "
        f"mean difference {effect.difference:+.3f} +- {effect.standard_error:.3f}"
    )
    if not effect.significant:
        yield Finding("pass", name, f"this ranker does not seem to learn from clicks: {told}")
    elif effect.difference > 0:
        remedy = "Compare within periods: ranktrial bias --within day"
        yield Finding("warn", name, f"this ranker seems to learn from clicks: {told}. {remedy}")
    else:
        text = (
            f"this ranker seems to learn from clicks within a day, or to follow what changes: {told}. Compare within periods "
            "in which it stayed the same: ranktrial bias --within COLUMN, where COLUMN is its version"
        )
        yield Finding("warn", name, text)


def _two_rankers(source: LogSource) -> Iterator[Finding]:
    """Findings on the two rankers: whether the lists differ, and whether the A/B traffic has the split that was meant."""
    designs, same, plain = _one(
        source,
        "SELECT count(*), avg(CASE WHEN a = b THEN 1.0 ELSE 0 END), avg(CASE WHEN plain THEN 1.0 ELSE 0 END) FROM designs",
    )
    text = f"both lists are logged for every search, {designs:,} designs; they are the same in {same:.1%} of them"
    yield Finding("fail" if same == 1 else "pass", "two rankers", text)
    arms, of_a, expected, variance = _one(
        source,
        """SELECT count(*), count(*) FILTER (arm = 'a'), sum(p), sum(p * (1 - p)) FROM (
        SELECT arm, probabilities[-2] / (probabilities[-2] + probabilities[-1]) AS p
        FROM impressions JOIN designs USING (version, design) WHERE arm IS NOT NULL)""",
    )
    if not plain or not arms:
        none = "none was drawn" if plain else "there is none"
        yield Finding("warn", "A/B traffic", f"{none}: nothing tests what the estimate assumes of clicks")
        return
    z = (of_a - expected) / np.sqrt(variance) if variance > 0 else 0.0
    chance = float(2 * normal_cdf(-abs(z)))
    told = f"{arms:,} searches, {of_a / arms:.2%} of them A's, expected {expected / arms:.2%} (p = {chance:.2g})"
    if chance < UNLIKELY:
        told += ": this is not the split that was meant; find out what loses searches of one arm before you trust any number"
    yield Finding("fail" if chance < UNLIKELY else "pass", "A/B traffic", told)


def _third(source: LogSource) -> Finding:
    """Finding on whether the log can value rankers that did not take part."""
    if source.kind == ITEMS:
        low, high = _one(source, "SELECT min(propensity), max(propensity) FROM items")
        text = (
            f"every result has its propensity, {low:.3g} to {high:.3g}: any two rankers can be evaluated on the ranks that "
            f"were drawn (ranktrial estimate LOG --a A.run --b B.run). A click can weigh up to {1 / low:,.0f}"
        )
    elif source.kind == TRIAL:
        rankings, covered = _one(
            source,
            """SELECT avg(len(list_filter(probabilities, lambda p: p > 0))), avg(len(list_distinct(list_filter(rankings,
            lambda s: s > 0))) / len(documents)) FROM designs""",
        )
        text = (
            f"the rankings that could be shown are known: {rankings:.3g} for a search on average, with {covered:.0%} of the "
            "candidates. Rankers that show only these candidates can be evaluated (--a A.run --b B.run)"
        )
    else:
        text = (
            "no: the log does not say with what probability anything was shown. Log the rankings that could have been shown "
            "with their probabilities (rankings), or the probability of each result at its rank (propensity), and let them be "
            "random"
        )
    return Finding("pass" if source.kind in (ITEMS, TRIAL) else "warn", "a third ranker", text)
