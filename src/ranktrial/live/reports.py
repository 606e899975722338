"""What is said to people: the verdict and what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ranktrial.arrays import IntArray, weighted_counts
from ranktrial.inference import Ladder, LeftOut, Rung
from ranktrial.live.analysis import Analysis, forecast, speaking
from ranktrial.live.guardrails import (
    ASSUMPTIONS,
    BIAS,
    BIAS_OVER_TIME,
    COMPANY,
    INDEPENDENCE,
    guardrails,
    measured_above,
)
from ranktrial.live.guardrails.hostile import undone_text
from ranktrial.live.guardrails.over_time import told as told_of
from ranktrial.live.schemas import Contributor, Everyone, Guardrail, HistoryEntry, Part, Reading, Report, Visitors
from ranktrial.live.stores.base import ConfigVersion
from ranktrial.live.tallies import AS_IT_SHOULD_BE

CONTRIBUTORS = 10
MODEL = (ASSUMPTIONS, BIAS, BIAS_OVER_TIME, COMPANY)  # guardrails of the click model
QUERY_UNITS = 10  # by which a query must have been asked to be named: what few have asked may tell who they are


def make_report(
    name: str,
    analyses: Mapping[ConfigVersion, Analysis],
    tallies: Counter[str],
    stopped: bool,
    nanoseconds: Sequence[int] = (),
    whole: tuple[LeftOut, Analysis] | None = None,
    history: Sequence[HistoryEntry] = (),
    query_units: int = QUERY_UNITS,
) -> Report:
    """The report on the last of the versions; the others are there for comparison, never pooled.

    ``tallies`` are those of the last version, ``nanoseconds`` what recent calls of ``rank`` took. ``whole`` is what rules
    and exclusions left out, and the analysis with it. A query is named if at least ``query_units`` units have asked it.
    """
    version, analysis = list(analyses.items())[-1]
    for what, count in analysis.log.left_out.items():
        tallies[what] += count
    sorted_tallies = dict(sorted((what, count) for what, count in tallies.items() if count))
    analysis, checks = settled(analysis, sorted_tallies, nanoseconds)
    for what in AS_IT_SHOULD_BE:
        sorted_tallies.pop(what, None)
    return Report(
        trial=name,
        version=version.number,
        delta=analysis.delta,
        interval=analysis.interval,
        level=analysis.config.level,
        verdict=verdict(analysis, checks),
        reading=None if analysis.rung is None else analysis.rung.name,
        readings=tuple(_reading(analysis.ladder, rung) for rung in analysis.ladder.rungs),
        impressions=len(analysis.log),
        clicks=analysis.clicks,
        ctr=analysis.clicks / max(len(analysis.log), 1),
        forecast=forecast(analysis),
        theta=analysis.theta,
        band=analysis.points,
        contributors=contributors(analysis, query_units),
        guardrails=checks,
        tallies=sorted_tallies,
        parts=tuple(
            _part(one, analysis if one is version else settled(result, {})[0]) for one, result in analyses.items()
        ),
        stopped=stopped,
        visitors=visitors(analysis),
        everyone=None if whole is None else _everyone(*whole),
        history=tuple(history),
    )


def visitors(analysis: Analysis) -> Visitors | None:
    """What the trial cost its visitors in clicks, or gave them; nothing where pages are only A's and B's own lists."""
    gain = analysis.gain
    if gain is None or not gain.ab > 0:
        return None
    found, apart = gain.interval(analysis.config.level), abs(analysis.delta) if np.isfinite(analysis.delta) else 0.0
    if not np.isfinite(found.low):
        return None
    best = gain.ab + apart / 2
    better = (gain.ab + gain.estimate.delta) / best - 1
    how = "" if gain.by_model else ", by clicks on plain traffic alone"
    text = f"Visitors clicked {_more(gain.share)} than in an A/B test ({found.low:+.1%} to {found.high:+.1%}{how})"
    text += f", and {_more(better)} than if all had seen the ranker that is ahead."
    return Visitors(gain=gain.share, interval=found, better=better, text=text)


def _more(share: float) -> str:
    return f"{abs(share):.1%} {'less' if share < 0 else 'more'}"


def _everyone(left_out: LeftOut, analysis: Analysis) -> Everyone:
    analysis, _ = settled(analysis, {})
    said = verdict(analysis)
    why = ", ".join(f"{count:,} by {reason}" for reason, count in left_out.units.items())
    text = f"Left out: {sum(left_out.units.values()):,} units ({why}) with {left_out.impressions:,} impressions."
    return Everyone(
        units=left_out.units,
        without=left_out.impressions,
        delta=analysis.delta,
        interval=analysis.interval,
        verdict=said,
        text=f"{text} With them: {said}",
    )


def settled(
    analysis: Analysis, tallies: Mapping[str, int], nanoseconds: Sequence[int] = ()
) -> tuple[Analysis, tuple[Guardrail, ...]]:
    """The analysis with the reading that may speak, and all guardrails.

    Where what stands above a result changes its clicks by more than the interval allows for, no reading by document and rank
    is right: then plain A/B traffic speaks, if there is enough of it. Where position bias changed, or is not what was given, a
    reading without one does. Where clicks merely go with clicks above them, users may differ, which harms nothing, or leave,
    which does: then a winner is named only where the effect that the log cannot rule out would not undo it, or where plain A/B
    traffic names one.
    """
    above = measured_above(analysis)
    checks = guardrails(analysis, tallies, nanoseconds, above)
    status = {check.name: check.status for check in checks}
    ladder, lowest = analysis.ladder, analysis.ladder.rungs[0]
    failed = [name for name in (COMPANY, BIAS, BIAS_OVER_TIME) if status.get(name) == "fail"]
    right = ladder.rungs if not failed else ladder.rungs[: 1 if COMPANY in failed else 2]
    if analysis.rung not in (None, *right):
        speaks = next((rung for rung in reversed(right) if ladder.stands(rung)), None)
        if speaks is None:
            return replace(analysis, doubt=f'"{failed[0]}" fails, and nothing that assumes less can speak yet'), checks
        analysis = speaking(analysis, speaks)
    if above is not None and status.get(INDEPENDENCE) == "warn" and analysis.rung is not lowest:
        low, high = analysis.interval
        if not (low > max(above.effect.high, 0) or high < min(above.effect.low, 0)):
            if lowest.speaks and (plain := speaking(analysis, lowest)).winner:
                return plain, checks
            effect = f"which may have moved the estimate by {above.effect}"
            return replace(analysis, doubt=f"clicks depend on clicks above them, {effect}"), checks
    return analysis, checks


def readings_agree(analysis: Analysis) -> bool | None:
    """Whether nothing contradicts the reading with the most assumptions; None if nothing could have (yet)."""
    top = analysis.ladder.rungs[-1]
    if len(analysis.ladder.rungs) == 1 or not any(test.upper == top.name for test in analysis.ladder.tests):
        return None
    return settled(analysis, {})[0].rung is top


def _reading(ladder: Ladder, rung: Rung) -> Reading:
    tests = [test.text for test in ladder.tests if test.upper == rung.name]
    waits = f"Waits for: {rung.missing}." if rung.missing else ""
    return Reading(
        name=rung.name,
        assumes=rung.assumes,
        delta=float("nan") if rung.estimate is None else rung.estimate.delta,
        interval=rung.interval,
        contradicted=bool(ladder.contradictions(rung)),
        hidden=ladder.hidden(rung),
        text=" ".join([waits, *tests]).strip(),
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
    # Where the click model fails, what assumes less speaks: that is no reason not to trust it.
    failed = [check.name for check in checks if check.status == "fail" and check.name not in MODEL]
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
        waits = {rung.missing for rung in analysis.ladder.rungs if rung.missing and len(analysis.log) >= 1000}
        early = f"Too early to say after {len(analysis.log):,} impressions and {analysis.clicks:,} clicks."
        return f"{early} Waits for {'; '.join(sorted(waits))}." if waits else early
    delta = analysis.drift.after if analysis.changed else analysis.delta
    told = f"{delta:+.4f} clicks per impression, {analysis.config.level:.0%} interval {analysis.interval}"
    assert analysis.rung is not None
    if len(analysis.ladder.rungs) > 1:
        told += f" ({analysis.rung.name} reading)"
    if not analysis.decides:
        return f"No winner is named, because nothing tests how people click: {told}."
    hidden = analysis.ladder.hidden(analysis.rung)
    if hidden > 0:
        told += f"; a difference below {hidden:.4f} could be due to how people click"
    if analysis.changed:
        told += f"; {told_of(analysis.drift)} Over all of the trial: {analysis.delta:+.4f}"
    elif analysis.drift.status == "warn":
        told += f"; {told_of(analysis.drift)}"
    if analysis.winner:
        better, other = ("A", "B") if analysis.winner > 0 else ("B", "A")
        undone = f"; {text}" if (text := undone_text(analysis)) else ""
        return f"{better} gets more clicks than {other}: {told}{_since(analysis)}{undone}."
    if smallest is not None and -smallest < low and high < smallest:
        return f"A and B differ by less than {smallest:g}: {told}."
    if analysis.doubt and (low > 0 or high < 0):
        return f"No winner is named, because {analysis.doubt}: {told}."
    return f"Neither is ahead yet: {told}."


def _since(analysis: Analysis) -> str:
    """When it was decided, where the interval of today no longer says so."""
    band = analysis.band
    if band is None or analysis.changed or (withdrawn := band.withdrawn_at(0)) is None:
        return ""
    decided = f"decided after {band.decided_at(0):,} units"
    return f"; {decided}, and 0 is inside again since {withdrawn:,}, by chance as far as can be told"


def contributors(analysis: Analysis, query_units: int = QUERY_UNITS) -> tuple[Contributor, ...]:
    """Queries by how far they moved the estimate; those that fewer units have asked are one row, without their names."""
    if analysis.rung is None:
        return ()
    log = analysis.log.take(analysis.rung.rows)
    query, size = log.query[log.design], len(log.queries)
    rare = _units(query, log.unit, size) < query_units
    row = np.where(rare, size, np.arange(size))[query]  # one more for all that are rare
    moved = weighted_counts(row, analysis.estimate.x, size + 1) / len(log)
    impressions = np.bincount(row, minlength=size + 1)
    clicks = weighted_counts(row, log.clicks.sum(1).astype(np.float64), size + 1)
    unnamed = int((rare & (np.bincount(query, minlength=size) > 0)).sum())
    names = [*log.queries, f"{unnamed:,} queries, each of fewer than {query_units:,} units"]
    order = np.argsort(-np.abs(moved), kind="stable")
    order = order[impressions[order] > 0][:CONTRIBUTORS]
    return tuple(
        Contributor(
            query=names[q],
            impressions=impressions[q],
            clicks=int(clicks[q]),
            contribution=moved[q],
            rare=unnamed if q == size else 0,
        )
        for q in order.tolist()
    )


def _units(query: IntArray, unit: IntArray, size: int) -> IntArray:
    """How many units have asked each query."""
    order = np.lexsort((unit, query))
    query, unit = query[order], unit[order]
    new = np.ones(len(query), bool)
    new[1:] = (query[1:] != query[:-1]) | (unit[1:] != unit[:-1])
    return np.bincount(query[new], minlength=size)
