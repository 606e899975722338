"""A site's own allowance, from trials it has finished.

In each trial the position-based estimate differs from the A/B estimate by chance and by what visitors who do not follow the
click model do to it. In units of exposure disagreement x clicks per search, with d_i the difference and s_i its standard error,

    E[d_i^2] = s_i^2 + a^2

so the mean of d_i^2 - s_i^2, weighted by what each trial can tell, gives a^2 (DerSimonian and Laird 1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranktrial.analysis.ladder import AB_TRAFFIC, POSITION_BASED, Ladder
from ranktrial.distributions import find_root, normal_quantile

LEAST_TRIALS = 3


@dataclass(frozen=True)
class Discrepancy:
    """Position-based less A/B estimate of one trial.

    Attributes:
        difference: The difference, in clicks per search.
        standard_error: Its standard error.
        unit: Exposure disagreement x clicks per search, by which an allowance is told.
    """

    difference: float
    standard_error: float
    unit: float


@dataclass(frozen=True)
class Calibration:
    """An allowance from finished trials.

    Attributes:
        allowance: Root mean square of what chance does not explain; 0 where chance explains all.
        at_most: Largest allowance that these trials do not rule out, at 95 %.
        trials: Number of trials it is from.

    >>> print(calibrate([Discrepancy(0.02, 0.004, 0.5), Discrepancy(-0.03, 0.005, 0.6), Discrepancy(0.02, 0.01, 0.4)]))
    allowance 0.044 from 3 trials, which do not rule out ...
    """

    allowance: float
    at_most: float
    trials: int

    def __str__(self) -> str:
        return f"allowance {self.allowance:.2g} from {self.trials} trials, which do not rule out {self.at_most:.2g}"


def discrepancy(ladder: Ladder) -> Discrepancy | None:
    """The difference of the position-based and the A/B estimate of a log; None where one of them is missing."""
    unit = ladder.disagreement * ladder.ctr
    for test in ladder.tests:
        if (test.upper, test.lower) == (POSITION_BASED, AB_TRAFFIC) and unit > 0:
            return Discrepancy(-test.difference, test.standard_error, unit)
    return None


def calibrate(trials: Sequence[Discrepancy]) -> Calibration:
    """Work out the allowance that finished trials call for."""
    if len(trials) < LEAST_TRIALS:
        raise ValueError(
            f"{len(trials)} trials have a position-based and an A/B estimate, must be at least {LEAST_TRIALS}: one trial "
            "cannot tell chance from visitors"
        )
    d = np.array([trial.difference / trial.unit for trial in trials])
    variance = np.array([(trial.standard_error / trial.unit) ** 2 for trial in trials])

    def left(square: float) -> float:
        """Weighted mean of what is left of d^2 at an allowance; it falls with the allowance."""
        weight = 1 / (variance + square) ** 2
        return float(weight @ (d**2 - variance - square)) / float(weight.sum())

    def unlikely(square: float) -> float:
        """Sum of d^2 over their variance at an allowance, less what it exceeds in 95 of 100 cases; it falls with it."""
        return float((d**2 / (variance + square)).sum() - least)

    n = len(d)
    least = n * (1 - 2 / (9 * n) - normal_quantile(0.95) * np.sqrt(2 / (9 * n))) ** 3  # chi-square, Wilson and Hilferty
    top = 10 * n * float((d**2).max()) / least + 1e-12
    found = find_root(left, 0.0, top) if left(0.0) > 0 else 0.0
    most = find_root(unlikely, 0.0, top) if unlikely(0.0) > 0 else 0.0
    return Calibration(float(np.sqrt(found)), float(np.sqrt(max(most, found))), n)
