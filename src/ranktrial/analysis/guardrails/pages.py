"""Checks of the integration: whether pages show the drawn rankings, and whether events belong to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.guardrails.advice import advised
from ranktrial.analysis.guardrails.status import WORST_FIRST, Guardrail, Status, above, few, unknown
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

    def less(self, units: float) -> UnitsOutOfOrder:
        """Return the evidence without so many units, for whom there is another explanation."""
        left = [max(have - units, 0.0) for have in self[:4]]
        return UnitsOutOfOrder(int(left[0]), left[1], int(left[2]), left[3], self.compared)

    @property
    def share(self) -> float:
        """Share of the units that were compared."""
        return self.weight / self.compared if self.compared else 0.0

    def status(self, log: Log, warn: float, fail: float) -> Status:
        """Status by the share; a failure needs some units, a share of all, and enough events with a key on their own."""
        if self.units < FEWEST:
            return "pass"
        least = max(FEWEST, OF_ALL * log.cohorts.count)
        if self.keyed_units >= least and self.keyed_weight > fail * self.compared:
            return "fail"
        return "warn" if self.share > warn else "pass"


def _pages(log: Log, kind: Mark, *, keyed: bool) -> Counter[int]:
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
def shown_as_drawn(analysis: Analysis, tallies: Mapping[str, int]) -> Guardrail:
    """Pages against draws, by what is known of pages.

    Best by what pages say they displayed, else by positions that click events claim, else by clicks on what is not on the
    drawn page. These belong to later pages; but a later page that nobody asked for was not shown.
    """
    name = "the page shows what was drawn"
    found = [_seen(analysis.log), _positions(analysis.log), _off_page(analysis, tallies)]
    known = [one for one in found if one is not None]
    if not known:
        return unknown(
            name, "it takes positions in click events, seen events, or rank(size=...) with the size of your page"
        )
    status, value, _ = min(known, key=lambda one: (WORST_FIRST.index(one[0]), -one[1]))
    text = "; ".join(text for _, _, text in known)
    return Guardrail(name=name, status=few(analysis, status), value=value, text=f"{text}.")


Found = tuple[Status, float, str] | None


def _seen(log: Log) -> Found:
    return _compared(log, Mark.SEEN, Mark.SEEN_OTHERWISE, "pages that were seen")


def _positions(log: Log) -> Found:
    found = _compared(log, Mark.AT_RANK, Mark.ELSEWHERE, "pages that were clicked, with a position,")
    if found is None or found[0] == "pass":
        return found
    return *found[:2], f"{found[2]} (positions count from 1)"


def _compared(log: Log, good: Mark, bad: Mark, what: str) -> Found:
    pages = _pages(log, good, keyed=False) + _pages(log, bad, keyed=False)
    if not pages:
        return None
    evidence = UnitsOutOfOrder.of(log, bad, len(pages), pages)
    differ, agree = (_pages(log, kind, keyed=False).total() for kind in (bad, good))
    text = f"{differ:,} of {agree + differ:,} {what} are not as drawn"
    if differ:
        text += f", those of {counted(evidence.units, 'visitor')} of {evidence.compared:,}"
    return evidence.status(log, *OTHERWISE), evidence.share, text


def _off_page(analysis: Analysis, tallies: Mapping[str, int]) -> Found:
    """Units with clicks off the drawn page: a later page that was asked for may explain three times as many as a first one."""
    log, off, later = analysis.log, tallies.get(names.OFF_PAGE, 0), tallies.get(names.LATER_PAGES, 0)
    impressions, units = len(log), len(_pages(log, Mark.OFF_PAGE, keyed=False))
    ctr = analysis.clicks / max(impressions, 1)
    explained = later * max(ctr, min(1.0, 3 * ctr))
    unexplained = UnitsOutOfOrder.of(log, Mark.OFF_PAGE, _clicking(log) + units).less(explained)
    if not analysis.clicks + off or (later > impressions / 2 and not unexplained.weight):
        return None
    asked = f"{later:,} later pages were asked for" if later else "no later page was asked for"
    text = f"{off:,} of {analysis.clicks + off:,} clicks are off the drawn page, {asked}"
    return unexplained.status(log, *UNEXPLAINED), unexplained.share, text


@advised(
    "duplicate clicks",
    "data",
    "Every click is sent once",
    cause="A cached page shares its id among visitors, or the page sends each click twice.",
    remedy="Do not cache what rank returned; look for two listeners on the same link.",
)
def duplicates(analysis: Analysis, tallies: Mapping[str, int]) -> Guardrail:
    """Click events that were there before, beyond what retries and impatient fingers explain.

    By units, each for the share of its clicked pages with a click that was sent again: one visitor can send as many as they
    like, and is one visitor. It fails only where most events are repetitions too: a page that sends every click twice does no
    harm.
    """
    name, again = "duplicate clicks", tallies.get(names.DUPLICATES, 0)
    log, once = analysis.log, analysis.clicks + tallies.get(names.OFF_PAGE, 0)
    if not once + again:
        return unknown(name, "it takes clicks")
    evidence = UnitsOutOfOrder.of(log, Mark.AGAIN, _clicking(log), _clicked_pages(log, Mark.AGAIN))
    text = f"{again:,} of {once + again:,} click events were there before"
    text += (
        f", from {counted(evidence.units, 'visitor')} of {evidence.compared:,} who click." if evidence.units else "."
    )
    status = evidence.status(log, *REPEATED)
    if status == "fail" and (again <= REPEATED[1] * (once + again) or once + again < 100):
        status = "warn"
    if status != "pass":
        text += " Are pages cached, so that many visitors share a search's id? Or is every click sent twice?"
    return Guardrail(name=name, status=status, value=evidence.share, text=text)


@advised(
    "clicks",
    "data",
    "Clicks belong to what was shown",
    cause="Events do not arrive, arrive late, carry another id than the search's, or come from robots.",
    remedy="Send the id that rank returned with every click, at once; what is not counted is listed under Left out.",
)
def clicks(analysis: Analysis, tallies: Mapping[str, int]) -> Guardrail:
    """Clicks that belong to nothing that was shown, by the units that send them."""
    strange = ("clicks without impression", "clicks on what was not shown", "clicks with an id that is not ours")
    others = (
        names.DUPLICATES,
        "late clicks",
        names.OFF_PAGE,
        "clicks on later views",
        "clicks on fallbacks",
        "clicks on void impressions",
        names.ERASED,
        REFUSED,
        names.NO_TRIAL,
    )
    log, impressions, counting = analysis.log, len(analysis.log), analysis.clicks
    if not counting and impressions >= 100:
        none = f"No click counts after {impressions:,} searches: do events arrive, with the search's id?"
        return Guardrail(name="clicks", status="fail" if impressions >= 1_000 else "warn", value=0.0, text=none)
    # By units: one visitor can send as many strange clicks as they like, and is one visitor. Impressions that are not stored
    # have no unit, and count as one each.
    lost_pages, lost_public = tallies.get(names.NOT_STORED, 0), tallies.get(names.NOT_STORED_PUBLIC, 0)
    clicking, of_whom = _clicking(log), [len(_pages(log, Mark.STRANGE, keyed=keyed)) for keyed in (False, True)]
    units, keyed = of_whom[0] + lost_pages, of_whom[1] + lost_pages - lost_public
    evidence = UnitsOutOfOrder(units, units, keyed, keyed, clicking + units)
    share = evidence.share
    status = few(analysis, evidence.status(log, *STRANGE))
    if status == "pass" and share > STRANGE[0]:
        status = "warn"
    # Ids can be made up by anybody, so that they are a reason to look, not to distrust the clicks that have a right one.
    made_up = tallies.get("clicks with an id that is not ours", 0)
    lost = sum(tallies.get(name, 0) for name in (strange[0], strange[2], names.NO_TRIAL))
    lost += sum(_pages(log, kind, keyed=False).total() for kind in (Mark.STRANGE, Mark.LATE))
    if status == "pass" and (made_up > 0.01 * (counting + made_up) or lost > 0.2 * (counting + lost)):
        status = "warn"
    if not counting + lost + units:
        return unknown("clicks", "it takes clicks")
    told = ", ".join(f"{tallies[name]:,} {name}" for name in (*strange, *others) if tallies.get(name))
    text = f"{counting:,} clicks count" + (f"; not counted: {told}." if told else ", all as they should be.")
    if units:
        text += f" Strange ones are from {units:,} of {clicking + units:,} visitors who click."
    return Guardrail(name="clicks", status=status, value=share, text=text)


def _clicking(log: Log) -> int:
    """Number of units that have clicked."""
    return int((np.bincount(log.units.place[log.clicks_each > 0]) > 0).sum())


def _clicked_pages(log: Log, kind: Mark) -> Counter[int]:
    """Number of clicked pages of each unit with a mark."""
    marked = np.array(list(_pages(log, kind, keyed=False)), np.int64)
    found = Counter[int]()
    if len(marked):
        units = log.unit[log.clicks_each > 0]
        found.update(units[np.isin(units, marked)].tolist())
    return found


@advised(
    "fallbacks",
    "data",
    "Visitors get what was drawn for them",
    cause="The store is slow, full or overloaded, or requests are not in order.",
    remedy="Look at the reasons, and at the log of the service.",
)
def faults(analysis: Analysis, tallies: Mapping[str, int]) -> Guardrail:
    """Share of impressions that were lost, or showed A because something was wrong."""
    reasons = {
        name: count for name, count in tallies.items() if name.startswith("fallback: ") and "stopped" not in name
    }
    failed = tallies.get("failed writes", 0)
    bad = max(sum(reasons.values()), failed)  # a write that failed while rank waited for it is a fallback as well
    for name in ("damaged impressions", "not taken back"):
        bad += tallies.get(name, 0)
    reasons |= {n: tallies[n] for n in ("failed writes", "damaged impressions", "not taken back") if tallies.get(n)}
    share = bad / (len(analysis.log) + bad) if bad else 0.0
    told = "; ".join(f"{count:,} {name}" for name, count in sorted(reasons.items()))
    notes = [f"{tallies[n]:,} times the {n}" for n in ("clock went backwards",) if tallies.get(n)]
    text = " ".join([f"Left out of the estimate: {told}." if told else "No search was left out.", *notes])
    return Guardrail(name="fallbacks", status=few(analysis, above(share, 0.001, 0.01)), value=share, text=text)


@advised(
    "latency",
    "visitors",
    "Visitors do not wait for rank",
    cause="The machine is busy, or lists are long and all queries are new.",
    remedy="Give the service a processor of its own, or send shorter lists.",
)
def latency(analysis: Analysis, tallies: Mapping[str, int], nanoseconds: Sequence[int]) -> Guardrail:
    """Calls of ``rank`` that took long, in all processes; no matter of trust, so it never fails."""
    calls = max(len(analysis.log), len(nanoseconds))
    if not calls:
        return unknown("latency", "nothing has been shown")
    slow = tallies.get(names.SLOW, 0) / calls
    text = f"{100 * slow:.2g} calls of rank in 100 searches took more than 5 ms."
    if nanoseconds:
        text += f" In this process 99 of 100 took less than {np.percentile(np.array(nanoseconds), 99) / 1e6:.2f} ms."
    status: Status = "warn" if slow > 0.01 and calls >= 100 else "pass"
    return Guardrail(name="latency", status=status, value=slow, text=text)
