"""Checks of the integration: whether pages show the drawn rankings, and whether events belong to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.guardrails.status import WORST_FIRST, Found, Status, above, advised, few, unknown
from ranktrial.log import Log
from ranktrial.store import tallies as names
from ranktrial.store.base import REFUSED
from ranktrial.store.marks import PUBLIC, Mark
from ranktrial.texts import counted

OTHERWISE = (0.002, 0.01)  # share of pages, or of clicks by their positions, that are not as drawn: warn, fail
UNEXPLAINED = (0.001, 0.005)  # share of clicks off the drawn page, of which wrong pages have fewer
REPEATED = (0.2, 0.5)  # share of clicked pages, and of click events, that were there before
STRANGE = (0.01, 0.05)  # share of units that click on what they were not shown
FEWEST = 5  # units: fewer are an accident
OF_ALL = 0.001  # share of all units without which nothing fails


class UnitsOutOfOrder(NamedTuple):
    """Units with something out of order.

    Attributes:
        units: Number of such units.
        weight: Sum over these units of the share of their pages that are out of order.
        keyed_units: Number of such units by events that came with a key; anybody can make up the others.
        keyed_weight: Sum over the keyed units of these shares.
        compared: Number of units that can be checked.
    """

    units: int
    weight: float
    keyed_units: int
    keyed_weight: float
    compared: int

    @classmethod
    def of(cls, log: Log, kind: Mark, compared: int, pages: Mapping[int, int] | None = None) -> UnitsOutOfOrder:
        """Count units by the marks of their impressions; ``pages`` has the compared pages of a unit, which else counts as 1."""
        of_whom = [_pages(log, kind, keyed=keyed) for keyed in (False, True)]
        weights = [
            sum(1.0 if pages is None else count / max(pages.get(unit, 0), count) for unit, count in units.items())
            for units in of_whom
        ]
        return cls(len(of_whom[0]), weights[0], len(of_whom[1]), weights[1], compared)

    def judged(self, log: Log, warn: float, fail: float) -> tuple[Status, float]:
        """Status by the share of the units that were compared, and that share.

        A failure needs some units, a share of all, and enough events with a key on their own.
        """
        share = self.weight / self.compared if self.compared else 0.0
        if self.units < FEWEST:
            return "pass", share
        least = max(FEWEST, OF_ALL * log.cohorts.count)
        if self.keyed_units >= least and self.keyed_weight > fail * self.compared:
            return "fail", share
        return "warn" if share > warn else "pass", share


def _pages(log: Log, kind: Mark, *, keyed: bool = False) -> Counter[int]:
    """Number of impressions of each unit that have a mark; with ``keyed`` only from events that came with a key."""
    found = Counter[int]()
    for number in (kind,) if keyed else (kind, kind | PUBLIC):
        found.update(log.marked[number].tolist() if number in log.marked else ())
    return found


@advised(
    "the page shows what was drawn",
    "data",
    "Pages show what was drawn",
    cause="A cache hands one answer to many visitors, a template sorts again, or a fallback shows A's list with our id.",
    remedy="Show the ranking as it came, to the visitor it was drawn for. Events with positions or seen lists tell which page "
    "does not.",
)
def shown_as_drawn(analysis: Analysis, tallies: Mapping[str, int]) -> Found:
    """Pages against draws, by what is known of pages.

    Best by what pages say they displayed, else by positions that click events claim, else by clicks on what is not on the
    drawn page. These belong to later pages; but a later page that nobody asked for was not shown.
    """
    log = analysis.log
    seen = _compared(log, Mark.SEEN, Mark.SEEN_OTHERWISE, "pages that were seen")
    at_rank = _compared(log, Mark.AT_RANK, Mark.ELSEWHERE, "pages that were clicked, with a position,")
    if at_rank is not None and at_rank.status != "pass":
        at_rank = at_rank._replace(text=f"{at_rank.text} (positions count from 1)")
    known = [one for one in (seen, at_rank, _off_page(analysis, tallies)) if one is not None]
    if not known:
        return unknown("it takes positions in click events, seen events, or rank(size=...) with the size of your page")
    worst = min(known, key=lambda one: (WORST_FIRST.index(one.status), -one.value))
    return Found(few(analysis, worst.status), worst.value, f"{'; '.join(one.text for one in known)}.")


def _compared(log: Log, good: Mark, bad: Mark, what: str) -> Found | None:
    """Pages that were marked as good or bad; None where none were."""
    agree, differ = _pages(log, good), _pages(log, bad)
    pages = agree + differ
    if not pages:
        return None
    text = f"{differ.total():,} of {pages.total():,} {what} are not as drawn"
    if differ:
        text += f", those of {counted(len(differ), 'visitor')} of {len(pages):,}"
    return Found(*UnitsOutOfOrder.of(log, bad, len(pages), pages).judged(log, *OTHERWISE), text)


def _off_page(analysis: Analysis, tallies: Mapping[str, int]) -> Found | None:
    """Units with clicks off the drawn page: a later page that was asked for may explain three times as many as a first one."""
    log, off, later = analysis.log, tallies.get(names.OFF_PAGE, 0), tallies.get(names.LATER_PAGES, 0)
    ctr = analysis.clicks / max(len(log), 1)
    explained = later * max(ctr, min(1.0, 3 * ctr))
    of_all = UnitsOutOfOrder.of(log, Mark.OFF_PAGE, _clicking(log) + len(_pages(log, Mark.OFF_PAGE)))
    units, weight, keyed_units, keyed_weight = (max(have - explained, 0.0) for have in of_all[:4])
    if not analysis.clicks + off or (later > len(log) / 2 and not weight):
        return None
    asked = f"{later:,} later pages were asked for" if later else "no later page was asked for"
    text = f"{off:,} of {analysis.clicks + off:,} clicks are off the drawn page, {asked}"
    unexplained = UnitsOutOfOrder(int(units), weight, int(keyed_units), keyed_weight, of_all.compared)
    return Found(*unexplained.judged(log, *UNEXPLAINED), text)


@advised(
    "duplicate clicks",
    "data",
    "Every click is sent once",
    cause="A cached page shares its id among visitors, or the page sends each click twice.",
    remedy="Do not cache what rank returned; look for two listeners on the same link.",
)
def duplicates(analysis: Analysis, tallies: Mapping[str, int]) -> Found:
    """Click events that were there before, beyond what retries and impatient fingers explain.

    By units, each for the share of its clicked pages with a click that was sent again: one visitor can send as many as they
    like, and is one visitor. It fails only where most events are repetitions too: a page that sends every click twice does no
    harm.
    """
    again = tallies.get(names.DUPLICATES, 0)
    log, once = analysis.log, analysis.clicks + tallies.get(names.OFF_PAGE, 0)
    if not once + again:
        return unknown("it takes clicks")
    clicked = log.unit[log.clicks_each > 0]
    marked = np.array(list(_pages(log, Mark.AGAIN)), np.int64)
    evidence = UnitsOutOfOrder.of(log, Mark.AGAIN, _clicking(log), Counter(clicked[np.isin(clicked, marked)].tolist()))
    text = f"{again:,} of {once + again:,} click events were there before"
    text += (
        f", from {counted(evidence.units, 'visitor')} of {evidence.compared:,} who click." if evidence.units else "."
    )
    status, share = evidence.judged(log, *REPEATED)
    if status == "fail" and (again <= REPEATED[1] * (once + again) or once + again < 100):
        status = "warn"
    if status != "pass":
        text += " Are pages cached, so that many visitors share a search's id? Or is every click sent twice?"
    return Found(status, share, text)


@advised(
    "clicks",
    "data",
    "Clicks belong to what was shown",
    cause="Events do not arrive, arrive late, carry another id than the search's, or come from robots.",
    remedy="Send the id that rank returned with every click, at once; what is not counted is listed under Left out.",
)
def clicks(analysis: Analysis, tallies: Mapping[str, int]) -> Found:
    """Clicks that belong to nothing that was shown, by the units that send them."""
    strange = ("clicks without impression", "clicks on what was not shown", "clicks with an id that is not ours")
    others = (
        names.DUPLICATES, "late clicks", names.OFF_PAGE, "clicks on later views", "clicks on fallbacks",
        "clicks on void impressions", names.ERASED, REFUSED, names.NO_TRIAL,
    )  # fmt: skip
    log, impressions, counting = analysis.log, len(analysis.log), analysis.clicks
    if not counting and impressions >= 100:
        none = f"No click counts after {impressions:,} searches: do events arrive, with the search's id?"
        return Found("fail" if impressions >= 1_000 else "warn", 0.0, none)
    # By units: one visitor can send as many strange clicks as they like, and is one visitor. Impressions that are not stored
    # have no unit, and count as one each.
    lost_pages, lost_public = tallies.get(names.NOT_STORED, 0), tallies.get(names.NOT_STORED_PUBLIC, 0)
    clicking, units = _clicking(log), len(_pages(log, Mark.STRANGE)) + lost_pages
    keyed = len(_pages(log, Mark.STRANGE, keyed=True)) + lost_pages - lost_public
    status, share = UnitsOutOfOrder(units, units, keyed, keyed, clicking + units).judged(log, *STRANGE)
    status = few(analysis, status)
    if status == "pass" and share > STRANGE[0]:
        status = "warn"
    # Ids can be made up by anybody, so that they are a reason to look, not to distrust the clicks that have a right one.
    made_up = tallies.get("clicks with an id that is not ours", 0)
    lost = sum(tallies.get(name, 0) for name in (strange[0], strange[2], names.NO_TRIAL))
    lost += sum(_pages(log, kind).total() for kind in (Mark.STRANGE, Mark.LATE))
    if status == "pass" and (made_up > 0.01 * (counting + made_up) or lost > 0.2 * (counting + lost)):
        status = "warn"
    if not counting + lost + units:
        return unknown("it takes clicks")
    told = ", ".join(f"{tallies[name]:,} {name}" for name in (*strange, *others) if tallies.get(name))
    text = f"{counting:,} clicks count" + (f"; not counted: {told}." if told else ", all as they should be.")
    if units:
        text += f" Strange ones are from {units:,} of {clicking + units:,} visitors who click."
    return Found(status, share, text)


def _clicking(log: Log) -> int:
    """Number of units that have clicked."""
    return int((np.bincount(log.units.place[log.clicks_each > 0]) > 0).sum())


@advised(
    "fallbacks",
    "data",
    "Visitors get what was drawn for them",
    cause="The store is slow, full or overloaded, or requests are not in order.",
    remedy="Look at the reasons, and at the log of the service.",
)
def faults(analysis: Analysis, tallies: Mapping[str, int]) -> Found:
    """Share of impressions that were lost, or showed A because something was wrong."""
    reasons = {
        name: count for name, count in tallies.items() if name.startswith("fallback: ") and "stopped" not in name
    }
    others = {name: tallies.get(name, 0) for name in ("failed writes", "damaged impressions", "not taken back")}
    # A write that failed while rank waited for it is a fallback as well.
    bad = max(sum(reasons.values()), others["failed writes"]) + others["damaged impressions"] + others["not taken back"]
    reasons |= {name: count for name, count in others.items() if count}
    share = bad / (len(analysis.log) + bad) if bad else 0.0
    told = "; ".join(f"{count:,} {name}" for name, count in sorted(reasons.items()))
    text = f"Left out of the estimate: {told}." if told else "No search was left out."
    if backwards := tallies.get("clock went backwards", 0):
        text += f" {backwards:,} times the clock went backwards"
    return Found(few(analysis, above(share, 0.001, 0.01)), share, text)
