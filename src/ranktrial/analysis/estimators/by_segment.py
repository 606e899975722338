"""Position bias by segment: theta of each value of an attribute, shrunken towards what all have in common.

Phones see four results where desktops see ten: one theta for both is right for neither, nor for all together where traffic,
relevance and devices go together. For each value theta is fitted to that value's impressions alone, so that a document is
compared with itself within one design and one segment. Whether they differ is asked by a Wald test of log theta,

    Q = sum over ranks and values of (log theta_vr - mean_r)^2 / s_vr^2,

with s the jackknife's errors and mean_r weighted by 1 / s^2. Ranks of one fit depend on each other, so Q is held against F with
the degrees of freedom that its variance says (Satterthwaite 1946) and those of the jackknife. If they differ, the variance
between values (DerSimonian and Laird 1986) says how far each is shrunken:

    log theta_vr := mean_r + t_r^2 / (t_r^2 + s_vr^2) (log theta_vr - mean_r).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ranktrial.analysis.estimators.results import BiasFit, SegmentBias
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.distributions import f_tail
from ranktrial.log.log import Log
from ranktrial.position_bias import Conditional, Counts, NotIdentifiable, fit_groups
from ranktrial.position_bias.jackknife import jackknife_variance

DIFFER = 0.01  # p of the Wald test, over the number of attributes, below which theta goes by one of them
UNCLICKED = 1.0  # standard error of a log theta that rests on no click, at what one click would have meant


def fit_by_segment(log: Log, fit: BiasFit) -> BiasFit:
    """Return a fit with theta by the attribute whose values differ most surely; the fit as it is if none do.

    Args:
        log: What ``fit`` was fitted to.
        fit: Theta of all impressions, with its jackknife replicates.
    """
    found = [wald for name in log.attributes.names if (wald := _wald(log, fit, name)) is not None]
    surest = min(found, key=lambda one: one.p, default=None)
    if surest is None or surest.p * len(log.attributes.names) >= DIFFER:
        return replace(fit, tested=surest)
    return replace(fit, tested=surest, by_segment=surest)


def by_value(log: Log, attribute: str) -> Iterator[tuple[int, IntArray | slice, Log]]:
    """The log by the values of an attribute: number of each value, its impressions, and their log; as one part for ""."""
    if not attribute:
        yield 0, slice(None), log
        return
    level = log.levels(attribute)
    for value in np.unique(level).tolist():
        at = np.flatnonzero(level == value)
        yield value, at, log.take(at)


@dataclass(frozen=True, eq=False)
class _Own:
    """Logs of a value's own theta: of all its impressions, without each group of units, and their covariance."""

    logs: FloatArray
    without: FloatArray
    covariance: FloatArray


def _own(log: Log, common: FloatArray, groups: int) -> _Own | None:
    """Theta of one value, by the conditional equation; None if it is not identified there."""
    if not log.clicks[:, 0].any():
        return None
    parts = log.parts(groups)
    try:
        fitted, without = fit_groups(parts, Conditional())
    except (NotIdentifiable, ValueError):
        return None
    total = Counts.merged(parts)
    clicks_per_theta = (total.clicked.sum(1) / np.maximum(total.shown @ common, 1e-300)) @ total.shown
    floor = np.minimum(1 / np.maximum(clicks_per_theta, 1e-300), 1.0)  # what one click would have meant
    floor[0] = 1.0
    logs, replicates = np.log(np.maximum(fitted.theta, floor)), np.log(np.maximum(without, floor))
    covariance = jackknife_variance(replicates) + np.diag(np.where(fitted.theta <= floor, UNCLICKED**2, 0.0))
    covariance[0] = covariance[:, 0] = 0.0
    return _Own(logs, replicates, covariance)


def _wald(log: Log, fit: BiasFit, attribute: str) -> SegmentBias | None:
    """The test of one attribute, with theta by its values; None if fewer than two have a theta of their own."""
    groups, k = len(fit.without), log.k
    common = np.maximum(fit.bias.theta, 1e-12)
    own = {
        value: found for value, _, part in by_value(log, attribute) if (found := _own(part, common, groups)) is not None
    }
    if len(own) < 2 or k < 2:
        return None
    logs = np.array([one.logs for one in own.values()])[:, 1:]
    variance = np.array([np.diag(one.covariance) for one in own.values()])[:, 1:]
    usable = (variance > 0).all(0)  # a rank that nobody varies at tells nothing
    if not usable.any():
        return None
    weight = np.where(usable, 1 / np.maximum(variance, 1e-300), 0.0)
    total = np.maximum(weight.sum(0), 1e-300)
    mean = (weight * logs).sum(0) / total
    squares = (weight * (logs - mean) ** 2).sum(0)
    # Q as a quadratic form of all logs: for each rank a matrix of values.
    pull = np.array([np.diag(w) - np.outer(w, w) / of_rank for w, of_rank in zip(weight.T, total)])
    spread = np.array([one.covariance[1:, 1:] for one in own.values()])
    expected = float(np.einsum("rvv,vrr->", pull, spread))
    variance_of = 2 * float(np.einsum("rvu,urs,suv,vsr->", pull, spread, pull, spread, optimize=True))
    if not variance_of > 0:
        return None
    p = f_tail(float(squares.sum()) / expected, 2 * expected**2 / variance_of, groups - 1)
    expected_each = (weight * variance).sum(0) - (weight**2 * variance).sum(0) / total
    between = np.maximum(squares - expected_each, 0) / np.maximum(total - (weight**2).sum(0) / total, 1e-300)
    return _shrunken(log, fit, attribute, own, between, p)


def _shrunken(
    log: Log, fit: BiasFit, attribute: str, own: dict[int, _Own], between: FloatArray, p: float
) -> SegmentBias:
    """Theta of every value, given the variance of log theta between values at each rank from the second on."""
    variance = np.array([np.diag(one.covariance) for one in own.values()])[:, 1:]
    apart = between + variance
    weight = 1 / np.maximum(apart, 1e-300)
    weight /= weight.sum(0)
    keep = between / np.maximum(apart, 1e-300)

    def shrunk(logs: FloatArray) -> FloatArray:
        """Logs of all own thetas, ``(values, ..., k)``, shrunken and as theta."""
        some = logs[..., 1:]
        shape = (len(own),) + (1,) * (some.ndim - 2) + (some.shape[-1],)
        mean = (weight.reshape(shape) * some).sum(0, keepdims=True)
        theta = np.exp(mean + keep.reshape(shape) * (some - mean))
        return np.concatenate([np.ones((*theta.shape[:-1], 1)), theta], axis=-1)

    names = log.attributes.values(attribute)
    thetas = np.tile(fit.bias.theta, (len(names), 1))
    without = np.tile(fit.without, (len(names), 1, 1))
    numbers = list(own)
    thetas[numbers] = shrunk(np.array([one.logs for one in own.values()]))
    without[numbers] = shrunk(np.array([one.without for one in own.values()]))
    return SegmentBias(attribute, names, thetas, without, tuple(numbers), p)
