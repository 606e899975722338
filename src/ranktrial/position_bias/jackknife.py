"""The delete-a-group jackknife: standard errors of theta that trust no model, from the log without each group.

Groups should be whatever is independent: random impressions, users, days. The replicates also carry theta's
uncertainty into anything computed from it: recompute that number with each replicate and apply
``jackknife_variance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.position_bias.auto import Auto
from ranktrial.position_bias.conditional import Conditional
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import NotIdentifiable
from ranktrial.position_bias.model import Estimator, PositionBias


def replicates(estimator: Estimator, groups: Sequence[Counts]) -> tuple[PositionBias, FloatArray]:
    """The estimate on all groups together, and theta without each of them, ``(groups, k)``.

    >>> from ranktrial.position_bias import Conditional
    >>> days = [Counts.from_dense([[10, 10]], [clicked]) for clicked in ([4, 2], [6, 2], [5, 3], [5, 1])]
    >>> estimate, without = replicates(Conditional(), days)
    >>> without[:, 1].round(3)
    array([0.375, 0.429, 0.333, 0.467])
    """
    if len(groups) < 2:
        raise ValueError(f"a jackknife needs at least 2 groups, got {len(groups)}")
    total = Counts.merged(groups)
    whole = estimator.fit(total)
    return whole, _without_each(estimator, total, groups, whole.theta)


def _without_each(estimator: Estimator, total: Counts, groups: Sequence[Counts], theta: FloatArray) -> FloatArray:
    if isinstance(estimator, Conditional):
        return estimator.refits(total, groups, theta)
    return np.array([estimator.fit(total - group).theta for group in groups])


def jackknife_variance(values: FloatArray) -> FloatArray:
    """Covariance of an estimate from its delete-a-group replicates, ``(groups, dimension)``.

    Of a mean this is the variance of the groups' means over their number:

    >>> days = np.array([1.0, 4.0, 2.0, 5.0])
    >>> without = np.array([np.delete(days, day).mean() for day in range(4)])
    >>> jackknife_variance(without[:, None]).round(6), (days.var(ddof=1, keepdims=True) / 4).round(6)
    (array([[0.833333]]), array([0.833333]))
    """
    centred = values - values.mean(0)
    return np.asarray((len(values) - 1) / len(values) * centred.T @ centred)


def ratio_freedom(refitted: FloatArray, fixed: FloatArray) -> float:
    """Degrees of freedom of a variance that is scaled by the ratio of two jackknife variances from the same groups.

    The log of the ratio has variance 4 (1 - r^2) / (groups - 1), r the correlation of the replicates (Pitman 1939, Morgan
    1939), that of a chi-squared variance 2 / freedom: where both nearly agree, the ratio is known well from few groups.

    >>> days = np.array([1.0, 4.0, 2.0, 5.0])
    >>> ratio_freedom(days, days) > 1e5, round(ratio_freedom(days, np.array([2.0, 4.0, 1.0, 5.0])), 1)
    (True, 7.9)
    """
    away = [of - of.mean() for of in (refitted, fixed)]
    squares = float((away[0] @ away[0]) * (away[1] @ away[1]))
    apart = 1 - float(away[0] @ away[1]) ** 2 / squares if squares > 0 else 0.0
    return (len(fixed) - 1) / (2 * max(apart, 1e-6))


def with_errors(estimate: PositionBias, theta: FloatArray) -> PositionBias:
    """The estimate with standard errors from its replicates, and intervals from t with one degree less than groups.

    ``jackknife`` is this on ``replicates``; use both where the replicates serve another number as well, here theta_1 + theta_2:

    >>> from ranktrial.position_bias import Conditional
    >>> days = [Counts.from_dense([[10, 10]], [clicked]) for clicked in ([4, 2], [6, 2], [5, 3], [5, 1])]
    >>> estimate, without = replicates(Conditional(), days)
    >>> with_errors(estimate, without).standard_error.round(3)
    array([0.   , 0.088])
    >>> np.sqrt(jackknife_variance(without.sum(1, keepdims=True))).round(3)
    array([[0.088]])
    """
    covariance = jackknife_variance(theta)
    return replace(
        estimate,
        standard_error=np.sqrt(np.diag(covariance)),
        covariance=covariance,
        degrees_of_freedom=len(theta) - 1,
        remark="; ".join(part for part in (estimate.remark, f"jackknife over {len(theta)} groups") if part),
    )


def fit_groups(
    parts: Sequence[Counts], estimator: Estimator | None = None, *, most_error: float = np.inf
) -> tuple[PositionBias, FloatArray]:
    """Theta of a log that comes in groups of units, with jackknife errors, and theta without each group.

    ``estimator`` is ``Auto()`` by default, which decides once, on the whole log: were it to choose anew without each group, the
    jackknife would count that too. A single part keeps the estimator's own errors, and there is no theta without it. Refused
    (NotIdentifiable) where a theta has an error of more than ``most_error``, in units of theta_1.
    """
    total = Counts.merged(parts)
    chosen = Auto() if estimator is None else estimator
    fitted = chosen.fit(total)
    without = np.empty((0, total.k))
    if len(parts) > 1:
        if isinstance(chosen, Auto):
            chosen = Conditional(given="design" if "design" in fitted.method else "shown")
        try:
            without = _without_each(chosen, total, parts, fitted.theta)
        except NotIdentifiable as refusal:
            raise NotIdentifiable(f"without one of {len(parts)} groups of the log: {refusal}") from refusal
        fitted = replace(with_errors(fitted, without), remark=fitted.remark)
    worst = int(np.argmax(fitted.standard_error))
    if fitted.standard_error[worst] > most_error or not np.isfinite(without).all():
        estimate = f"{fitted.theta[worst]:.2f} +- {fitted.standard_error[worst]:.2f} at rank {worst + 1}"
        raise NotIdentifiable(f"too uncertain, {estimate}")
    return fitted, without


def jackknife(estimator: Estimator, groups: Sequence[Counts]) -> PositionBias:
    """The estimate with delete-a-group standard errors.

    20 groups are customary. Groups must all know the same: their queries, their design.

    >>> from ranktrial.position_bias import Conditional
    >>> days = [Counts.from_dense([[10, 10]], [clicked]) for clicked in ([4, 2], [6, 2], [5, 3], [5, 1])]
    >>> bias = jackknife(Conditional(), days)
    >>> bias.theta, bias.standard_error.round(4), bias.degrees_of_freedom
    (array([1. , 0.4]), array([0.   , 0.088]), 3)
    """
    return with_errors(*replicates(estimator, groups))
