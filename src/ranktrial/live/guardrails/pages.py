"""Checks of the integration: whether pages show what was drawn, and whether events belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ranktrial.inference.impressions import Impressions
from ranktrial.live import tallies as names
from ranktrial.live.analysis import Analysis
from ranktrial.live.guardrails.status import above, few, unknown
from ranktrial.live.schemas import WORST_FIRST, Guardrail, Status
from ranktrial.live.stores.base import REFUSED

LEAST_STRANGE = 5  # units with strange clicks that make a guardrail fail

OTHERWISE = (0.002, 0.01)  # share of pages, or of clicks by their positions, that are not as drawn: warn, fail
UNEXPLAINED = (0.001, 0.005)  # share of clicks off the drawn page, of which wrong pages have fewer
FEWEST = 5  # of them: fewer are an accident
REPEATED = (0.2, 0.5)  # share of click events that were there before


def shown_as_drawn(analysis: Analysis, tallies: Mapping[str, int]) -> Guardrail:
    """Pages against draws, by what is known of pages.

    Best by what pages say they displayed, else by positions that click events claim, else by clicks on what is not on the
    drawn page. These belong to later pages; but a later page that nobody asked for was not shown.
    """
    name = "the page shows what was drawn"
    found = [_seen(tallies), _positions(tallies), _off_page(analysis, tallies)]
    known = [one for one in found if one is not None]
    if not known:
        return unknown(
            name, "it takes positions in click events, seen events, or rank(size=...) with the size of your page"
        )
    status, value, _ = min(known, key=lambda one: (WORST_FIRST.index(one[0]), -one[1]))
    text = "; ".join(text for _, _, text in known)
    return Guardrail(name=name, status=few(analysis, status), value=value, text=f"{text}.")


Found = tuple[Status, float, str] | None


def _seen(tallies: Mapping[str, int]) -> Found:
    return _compared(tallies, names.SEEN, names.SEEN_OTHERWISE, "pages that were seen")


def _positions(tallies: Mapping[str, int]) -> Found:
    found = _compared(tallies, names.AT_RANK, names.ELSEWHERE, "clicks with a position")
    if found is None or found[0] == "pass":
        return found
    return *found[:2], f"{found[2]} (positions count from 1)"


def _compared(tallies: Mapping[str, int], good: str, bad: str, what: str) -> Found:
    agree, differ = tallies.get(good, 0), tallies.get(bad, 0)
    if not agree + differ:
        return None
    share = differ / (agree + differ)
    status = above(share, *OTHERWISE) if differ >= FEWEST else "pass"
    return status, share, f"{differ:,} of {agree + differ:,} {what} are not as drawn"


def _off_page(analysis: Analysis, tallies: Mapping[str, int]) -> Found:
    """Clicks off the drawn page: a later page that was asked for may explain three times as many as a first one has."""
    off, later, impressions = tallies.get(names.OFF_PAGE, 0), tallies.get(names.LATER_PAGES, 0), len(analysis.log)
    ctr = analysis.clicks / max(impressions, 1)
    explained = later * max(ctr, min(1.0, 3 * ctr))
    unexplained = max(off - explained, 0.0)
    if not analysis.clicks + off or (later > impressions / 2 and not unexplained):
        return None
    share = unexplained / (analysis.clicks + off)
    status = above(share, *UNEXPLAINED) if unexplained >= FEWEST else "pass"
    asked = f"{later:,} later pages were asked for" if later else "no later page was asked for"
    return status, share, f"{off:,} of {analysis.clicks + off:,} clicks are off the drawn page, {asked}"


def duplicates(analysis: Analysis, tallies: Mapping[str, int]) -> Guardrail:
    """Click events that were there before, beyond what retries and impatient fingers explain."""
    name, again = "duplicate clicks", tallies.get(names.DUPLICATES, 0)
    once = analysis.clicks + tallies.get(names.OFF_PAGE, 0)
    if not once + again:
        return unknown(name, "it takes clicks")
    share = again / (once + again)
    text = f"{again:,} of {once + again:,} click events were there before."
    status = above(share, *REPEATED) if again >= FEWEST else "pass"
    if status == "fail" and once + again < 100:  # events, not impressions: of these a cache leaves few
        status = "warn"
    if status != "pass":
        text += " Are pages cached, so that many visitors share an impression's id? Or is every click sent twice?"
    return Guardrail(name=name, status=status, value=share, text=text)


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
        REFUSED,
        names.NO_TRIAL,
    )
    impressions, counted = len(analysis.log), analysis.clicks
    if not counted and impressions >= 100:
        none = f"No click counts after {impressions:,} impressions: do events arrive, with the impression's id?"
        return Guardrail(name="clicks", status="fail" if impressions >= 1_000 else "warn", value=0.0, text=none)
    # By units: one visitor can send as many strange clicks as they like, and is one visitor.
    units = len(analysis.log.strange_units) + tallies.get("impressions that are not stored, with clicks", 0)
    clicking = _clicking(analysis.log)
    share = units / (clicking + units) if units else 0.0
    status = few(analysis, above(share, 0.01, 0.05))
    if units < LEAST_STRANGE and status == "fail":
        status = "warn"
    # Ids can be made up by anybody, so that they are a reason to look, not to distrust the clicks that have a right one.
    made_up = tallies.get("clicks with an id that is not ours", 0)
    lost = sum(tallies.get(name, 0) for name in (*strange, "late clicks", names.NO_TRIAL))
    if status == "pass" and (made_up > 0.01 * (counted + made_up) or lost > 0.2 * (counted + lost)):
        status = "warn"
    if not counted + lost + units:
        return unknown("clicks", "it takes clicks")
    told = ", ".join(f"{tallies[name]:,} {name}" for name in (*strange, *others) if tallies.get(name))
    text = f"{counted:,} clicks count" + (f"; not counted: {told}." if told else ", all as they should be.")
    if units:
        text += f" Strange ones are from {units:,} of {clicking + units:,} units that click."
    return Guardrail(name="clicks", status=status, value=share, text=text)


def _clicking(log: Impressions) -> int:
    """How many units have clicked."""
    clicked = np.zeros(log.cohorts.count, bool)
    for units in log.by_rows("clicking", lambda rows: log.arrivals(rows)[log.clicks_on(rows) > 0].astype(np.int32)):
        clicked[units] = True
    return int(clicked.sum())


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
    text = " ".join([f"Left out of the estimate: {told}." if told else "No impression was left out.", *notes])
    return Guardrail(name="fallbacks", status=few(analysis, above(share, 0.001, 0.01)), value=share, text=text)


def latency(analysis: Analysis, tallies: Mapping[str, int], nanoseconds: Sequence[int]) -> Guardrail:
    """Calls of ``rank`` that took long, in all processes; no matter of trust, so it never fails."""
    calls = max(len(analysis.log), len(nanoseconds))
    if not calls:
        return unknown("latency", "nothing has been shown")
    slow = tallies.get(names.SLOW, 0) / calls
    text = f"{100 * slow:.2g} calls of rank in 100 impressions took more than 5 ms."
    if nanoseconds:
        text += f" In this process 99 of 100 took less than {np.percentile(np.array(nanoseconds), 99) / 1e6:.2f} ms."
    status: Status = "warn" if slow > 0.01 and calls >= 100 else "pass"
    return Guardrail(name="latency", status=status, value=slow, text=text)
