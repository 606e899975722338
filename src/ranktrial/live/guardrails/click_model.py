"""Checks of the click model: whether a click depends on its document and rank alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ranktrial.arrays import FloatArray, IntArray, sum_by_group, weighted_counts
from ranktrial.inference import Log, UnitSums
from ranktrial.inference.cross_fitting import contributions, groups_of
from ranktrial.inference.e_processes import anytime_p, mean_evidence
from ranktrial.inference.valuing import guesses
from ranktrial.live.analysis import Analysis
from ranktrial.live.guardrails.status import WARN, by_chance, needless, unknown
from ranktrial.live.schemas import Guardrail, Status

ASSUMPTIONS, COMPANY, INDEPENDENCE = "how people click", "position-based clicking", "independent clicks"
NO_MODEL = "An A/B test: there is no click model to check."
REFITS = 100 * 10 ** np.arange(10)  # impressions after which relevance is guessed anew


def assumptions(analysis: Analysis) -> Guardrail:
    """The method's own reading of the log against those with fewer assumptions (``inference.ladder``)."""
    top = analysis.ladder.rungs[-1]
    if len(analysis.ladder.rungs) == 1:
        return needless(ASSUMPTIONS, NO_MODEL)
    if not top.speaks:
        return unknown(ASSUMPTIONS, f"it takes {top.missing}")
    tests = [test for test in analysis.ladder.tests if test.upper == top.name]
    if not tests:
        return unknown(ASSUMPTIONS, "it takes plain A/B traffic: a hold-back")
    worst = max(tests, key=lambda test: abs(test.difference) / test.reach)
    text = worst.text
    if worst.contradicted and analysis.rung is not None:
        text += f" The {analysis.rung.name} reading speaks instead."
    status: Status = "fail" if worst.contradicted else "pass"
    return Guardrail(name=ASSUMPTIONS, status=status, value=abs(worst.difference) / worst.standard_error, text=text)


# --- what stands above, as it was drawn ---------------------------------------------------------------------------------------


class Interference(NamedTuple):
    """How clicks go with the clicks to be expected further up.

    Attributes:
        values: Of each impression; their mean is zero if a click depends on its document and rank alone.
        slope: Relative change of the rate of clicks with each click expected further up.
        error: Its standard error.
        effect: How far that moves the estimate away from the truth, in clicks per impression.
        effect_error: Its standard error.
    """

    values: FloatArray
    slope: float
    error: float
    effect: float
    effect_error: float


def interference(analysis: Analysis) -> Interference:
    """Clicks against what the draw put above them, other things being equal: the same query, lists, document and rank.

    Where a document stands at some rank, chance decides what is above it, with known probabilities. So

        sum over ranks of (click - clicks expected) (clicks expected above - their mean, given document and rank)

    has mean zero whatever the relevances are, however much users differ, and if every query is new: guesses of relevance,
    always from earlier impressions, decide only how much it tells.
    """
    log, theta = analysis.log, np.array(analysis.theta.theta)
    group = groups_of(len(log), "past", folds=2, refits=REFITS, units=log.unit)
    counted = contributions(group, "past", refits=REFITS)
    design_of_row = np.repeat(np.arange(log.n_designs), np.diff(log.row_offsets))
    values, information, shift = np.zeros(len(log)), 0.0, 0.0
    for number, guess in enumerate(guesses(log, theta, counted, "past", "doubly-robust", None)):
        inside = np.flatnonzero(group == number)
        if not len(inside):
            continue
        times = np.bincount(log.design[inside], minlength=log.n_designs)
        rows = np.flatnonzero((times[design_of_row] > 0) & (log.weights > 0))
        at = np.searchsorted(rows, log.row[inside])
        expected, over = _expected_above(log, rows, theta, guess)
        away = over - _mean_above(log, rows, over)
        impression, rank = np.nonzero(log.clicks[inside])
        of_clicks = weighted_counts(impression, away[at[impression], rank], len(inside))
        values[inside] = of_clicks - (expected * away).sum(1)[at]
        information += float((expected * away**2).sum(1)[at].sum())
        shift += float(times @ _shift(analysis, rows, design_of_row[rows], expected * over, theta, guess))
    if information <= 0:
        return Interference(values, *[float("nan")] * 4)
    slope = float(values.sum() / information)
    error = UnitSums.of(values, log.unit).standard_error * len(log) / information
    shift /= len(log)
    return Interference(values, slope, float(error), slope * shift, abs(float(error) * shift))


def _expected_above(log: Log, rows: IntArray, theta: FloatArray, guess: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Clicks to be expected at each rank of some rankings, and above it."""
    expected = theta * np.append(guess, 0.0)[log.rankings[rows]]
    return expected, np.cumsum(expected, 1) - expected


def _mean_above(log: Log, rows: IntArray, over: FloatArray) -> FloatArray:
    """The mean of what is above over all rankings of a design that show the same document at the same rank."""
    slots = log.rankings[rows]
    filled = slots >= 0
    number = np.zeros(log.n_slots, np.int64)
    number[slots[filled]] = 1
    number = np.cumsum(number) - 1
    cells = (number[slots] * log.k + np.arange(log.k))[filled]
    weights = np.broadcast_to(log.weights[rows][:, None], filled.shape)[filled]
    size = (int(number[-1]) + 1) * log.k
    mean = weighted_counts(cells, weights * over[filled], size) / np.maximum(
        weighted_counts(cells, weights, size), 1e-300
    )
    found = over.copy()
    found[filled] = mean[cells]
    return found


def _shift(
    analysis: Analysis,
    rows: IntArray,
    design: IntArray,
    weighed: FloatArray,
    theta: FloatArray,
    guess: FloatArray,
) -> FloatArray:
    """For each design, the difference of its estimate and the truth, if rates of clicks grew by one with what is above.

    ``weighed`` are clicks expected at each rank of the rows times those expected above.
    """
    log = analysis.log
    by_a, by_b, rho = analysis.exposures
    worth = np.divide(by_a - by_b, rho, out=np.zeros_like(rho), where=rho > 0)
    estimated = weighted_counts(
        design, log.weights[rows] * (np.append(worth, 0.0)[log.rankings[rows]] * weighed).sum(1), log.n_designs
    )
    truth = np.zeros(log.n_designs)
    for sign, place, by in ((1, log.rank_a, by_a), (-1, log.rank_b, by_b)):
        in_list = np.flatnonzero(place < log.k)
        table = np.zeros((log.n_designs, log.k))
        table[log.design_of_slot[in_list], place[in_list]] = (by * guess)[in_list]
        truth += sign * (table * (np.cumsum(table, 1) - table)).sum(1)
    return estimated - truth


def company(analysis: Analysis, found: Interference | None = None) -> Guardrail:
    """Clicks against what the draw put above them (``interference``): sees users who stop, also where every query is new.

    It fails only where the effect on the estimate is more than half of what its interval allows for.
    """
    name = COMPANY
    if not analysis.config.comparison.needs_position_bias:
        return needless(name, NO_MODEL)
    if found is None or not np.isfinite(found.slope):
        return unknown(name, "it takes clicks on results above which the draw puts now this, now that")
    evidence = mean_evidence(found.values, analysis.log.unit, telling=analysis.log.clicks.any(1))
    if not evidence.any():
        return unknown(name, "it takes more clicks on results above which the draw puts now this, now that")
    p = anytime_p(evidence)
    low, high = analysis.interval
    status = by_chance(p)
    if status == "fail" and abs(found.effect) < (high - low) / 4:
        status = "warn"
    told = (
        f"With each click to be expected further up, results are clicked {found.slope:+.0%} (+- {2 * found.error:.0%})"
    )
    return Guardrail(name=name, status=status, value=p, text=f"{told}, p = {p:.3g}. {_effect_text(found, p < WARN)}")


def _effect_text(found: Interference | None, alarmed: bool) -> str:
    if found is None or not np.isfinite(found.effect):
        return "What that does to the estimate cannot be told."
    told = f"by {found.effect:+.4f} (+- {2 * found.effect_error:.4f})"
    return f"That moves the estimate {told}." if alarmed else f"If that were so, it would move the estimate {told}."


# --- clicks above ------------------------------------------------------------------------------------------------------------


def independence(analysis: Analysis, found: Interference | None = None) -> Guardrail:
    """Clicks after a click above, against those without, on the same document at the same rank.

    Users who leave after a click break it, and so do users who merely differ in how readily they click, with the estimate
    right: it never fails, and says how far the estimate is moved by what stands above (``interference``).
    """
    log, name = analysis.log, INDEPENDENCE
    if not analysis.config.comparison.needs_position_bias:
        return needless(name, NO_MODEL)
    values, both, expected = _after_a_click(log)
    evidence = mean_evidence(values, log.unit, telling=values != 0)
    if not evidence.any():
        return unknown(
            name, "it takes queries that come again, and clicks at the same rank with and without a click above"
        )
    p = anytime_p(evidence)
    ratio = both / expected if expected > 0 else float("nan")
    status: Status = "warn" if p < WARN else "pass"
    text = f"After a click above, results are clicked {ratio:.3g} times as often as otherwise (p = {p:.3g})."
    if status == "warn":
        text += f" Users who differ do that too, and harm nothing. {_effect_text(found, alarmed=False)}"
    return Guardrail(name=name, status=status, value=float(ratio), text=text)


def _after_a_click(log: Log) -> tuple[FloatArray, float, float]:
    """For each impression the sum over its ranks of (click above - its mean) (click - its mean), means of the same document at
    the same rank before; clicks after a click, and as many as there would be if they were independent."""
    slots = log.rankings[log.row]
    ever = np.zeros((len(log.document_query) + 1, log.k), bool)  # the last for where nothing stands
    ever[log.document[log.clicked[2]], log.clicked[1]] = True
    impression, rank = np.nonzero(ever[np.append(log.document, -1)[slots], np.arange(log.k)])  # others tell nothing
    click = log.clicks[impression, rank].astype(np.float64)
    so_far = np.cumsum(log.clicks, 1)
    after = (so_far[impression, rank] > click).astype(np.float64)
    stratum = log.document[slots[impression, rank]] * log.k + rank
    order = np.argsort(stratum, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(stratum[order])) + 1, len(order))
    starts = np.append(0, ends[:-1]) if len(order) else ends[:0]
    sizes = (ends - starts) if len(order) else ends[:0]

    def before(of: FloatArray) -> FloatArray:
        """Sums over earlier members of the same stratum."""
        sums = np.cumsum(of[order]) - of[order]
        return np.asarray(sums - np.repeat(sums[starts], sizes))

    earlier = before(np.ones(len(order)))
    some = earlier > 0
    mean_after, mean_click = (
        np.divide(before(of), earlier, out=np.zeros(len(order)), where=some) for of in (after, click)
    )
    product = np.where(some, (after[order] - mean_after) * (click[order] - mean_click), 0.0)
    offsets = np.append(0, ends)
    g, c = sum_by_group(after[order], offsets), sum_by_group(click[order], offsets)
    big = sizes > 1
    expected = float((g * c / np.maximum(sizes, 1))[big].sum())
    both = float(sum_by_group((after * click)[order], offsets)[big].sum())
    return weighted_counts(impression[order], product, len(log)), both, expected
