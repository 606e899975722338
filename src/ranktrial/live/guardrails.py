"""Guardrails: one check for every assumption behind a report, each with its number.

A check on chance alarms once in a thousand trials that are in order (fail) or once in a hundred (warn).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import stats

from ranktrial.arrays import FloatArray, weighted_counts
from ranktrial.inference import Log, UnitSums, estimate
from ranktrial.live.analysis import Analysis
from ranktrial.live.schemas import Guardrail, Status
from ranktrial.position_bias.jackknife import jackknife_variance

WARN, FAIL = 0.01, 0.001  # probability of a false alarm
SLOW = "calls over 5 ms"  # tallies: of rank,
NO_TRIAL = "events with an id of no trial"  # and of all trials of a store
BINS = 10
NOT_YET = float("nan")


def guardrails(analysis: Analysis, tallies: Mapping[str, int], nanoseconds: Sequence[int]) -> tuple[Guardrail, ...]:
    checks: list[Callable[[Analysis], Guardrail]] = [
        sample_ratio, calibration, coverage, effective_clicks, largest_weight, holdback, independence, bias, page,
    ]  # fmt: skip
    return (
        *(check(analysis) for check in checks),
        clicks(analysis, tallies),
        faults(analysis, tallies),
        latency(analysis, tallies, nanoseconds),
    )


def _by_chance(p: float) -> Status:
    return "fail" if p < FAIL else "warn" if p < WARN else "pass"


def _above(value: float, warn: float, fail: float) -> Status:
    return "fail" if value > fail else "warn" if value > warn else "pass"


def _few(analysis: Analysis, status: Status) -> Status:
    """One of a handful is no share: nothing fails before 100 impressions."""
    return "warn" if status == "fail" and len(analysis.log) < 100 else status


def _not_yet(name: str, why: str) -> Guardrail:
    return Guardrail(name=name, status="pass", value=NOT_YET, text=f"Nothing to go by yet: {why}.")


def sample_ratio(analysis: Analysis) -> Guardrail:
    """Were design, plain A and plain B shown as often as configured?"""
    log, name = analysis.log, "sample ratio"
    for_a, for_b = analysis.config.comparison.plain_shares
    shares = np.array([1 - for_a - for_b, for_a, for_b])
    arm = log.arm[log.drawn]
    seen = np.array([(arm == 0).sum(), (arm > 0).sum(), (arm < 0).sum()])
    used = shares > 1e-12
    if len(arm) * shares[used].min() < 5 or used.sum() < 2:
        return _not_yet(name, "too few impressions for a comparison")
    p = float(stats.chisquare(seen[used], len(arm) * shares[used] / shares[used].sum()).pvalue)
    told = f"{seen[0]:,} by design, {seen[1]:,} plain A, {seen[2]:,} plain B"
    wanted = " / ".join(f"{share:.3g}" for share in shares)
    return Guardrail(name=name, status=_by_chance(p), value=p, text=f"{told}; configured {wanted} (p = {p:.3g}).")


def calibration(analysis: Analysis) -> Guardrail:
    """Was each ranking of a mixture shown as often as its weight says?

    Rankings go into ten bins by where they stand in their mixture. Given the designs, the number of impressions per bin has a
    known mean and covariance, so the chi-square statistic is right whatever the mix of designs.
    """
    log, name = analysis.log, "placement calibration"
    if len(log) < 100:
        return _not_yet(name, "fewer than 100 impressions")
    design_of_row = np.repeat(np.arange(log.n_designs), np.diff(log.row_offsets))
    before = np.cumsum(log.weights) - log.weights
    middle = before - before[log.row_offsets[:-1]][design_of_row] + log.weights / 2
    bin_of_row = np.clip((middle * BINS).astype(np.int64), 0, BINS - 1)
    chance = weighted_counts(design_of_row * BINS + bin_of_row, log.weights, log.n_designs * BINS).reshape(-1, BINS)
    chance /= chance.sum(1, keepdims=True)
    seen = np.bincount(bin_of_row[log.row[log.drawn]], minlength=BINS)
    draws = np.bincount(log.design[log.drawn], minlength=log.n_designs)
    expected = draws @ chance
    covariance = np.diag(expected) - (chance * draws[:, None]).T @ chance
    used = np.diag(covariance) > 5
    if used.sum() < 1:
        return _not_yet(name, "what was shown left nothing to chance")
    part = covariance[np.ix_(used, used)]
    away = (seen - expected)[used]
    degrees = int(np.linalg.matrix_rank(part, tol=1e-6 * np.diag(part).max()))
    statistic = float(away @ np.linalg.pinv(part, rcond=1e-6, hermitian=True) @ away)
    p = float(stats.chi2.sf(statistic, max(degrees, 1)))
    text = f"Rankings were shown as often as designed: chi-square {statistic:.1f} on {degrees} (p = {p:.3g})."
    if p < WARN:
        text = f"What was shown is not what was designed: chi-square {statistic:.1f} on {degrees} (p = {p:.3g})."
    return Guardrail(name=name, status=_by_chance(p), value=p, text=text)


def coverage(analysis: Analysis) -> Guardrail:
    """Could every document on which the rankers differ be seen?"""
    log = analysis.log
    bad = np.flatnonzero(analysis.estimate.uncovered)
    if not len(bad):
        return Guardrail(name="coverage", status="pass", value=0, text="Every document that matters could be seen.")
    query = log.queries[log.query[log.design_of_slot[bad[0]]]]
    text = f"{len(bad)} documents that matter could not be seen, first for query {query!r}: they are left out."
    return Guardrail(name="coverage", status="fail", value=float(len(bad)), text=text)


def effective_clicks(analysis: Analysis) -> Guardrail:
    """On how many equally weighted clicks does the estimate rest?"""
    effective = analysis.estimate.effective_clicks
    status: Status = "pass" if effective >= 100 else "warn"
    text = f"The estimate rests on {effective:,.0f} effective clicks of {analysis.clicks:,}."
    return Guardrail(name="effective clicks", status=status, value=effective, text=text)


def largest_weight(analysis: Analysis) -> Guardrail:
    """Does any single click count for very much?"""
    weights = np.abs(analysis.estimate.click_weights)
    most = float(weights.max(initial=0.0))
    heavy = float(np.sort(weights**2)[::-1][: max(len(weights) // 100, 1)].sum() / max((weights**2).sum(), 1e-300))
    text = f"No click counts more than {most:.3g}; the heaviest hundredth makes {heavy:.0%} of the squares."
    return Guardrail(name="largest weight", status=_above(most, 20, 200), value=most, text=text)


def holdback(analysis: Analysis) -> Guardrail:
    """On plain A/B traffic, does the click model say what the clicks alone say? A z-test of the paired difference."""
    log, config, name = analysis.log, analysis.config, "agreement with the hold-back"
    rows = np.flatnonzero(log.arm != 0)
    if not config.comparison.needs_position_bias:
        return Guardrail(name=name, status="pass", value=0.0, text="An A/B test: there is no click model to check.")
    if len(rows) < 200 or min((log.arm[rows] > 0).sum(), (log.arm[rows] < 0).sum()) < 50:
        return _not_yet(name, f"{len(rows)} plain A/B impressions, 200 are needed")
    from_clicks = estimate(log, estimator="adjusted", cross_fit="past").x
    away = from_clicks - _as_if_plain(log, np.array(analysis.theta.theta))[rows]
    error, tails = UnitSums.of(away, None if config.unit == "impression" else log.unit[rows]).standard_error, stats.norm
    if analysis.fit is not None:  # theta is as uncertain as the clicks it was fitted to
        without = [
            (from_clicks - _as_if_plain(log, theta)[rows])[analysis.fit.group[rows] != group].mean()
            for group, theta in enumerate(analysis.fit.without)
        ]
        error = float(np.sqrt(jackknife_variance(np.array(without)[:, None])[0, 0]))
        tails = stats.t(len(without) - 1)
    z = float(away.mean() / error) if error > 0 else 0.0
    p = float(2 * tails.sf(abs(z)))
    told = f"differ by {away.mean():+.4f}, which is {z:+.2f} standard errors"
    text = f"On {len(rows):,} plain A/B impressions clicks alone and the click model {told}."
    return Guardrail(name=name, status=_by_chance(p), value=z, text=text)


def _as_if_plain(log: Log, theta: FloatArray) -> FloatArray:
    """IPS values by the exposure of the plain lists alone: A's and B's, half of the time each."""
    by_a, by_b = log.list_exposures(theta)
    return _clicks_worth(log, by_a - by_b, (by_a + by_b) / 2)


def _clicks_worth(log: Log, wanted: FloatArray, rho: FloatArray) -> FloatArray:
    """What each impression's clicks are worth, by inverse propensity: wanted over actual exposure of each slot."""
    worth = np.divide(wanted, rho, out=np.zeros_like(rho), where=rho > 0)
    impression, _, slot = log.clicked
    return weighted_counts(impression, worth[slot], len(log))


def independence(analysis: Analysis) -> Guardrail:
    """Does a click depend on clicks above it? Under the position-based model it does not.

    Of impressions that show the same document for the same query at the same rank, those with a click further up should
    be clicked there as often as the others: the Cochran-Mantel-Haenszel test over all such strata, whatever the relevances.
    """
    log, name = analysis.log, "position-based clicking"
    rows, display = log.displays
    rankings = log.rankings[rows]
    impression, rank, slot = log.clicked
    strata = np.append(log.document, -1)[rankings] * log.k + np.arange(log.k)  # below 0 where nothing stands
    highest = np.full(len(log), log.k)
    np.minimum.at(highest, impression, rank)
    with_clicks = np.flatnonzero(highest < log.k)
    below = np.arange(log.k) > highest[with_clicks][:, None]
    times = np.broadcast_to(np.bincount(display, minlength=len(rankings))[:, None], strata.shape)
    size = len(log.document_query) * log.k
    n = weighted_counts(strata[strata >= 0], times[strata >= 0].astype(np.float64), size)
    cells = [
        strata[display[with_clicks]][below],
        log.document[slot] * log.k + rank,
        (log.document[slot] * log.k + rank)[rank > highest[impression]],
    ]
    g, c, both = (np.bincount(some[some >= 0], minlength=size).astype(np.float64) for some in cells)
    big = n > 1
    n, c, g, both = n[big], c[big], g[big], both[big]
    variance = float((c * (n - c) * g * (n - g) / (n**2 * (n - 1))).sum())
    if variance < 5:
        return _not_yet(name, "the same document was rarely clicked at the same rank with and without clicks above")
    away = float((both - c * g / n).sum())
    z = away / np.sqrt(variance)
    p = float(2 * stats.norm.sf(abs(z)))
    ratio = float(both.sum() / (c * g / n).sum())
    text = f"After a click above, results are clicked {ratio:.3g} times as often as otherwise expected (z = {z:+.2f})."
    return Guardrail(name=name, status=_by_chance(p), value=float(z), text=text)


def bias(analysis: Analysis) -> Guardrail:
    """Is position bias known from this trial's clicks?"""
    theta, name = analysis.theta, "position bias"
    if not analysis.config.comparison.needs_position_bias:
        return Guardrail(name=name, status="pass", value=0.0, text="An A/B test needs none.")
    if not analysis.config.comparison.learns_position_bias:
        return Guardrail(name=name, status="pass", value=0.0, text="Taken as known, as configured.")
    if analysis.config.k == 1:
        return Guardrail(name=name, status="pass", value=0.0, text="One rank has none.")
    if analysis.fit is None:
        how = "From fewer clicks" if theta.fitted else "Assumed, not fitted"
        text = f"{how}, so the interval does not hold its error: {theta.note}."
        return Guardrail(name=name, status="warn", value=NOT_YET, text=text)
    worst = max(theta.standard_error)
    text = f"Fitted, standard error at most {worst:.3f}; it widens the interval by {theta.inflation - 1:.0%}."
    return Guardrail(name=name, status="warn" if worst > 0.2 else "pass", value=worst, text=text)


def page(analysis: Analysis) -> Guardrail:
    """How many clicks does the trial cost, against showing the better ranker to everybody?

    No matter of trust, so it never fails; it warns where the cost is 5 % more than that of an A/B test.
    """
    log, name = analysis.log, "clicks on what is shown"
    if analysis.clicks < 100:
        return _not_yet(name, "fewer than 100 clicks")
    shown, is_ab = log.clicks.sum(1).astype(np.float64), not analysis.config.comparison.needs_position_bias
    by_a, by_b, rho = analysis.exposures
    if not is_ab and np.any((rho == 0) & (by_a + by_b > 0)):
        text = f"{shown.mean():.4g} clicks per impression; what A or B would get cannot be told: "
        text += "some of their results never show. A floor or a hold-back above 0 shows them."
        return Guardrail(name=name, status="warn", value=NOT_YET, text=text)
    if is_ab:
        rates = [float(shown[log.arm == arm].mean()) if (log.arm == arm).any() else 0.0 for arm in (1, -1)]
    else:
        rates = [float(_clicks_worth(log, by, rho).mean()) for by in (by_a, by_b)]
    ctr, better = float(shown.mean()), max(rates)
    loss = 1 - ctr / better if better > 0 else 0.0
    against = f"{loss:.1%} lost to the better" if loss >= 0 else f"{-loss:.1%} more than the better"
    plain, error = sum(rates) / 2, float(shown.std() / np.sqrt(len(log)))
    status: Status = "warn" if ctr + 2 * error < 0.95 * plain else "pass"  # an A/B test would get the mean of both
    text = f"{ctr:.4g} clicks per impression; A would get {rates[0]:.4g}, B {rates[1]:.4g}: {against}."
    if status != "pass":
        text += " A higher agreement floor gives some back."
    return Guardrail(name=name, status=status, value=loss, text=text)


def clicks(analysis: Analysis, tallies: Mapping[str, int]) -> Guardrail:
    """Do clicks belong to what was shown?"""
    strange = ("clicks without impression", "clicks on what was not shown", "clicks with an id that is not ours")
    others = (
        "duplicate clicks",
        "late clicks",
        "clicks on later pages",
        "clicks on fallbacks",
        "clicks on void impressions",
        NO_TRIAL,
    )
    impressions, counted = len(analysis.log), analysis.clicks
    if not counted and impressions >= 100:
        none = f"No click counts after {impressions:,} impressions: do events arrive, with the impression's id?"
        return Guardrail(name="clicks", status="fail" if impressions >= 1_000 else "warn", value=0.0, text=none)
    bad, lost = (
        sum(tallies.get(name, 0) for name in names) for names in (strange, (*strange, "late clicks", NO_TRIAL))
    )
    share = bad / (counted + bad) if bad else 0.0
    status = _few(analysis, _above(share, 0.01, 0.05))
    if status == "pass" and lost > 0.2 * (counted + lost):
        status = "warn"
    told = ", ".join(f"{tallies[name]:,} {name}" for name in (*strange, *others) if tallies.get(name))
    text = f"{counted:,} clicks count" + (f"; not counted: {told}." if told else ", all as they should be.")
    return Guardrail(name="clicks", status=status, value=share, text=text)


def faults(analysis: Analysis, tallies: Mapping[str, int]) -> Guardrail:
    """How often was A shown because something was wrong, or an impression lost?"""
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
    return Guardrail(name="fallbacks", status=_few(analysis, _above(share, 0.001, 0.01)), value=share, text=text)


def latency(analysis: Analysis, tallies: Mapping[str, int], nanoseconds: Sequence[int]) -> Guardrail:
    """Is ``rank`` quick enough, in all processes?"""
    calls = max(len(analysis.log), len(nanoseconds))
    if not calls:
        return _not_yet("latency", "nothing has been shown")
    slow = tallies.get(SLOW, 0) / calls
    text = f"{100 * slow:.2g} calls of rank in 100 impressions took more than 5 ms."
    if nanoseconds:
        text += f" In this process 99 of 100 took less than {np.percentile(np.array(nanoseconds), 99) / 1e6:.2f} ms."
    status: Status = "warn" if slow > 0.01 and calls >= 100 else "pass"  # no matter of trust, so it never fails
    return Guardrail(name="latency", status=status, value=slow, text=text)
