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


def fit_groups(
    parts: Sequence[Counts], estimator: Estimator | None = None, *, most_error: float = np.inf
) -> tuple[PositionBias, FloatArray]:
    """Theta of a log that comes in groups of units, with jackknife errors, and theta without each group.

    ``estimator`` is ``Auto()`` by default, which decides once, on the whole log: were it to choose anew without each group, the
    jackknife would count that too. A single part keeps the estimator's own errors, and there is no theta without it. Refused
    (NotIdentifiable) where a theta has an error of more than ``most_error``, in units of theta_1.

    Errors have one degree of freedom less than there are groups, of which 20 are customary; groups must all know the same:
    their queries, their design. Theta without each group carries its error into other numbers, here theta_1 + theta_2:

    >>> days = [Counts.from_dense([[10, 10]], [clicked]) for clicked in ([4, 2], [6, 2], [5, 3], [5, 1])]
    >>> bias, without = fit_groups(days, Conditional())
    >>> bias.theta, bias.standard_error.round(4), bias.degrees_of_freedom
    (array([1. , 0.4]), array([0.   , 0.088]), 3)
    >>> without[:, 1].round(3), np.sqrt(jackknife_variance(without.sum(1, keepdims=True))).round(3)
    (array([0.375, 0.429, 0.333, 0.467]), array([[0.088]]))
    """
    total = Counts.merged(parts)
    chosen = Auto() if estimator is None else estimator
    fitted = chosen.fit(total)
    without = np.empty((0, total.k))
    if len(parts) > 1:
        if isinstance(chosen, Auto):
            chosen = Conditional(given="design" if "design" in fitted.method else "shown")
        try:
            if isinstance(chosen, Conditional):
                without = chosen.refits(total, parts, fitted.theta)
            else:
                without = np.array([chosen.fit(total - part).theta for part in parts])
        except NotIdentifiable as refusal:
            raise NotIdentifiable(f"without one of {len(parts)} groups of the log: {refusal}") from refusal
        covariance = jackknife_variance(without)
        errors = np.sqrt(np.diag(covariance))
        fitted = replace(fitted, standard_error=errors, covariance=covariance, degrees_of_freedom=len(parts) - 1)
    worst = int(np.argmax(fitted.standard_error))
    if fitted.standard_error[worst] > most_error or not np.isfinite(without).all():
        estimate = f"{fitted.theta[worst]:.2f} +- {fitted.standard_error[worst]:.2f} at rank {worst + 1}"
        raise NotIdentifiable(f"too uncertain, {estimate}")
    return fitted, without
