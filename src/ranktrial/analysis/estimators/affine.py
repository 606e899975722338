"""Delta under trust bias: clicks are affine in relevance, P(click d at rank r) = a_r x_d + b_r (``position_bias.affine``).

Then Delta = sum_d (a at d's rank in A - a at its rank in B) x_d + (b at its rank in A - b at its rank in B), and the estimate
of ``rankings.values`` has mean Delta with a for theta and clicks c - b_r: as it is linear in clicks, that takes off

    sum over ranks of W b_r - sum_d (b at d's rank in A - b at its rank in B),    W = lambda_d / rho_d,

whatever the prediction of relevance is. Where both lists fill the page the second sum is 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ranktrial.analysis.estimators.estimation import estimate
from ranktrial.analysis.estimators.kinds import DoublyRobust
from ranktrial.analysis.estimators.results import BiasFit, Estimate, by_group, jackknifed, sums_by
from ranktrial.analysis.estimators.valuing import click_worth
from ranktrial.arrays import FloatArray, weighted_counts
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log
from ranktrial.position_bias import Counts, NotIdentifiable
from ranktrial.position_bias.affine import AffineBias, affine_bias

SHRUNK = 5.0  # examinations that the rate of documents at the same place counts for


def fit_affine(log: Log, theta: BiasFit, *, most_error: float = np.inf) -> AffineBias:
    """a and b of every rank, with those without each group of the fit of theta; NotIdentifiable where clicks cannot tell.

    The instrument for either half of the units is the click rate in the other one, over theta and shrunk towards that of all
    documents which a list ranks as high.
    """
    clicked = int(log.clicks_each.sum())
    used = np.bincount(log.design, minlength=log.n_designs) > 0
    listed = int(np.diff(log.slot_offsets)[used].sum())
    if clicked < listed:
        raise NotIdentifiable(f"{clicked:,} clicks on {listed:,} documents: queries hardly come again")
    best = np.minimum(np.minimum(log.rank_a, log.rank_b), log.k)
    parts = log.parts(len(theta.without), clicked_only=False)
    given = "design" if "design" in theta.bias.method else "shown"
    rates = []
    for half in (parts[1::2], parts[0::2]):
        counts = Counts.merged(half)
        clicks, examined = np.zeros((2, log.n_slots))
        clicks[counts.documents], examined[counts.documents] = counts.clicked.sum(1), counts.shown @ theta.bias.theta
        by_place = [weighted_counts(best, of, log.k + 1) for of in (clicks, examined)]
        rate = (by_place[0] + 1) / (by_place[1] + 1)
        rates.append((clicks + SHRUNK * rate[best]) / (examined + SHRUNK))
    return affine_bias(parts, np.array(rates), theta.bias.theta, given=given, most_error=most_error)


def affine_estimate(
    log: Log, theta: BiasFit, lines: AffineBias, *, independent: str = "units", **options: Any
) -> Estimate:
    """Delta with the lines of ``fit_affine``, their error included; ``options`` as of ``estimate``.

    >>> from ranktrial.analysis import fit_position_bias
    >>> from ranktrial.methods import LogOpt
    >>> from ranktrial.rankings import Pair
    >>> from ranktrial.users import trust_bias
    >>> pair = Pair.from_lists([["x", "y", "z"]] * 9, [["z", "x", "y"]] * 9, k=3).knowing(theta=[1, 0.5, 0.3])
    >>> user = trust_bias([0.6, 0.3, 0.2] * 9, [1, 0.5, 0.3], relevant=[1, 0.9, 0.8], irrelevant=[0.4, 0.2, 0.1])
    >>> log = Log.simulated(pair, LogOpt(holdback=0.5).policy(pair), user, 40_000, seed=1)
    >>> theta = fit_position_bias(log)
    >>> found = affine_estimate(log, theta, fit_affine(log, theta))
    >>> abs(found.delta - pair.delta(user)) < 3 * found.standard_error
    True
    """
    bias = replace(theta.bias, theta=lines.slope, standard_error=lines.slope_error)
    # Kept with the lines: values of impressions stay the same as long as it does.
    fit = log.kept.fitted(log, 0, "slopes", (theta, lines), lambda _: BiasFit(bias, lines.without[:, 0]))
    found = estimate(
        log, theta=fit, estimator=DoublyRobust(), uncovered="leave out", independent=independent, **options
    )
    assert found.replicates is not None

    n = len(lines.without)

    def contribution(rows: slice, part: Log, before: object) -> tuple[FloatArray, FloatArray]:
        shown, display = part.displays
        times = np.bincount(part.group(n) * len(shown) + display, minlength=n * len(shown)).reshape(n, -1)
        rest = [left @ _taken_off(part, a, b) for left, (a, b) in zip(times.sum(0) - times, lines.without)]
        return _taken_off(part, lines.slope, lines.intercept)[display], np.array(rest)

    x, rests = zip(*fold(log, Statistic("intercepts", (lines,), contribution, list))[0])
    x, rest = found.x - np.concatenate(x), sum(rests)
    groups = by_group(log, x, n)
    return Estimate.of(
        sums_by(independent, log, x),
        found.weights,
        largest_weight=found.largest_weight,
        theta=found.theta,
        uncovered=found.uncovered,
        bias=bias,
        x=x,
        **jackknifed(groups, found.replicates * (len(log) - groups[0]) - rest),
    )


def _taken_off(log: Log, slope: FloatArray, intercept: FloatArray) -> FloatArray:
    """Correction of the value of each ranking shown for the intercepts b: the sum of W b_r less their part in Delta."""
    rows, _ = log.displays
    design = np.searchsorted(log.row_offsets, rows, side="right") - 1
    from_a, from_b = log.list_exposures(intercept)
    added = weighted_counts(log.design_of_slot, from_a - from_b, log.n_designs)
    return np.asarray(click_worth(log, slope)[log.rankings[rows]] @ intercept - added[design])
