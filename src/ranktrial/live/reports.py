"""What is said to people: the verdict and what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from ranktrial.arrays import weighted_counts
from ranktrial.live.analysis import Analysis, forecast
from ranktrial.live.guardrails import SLOW, guardrails
from ranktrial.live.schemas import Contributor, Guardrail, Part, Report
from ranktrial.live.stores.base import ConfigVersion

CONTRIBUTORS = 10


def make_report(
    name: str,
    analyses: Mapping[ConfigVersion, Analysis],
    tallies: Counter[str],
    stopped: bool,
    nanoseconds: Sequence[int] = (),
) -> Report:
    """The report on the last of the versions; the others are there for comparison, never pooled.

    ``tallies`` are those of the last version, ``nanoseconds`` what recent calls of ``rank`` took.
    """
    version, analysis = list(analyses.items())[-1]
    for what, count in analysis.log.left_out.items():
        tallies[what] += count
    sorted_tallies = dict(sorted((what, count) for what, count in tallies.items() if count))
    checks = guardrails(analysis, sorted_tallies, nanoseconds)
    sorted_tallies.pop(SLOW, None)  # chance decides about these; the rest of a report follows from the log
    return Report(
        trial=name,
        version=version.number,
        delta=analysis.delta,
        interval=analysis.interval,
        level=analysis.config.level,
        verdict=verdict(analysis, checks),
        impressions=len(analysis.log),
        clicks=analysis.clicks,
        ctr=analysis.clicks / max(len(analysis.log), 1),
        forecast=forecast(analysis),
        theta=analysis.theta,
        band=analysis.band,
        contributors=contributors(analysis),
        guardrails=checks,
        tallies=sorted_tallies,
        parts=tuple(_part(one, result) for one, result in analyses.items()),
        stopped=stopped,
    )


def _part(version: ConfigVersion, analysis: Analysis) -> Part:
    return Part(
        version=version.number,
        config=analysis.config,
        impressions=len(analysis.log),
        clicks=analysis.clicks,
        delta=analysis.delta,
        interval=analysis.interval,
        verdict=verdict(analysis),
    )


def verdict(analysis: Analysis, checks: tuple[Guardrail, ...] = ()) -> str:
    """One sentence."""
    failed = [check.name for check in checks if check.status == "fail"]
    said = _said(analysis)
    return f"Not to be trusted while a guardrail fails ({', '.join(failed)}): {said}" if failed else said


def _said(analysis: Analysis) -> str:
    low, high = analysis.interval
    smallest = analysis.config.smallest
    if not len(analysis.log):
        return "No impressions yet."
    if not analysis.clicks:
        ask = " Do events arrive, with the impression's id?" if len(analysis.log) >= 100 else ""
        return f"No clicks yet after {len(analysis.log):,} impressions.{ask}"
    if not np.isfinite(low):
        return f"Too early to say after {len(analysis.log):,} impressions and {analysis.clicks:,} clicks."
    told = (
        f"{analysis.delta:+.4f} clicks per impression, {analysis.config.level:.0%} interval {low:+.4f} to {high:+.4f}"
    )
    if low > 0:
        return f"A gets more clicks than B: {told}."
    if high < 0:
        return f"B gets more clicks than A: {told}."
    if smallest is not None and -smallest < low and high < smallest:
        return f"A and B differ by less than {smallest:g}: {told}."
    return f"Neither is ahead yet: {told}."


def contributors(analysis: Analysis) -> tuple[Contributor, ...]:
    """Queries by how far they moved the estimate."""
    log = analysis.log
    if not len(log):
        return ()
    query, size = log.query[log.design], len(log.queries)
    moved = weighted_counts(query, analysis.estimate.x, size) / len(log)
    impressions = np.bincount(query, minlength=size)
    clicks = weighted_counts(query, log.clicks.sum(1).astype(np.float64), size)
    order = np.argsort(-np.abs(moved), kind="stable")[:CONTRIBUTORS]
    return tuple(
        Contributor(query=log.queries[q], impressions=impressions[q], clicks=int(clicks[q]), contribution=moved[q])
        for q in order.tolist()
    )
