"""How sure is an estimate of theta, without trusting its model? Leave out one group of the log at a time.

Groups should be whatever is independent: random impressions, users, days. The replicates also carry theta's
uncertainty into anything computed from it: recompute that number with each replicate and apply
``jackknife_variance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.model import Estimator, PositionBias


def replicates(estimator: Estimator, groups: Sequence[Counts]) -> tuple[PositionBias, FloatArray]:
    """The estimate on all groups together, and theta without each of them, ``(groups, k)``."""
    if len(groups) < 2:
        raise ValueError(f"a jackknife needs at least 2 groups, got {len(groups)}")
    total = Counts.merged(groups)
    return estimator.fit(total), np.array([estimator.fit(total - group).theta for group in groups])


def jackknife_variance(values: FloatArray) -> FloatArray:
    """Covariance of an estimate from its delete-a-group replicates, ``(groups, dimension)``."""
    centred = values - values.mean(0)
    return np.asarray((len(values) - 1) / len(values) * centred.T @ centred)


def with_errors(estimate: PositionBias, theta: FloatArray) -> PositionBias:
    """The estimate with standard errors from its replicates, and intervals from t with one degree less than groups."""
    covariance = jackknife_variance(theta)
    return replace(
        estimate,
        standard_error=np.sqrt(np.diag(covariance)),
        covariance=covariance,
        degrees_of_freedom=len(theta) - 1,
        note="; ".join(part for part in (estimate.note, f"jackknife over {len(theta)} groups") if part),
    )


def jackknife(estimator: Estimator, groups: Sequence[Counts]) -> PositionBias:
    """The estimate with delete-a-group standard errors.

    20 groups are customary. Groups must all know the same: their queries, their design.
    """
    return with_errors(*replicates(estimator, groups))
