"""Regression adjustment by covariates known before the trial.

A visitor who clicked much last month will click more than predicted. Let x0_i be the value of impression i had nothing on it
been clicked: what an estimator takes off for expected clicks. Whatever they are, x0_i has mean zero over the draw, so that

    x_i + f_i x0_i,   f_i = b' (z_u - mean z),

has the mean of x_i for every f_i known before the draw: predicted clicks are multiplied by 1 + f_i. The vector b minimises the
sum over units of squared (x_u - mean x n_u + b' (z_u - mean z) x0_u), sums over the unit's impressions. This and the means are
from past impressions only, at 100, 200, 400, ... of them. Sums of x + f x0 are then what confidence sequences need: errors with
mean zero given the past (arXiv 2210.08589 adjusts likewise by predictions from the past).
"""

from __future__ import annotations

import numpy as np

from ranktrial.analysis.estimators.cross_fitting import CrossFit
from ranktrial.arrays import FloatArray, IntArray, weighted_counts
from ranktrial.log.log import Log

MOST_FACTOR = 4.0  # by which predicted clicks are multiplied at most; 0 at least


def adjustment(log: Log, x: FloatArray, unclicked: FloatArray, at: IntArray | None = None) -> FloatArray:
    """f x0 of each impression, or of those ``at`` some places (increasing) where x and x0 are of these only."""
    moved = np.zeros(len(x))
    if not log.covariate_names or not unclicked.any():
        return moved
    impression = np.arange(len(log)) if at is None else at
    units, past_only = log.units, CrossFit("past")
    unit, known = units.place[impression], log.covariates[units.first]
    group = past_only.groups(units)[impression]
    for number in np.unique(group[group > 0]).tolist():
        before = past_only.refits[number - 1]
        past, seen = int(np.searchsorted(impression, before)), int(np.searchsorted(units.first, before))
        rows = np.flatnonzero(group == number)
        centred = _centred(known[:seen], known[unit[rows]])
        slope = _slope(x[:past], unclicked[:past], unit[:past], _centred(known[:seen], known[:seen]))
        moved[rows] = np.clip(centred @ slope, -1.0, MOST_FACTOR - 1) * unclicked[rows]
    return moved


def _centred(past: FloatArray, values: FloatArray) -> FloatArray:
    """Covariates in standard deviations of the past from its mean; a missing one is the mean."""
    there = ~np.isnan(past)
    count = np.maximum(there.sum(0), 1)
    mean = np.where(there, past, 0.0).sum(0) / count
    spread = np.sqrt((np.where(there, past - mean, 0.0) ** 2).sum(0) / count)
    return np.asarray(np.nan_to_num((values - mean) / np.where(spread > 0, spread, np.inf)))


def _slope(x: FloatArray, unclicked: FloatArray, unit: IntArray, centred: FloatArray) -> FloatArray:
    """b, from impressions of units with these covariates."""
    n = len(centred)
    if not len(x):
        return np.zeros(centred.shape[1])
    of_unit = weighted_counts(unit, x - x.mean(), n)
    controls = centred * weighted_counts(unit, unclicked, n)[:, None]
    return np.asarray(-np.linalg.pinv(controls.T @ controls, rcond=1e-9, hermitian=True) @ (controls.T @ of_unit))
