"""What is said to people: the verdict and what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ranktrial.arrays import FloatArray, IntArray, weighted_counts
from ranktrial.inference import Ladder, LeftOut, Rung
from ranktrial.inference.ladder import POSITION_BASED
from ranktrial.inference.lift import EVERYTHING, Lift, lift
from ranktrial.inference.units import first_seen
from ranktrial.interval import Interval
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
from ranktrial.live.schemas import (
    Contributor,
    Everyone,
    Forecast,
    Guardrail,
    HistoryEntry,
    LiftTold,
    Pace,
    Part,
    Ranker,
    Reading,
    Report,
    Visitors,
    turned,
)
from ranktrial.live.stores.base import ConfigVersion
from ranktrial.live.tallies import AS_IT_SHOULD_BE
from ranktrial.texts import counted, shown
from ranktrial.times import told_time

CONTRIBUTORS = 10
KEPT_QUERIES = 4  # impressions of a query in a block, on average, for which their sums are kept
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
    failed = _failed(checks)
    said = _said(analysis, failed)
    seen = pace(analysis)
    return Report(
        trial=name,
        version=version.number,
        delta=analysis.delta,
        interval=analysis.interval,
        level=analysis.config.level,
        verdict=said.verdict,
        headline=f"{said.headline}.",
        details=said.details,
        winner=_winner(analysis, failed),
        trusted=not failed,
        lift=lift_told(analysis, failed, seen.impressions_a_day),
        pace=seen,
        reading=None if analysis.rung is None else analysis.rung.name,
        readings=tuple(_reading(analysis.ladder, rung) for rung in analysis.ladder.rungs),
        impressions=len(analysis.log),
        units=analysis.log.cohorts.count,
        clicks=analysis.clicks,
        ctr=analysis.clicks / max(len(analysis.log), 1),
        forecast=_trusted(forecast(analysis), failed),
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
    units, impressions = counted(sum(left_out.units.values()), "unit"), counted(left_out.impressions, "impression")
    text = f"Left out: {units} ({why}) with {impressions}."
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
            effect = f"which may have moved A - B by {above.effect}"
            return replace(analysis, doubt=f"clicks depend on clicks above them, {effect}"), checks
    return analysis, checks


def readings_agree(analysis: Analysis) -> bool | None:
    """Decision on A/B traffic (``Ladder.settled``): True to halve it, False also where a check of the click model fails."""
    if len(analysis.ladder.rungs) == 1 or not any(test.upper == POSITION_BASED for test in analysis.ladder.tests):
        return None
    _, checks = settled(analysis, {})
    if any(check.status == "fail" and check.name in (COMPANY, BIAS, BIAS_OVER_TIME) for check in checks):
        return False
    return analysis.ladder.settled


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


class Said(NamedTuple):
    """A verdict in two parts; ``details`` may be "", and goes on after a colon unless it is a sentence of its own."""

    headline: str
    details: str = ""
    own_sentence: bool = False

    @property
    def verdict(self) -> str:
        between = ". " if self.own_sentence else ": "
        return f"{self.headline}{between}{self.details}" if self.details else f"{self.headline}."


def verdict(analysis: Analysis, checks: tuple[Guardrail, ...] = ()) -> str:
    """One sentence."""
    return _said(analysis, _failed(checks)).verdict


def _failed(checks: Sequence[Guardrail]) -> list[str]:
    """Guardrails for which numbers are not to be trusted: where the click model fails, what assumes less speaks."""
    return [check.name for check in checks if check.status == "fail" and check.name not in MODEL]


def _winner(analysis: Analysis, failed: Sequence[str]) -> Ranker | None:
    """Who is named."""
    return None if failed or not analysis.winner else "A" if analysis.winner > 0 else "B"


def _trusted(found: Forecast, failed: Sequence[str]) -> Forecast:
    """The forecast; nothing is decided while a guardrail fails."""
    if not failed or found.remaining > 0:
        return found
    nan = float("nan")
    text = "No decision while a guardrail fails."
    return Forecast(target=found.target, impressions=nan, remaining=nan, days=nan, text=text)


def _said(analysis: Analysis, failed: Sequence[str] = ()) -> Said:
    if not failed:
        return _spoken(analysis, trusted=True)
    said = _spoken(analysis, trusted=False)
    return Said(f"Not to be trusted while a guardrail fails ({', '.join(failed)})", said.verdict)


def _spoken(analysis: Analysis, *, trusted: bool) -> Said:
    low, high = analysis.interval
    smallest = analysis.config.smallest
    if not len(analysis.log):
        return Said("No impressions yet")
    if not analysis.clicks:
        ask = "Do events arrive, with the impression's id?" if len(analysis.log) >= 100 else ""
        return Said(f"No clicks yet after {counted(len(analysis.log), 'impression')}", ask, own_sentence=True)
    if not np.isfinite(low):
        waits = {rung.missing for rung in analysis.ladder.rungs if rung.missing and len(analysis.log) >= 1000}
        after = counted(len(analysis.log), "impression"), counted(analysis.clicks, "click")
        early = f"Too early to say after {' and '.join(after)}"
        return Said(early, f"Waits for {'; '.join(sorted(waits))}." if waits else "", own_sentence=True)
    winner = _winner(analysis, () if trusted else ("not trusted",))
    told, ahead = _numbers(analysis, winner), winner or "B"
    a, b = analysis.config.labels
    if not analysis.decides:
        return Said("No winner is named, because nothing tests how people click", f"{told}.")
    assert analysis.rung is not None
    hidden, sign = analysis.ladder.hidden(analysis.rung), 1 if ahead == "A" else -1
    if hidden > 0:
        told += f"; a difference below {hidden:.4f} could be due to how people click"
    if analysis.changed:
        whole = f"Over all of the trial {_minus(ahead)} is {sign * analysis.delta:+.4f}"
        told += f"; {told_of(analysis.drift)} {whole}"
    elif analysis.drift.status == "warn":
        told += f"; {told_of(analysis.drift)}"
    if winner:
        better, other = (a, b) if winner == "A" else (b, a)
        found = lift_of(analysis, winner)
        much = "" if not np.isfinite(found.share) or found.share <= 0 else f"{told_share(found.share)} "
        undone = f"; {text}" if (text := undone_text(analysis)) else ""
        return Said(f"{better} gets {much}more clicks than {other}", f"{told}{_since(analysis)}{undone}.")
    if smallest is not None and -smallest < low and high < smallest and trusted:
        return Said(f"{a} and {b} differ by less than {smallest:g} clicks per impression", f"{told}.")
    if not trusted and (low > 0 or high < 0):
        return Said("As they stand the numbers say", f"{told}.")
    if analysis.doubt and (low > 0 or high < 0):
        return Said(f"No winner is named, because {analysis.doubt}", f"{told}.")
    if analysis.blind > 1 and (low > 0 or high < 0):
        return Said(
            "No winner is named yet, because a bias as large as the difference could not have been seen", f"{told}."
        )
    return Said("Neither is ahead yet", f"{told}.")


def _minus(ahead: str) -> str:
    return "A - B" if ahead == "A" else "B - A"


def _numbers(analysis: Analysis, winner: Ranker | None) -> str:
    """The difference with its interval: the winner's, which is positive, or B - A."""
    delta = analysis.drift.after if analysis.changed else analysis.delta
    sign = 1 if winner == "A" else -1
    interval = f"{analysis.config.level:.0%} interval {turned(analysis.interval, sign)}"
    told = f"{sign * delta:+.4f} clicks per impression, {interval}"
    assert analysis.rung is not None
    if len(analysis.ladder.rungs) > 1:
        told += f" ({analysis.rung.name} reading)"
    return told if winner else f"B - A is {told}"


def told_share(share: float) -> str:
    """A share in per cent, with as many digits as say something.

    >>> told_share(0.0412), told_share(0.00312), told_share(1.234), told_share(0.35)
    ('4.1%', '0.31%', '123%', '35%')
    """
    size = abs(100 * share)
    return f"{100 * share:.{0 if size >= 9.95 else 1 if size >= 0.995 else 2}f}%"


def lift_of(analysis: Analysis, of: Ranker) -> Lift:
    """More clicks of one ranker, as a share of the other's."""
    clicks, sums, sign = analysis.clicks_of_both, analysis.estimate.sums, 1 if of == "A" else -1
    if clicks is None:
        return Lift(float("nan"), EVERYTHING)
    return lift(turned(analysis.interval, sign), replace(sums, totals=sign * sums.totals), clicks)


def lift_told(analysis: Analysis, failed: Sequence[str], impressions_a_day: float) -> LiftTold:
    """The difference in per cent and in clicks a day: the winner's, or B's as long as there is none."""
    of = _winner(analysis, failed) or "B"
    found, (low, high) = lift_of(analysis, of), turned(analysis.interval, 1 if of == "A" else -1)
    delta = float("nan") if not np.isfinite(low) else (low + high) / 2
    daily = Interval(low * impressions_a_day, high * impressions_a_day)
    a, b = analysis.config.labels
    one, other = (a, b) if of == "A" else (b, a)
    text = ""
    if np.isfinite(found.share):
        text = f"{one} against {other}: {found.share:+.1%} clicks"
        text += f" ({found.interval:+.1%})" if np.isfinite(found.interval.low) else ""
        if np.isfinite(daily.low):
            text += f"; on {impressions_a_day:,.0f} impressions a day {delta * impressions_a_day:+,.0f} clicks a day"
            text += f" ({daily:+,.0f})"
        text += "."
    return LiftTold(
        of=of,
        share=found.share,
        interval=found.interval,
        clicks_a_day=delta * impressions_a_day,
        daily=daily,
        text=text,
    )


def pace(analysis: Analysis) -> Pace:
    """When the version's impressions came."""
    log, nan = analysis.log, float("nan")
    if not len(log):
        return Pace(began=nan, latest=nan, days=nan, impressions_a_day=nan, text="")
    began, latest = (time / 1e6 for time in log.span())
    days = (latest - began) / 86_400
    a_day = len(log) / days if days >= 1 else nan
    lasted = f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} hours" if days >= 1 / 24 else "less than an hour"
    much = f"{counted(len(log), 'impression')} of {counted(log.cohorts.count, 'unit')}"
    text = f"Began {told_time(began)}: {much} in {lasted}"
    text += f", {a_day:,.0f} a day." if days >= 1 else "."
    return Pace(began=began, latest=latest, days=days, impressions_a_day=a_day, text=text)


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
    names, query, sums = analysis.log.query_names, *_by_query(analysis)
    size = len(names)
    impressions, units, clicks, moved = (weighted_counts(query, of, size) for of in sums)
    rare = units < query_units
    # One more for all that are rare; sorted, because queries have numbers in the order in which they were read.
    impressions, clicks, moved = (
        np.append(np.where(rare, 0.0, of), np.sort(of[rare]).sum()) for of in (impressions, clicks, moved)
    )
    moved /= analysis.estimate.impressions
    unnamed = int((rare & (weighted_counts(query, sums[0], size) > 0)).sum())
    others = f"{unnamed:,} queries, each of fewer than {query_units:,} units"

    def name(q: int) -> str:
        return others if q == size else str(names[q])

    first = np.flatnonzero(impressions > 0)
    if len(first) > CONTRIBUTORS:
        first = first[np.abs(moved[first]) >= np.partition(np.abs(moved[first]), -CONTRIBUTORS)[-CONTRIBUTORS]]
    order = sorted(first.tolist(), key=lambda q: (-abs(moved[q]), q == size, name(q)))[:CONTRIBUTORS]
    return tuple(
        Contributor(
            query=name(q),
            label=shown(name(q)),
            impressions=int(impressions[q]),
            clicks=int(clicks[q]),
            contribution=moved[q],
            rare=unnamed if q == size else 0,
        )
        for q in order
    )


def _by_query(analysis: Analysis) -> tuple[IntArray, FloatArray]:
    """Impressions, units, clicks and the sum of values of each query, some of them more than once."""
    log, found = analysis.log, analysis.estimate

    def sums(x: FloatArray, some: IntArray | slice, rows: slice) -> tuple[IntArray, FloatArray]:
        query, place = first_seen(log.query_of(rows)[some])
        of_rows = (
            np.ones(len(x)),
            log.draws(rows)[some].astype(np.float64),
            log.clicks_on(rows)[some].astype(np.float64),
            x,
        )
        return query, np.stack([weighted_counts(place, of, len(query)) for of in of_rows])

    def worth_keeping(x: FloatArray, *of: Any) -> tuple[IntArray, FloatArray] | None:
        """Where every search is of a query of its own, sums are as many as searches."""
        query, table = sums(x, *of)
        return None if KEPT_QUERIES * len(query) > len(x) else (query, table)

    kept = log.by_rows(found.named("by query"), worth_keeping, found.values, found.picked)
    known = [
        sums(x, some, block.rows) if one is None else one
        for one, x, some, block in zip(kept, found.values, found.picked, log.blocks)
    ]
    query, table = zip(*known)
    return np.concatenate(query), np.concatenate(table, axis=1)
