"""Tests on chance that may be looked at any number of times: e-processes over a log in the order of time.

An e-process is worth at most 1 on average at any time at which one may stop if what is tested holds, so the chance that it
ever reaches 1 / alpha is at most alpha (Ville): 1 / its largest value so far is a p-value over the whole trial.

* ``DrawsSoFar``: were outcomes drawn with the probabilities that were said? Exact at any number; for constant
  probabilities the Dirichlet-multinomial mixture of Lindon and Malek (2022, "anytime-valid inference for multinomial counts").
* ``mean_evidence``: is the mean of values zero? For large numbers: the normal mixture behind asymptotic confidence sequences.
* ``bet_evidence``: the same, for values with known bounds, by bets on which way they go. Exact at any number.

>>> round(anytime_p(np.log([0.5, 20.0, 4.0])), 3)
0.05
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.analysis._kernels import draws_evidence
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.log.units import Units, UnitSums

CONCENTRATIONS = (30.0, 300.0, 3000.0)  # draws that stated probabilities count for: large and small faults are found
ENOUGH = 50.0  # equally large values, before a sum of them is taken for normal


def anytime_p(log_evidence: FloatArray) -> float:
    """The p-value of an e-process, given its logarithm after each step: right however often one has looked.

    1 before the first step.
    """
    return float(np.exp(-max(float(np.max(log_evidence, initial=0.0)), 0.0)))


class DrawsSoFar(NamedTuple):
    """Evidence that outcomes did not come with their chances, and what it needs to know of the draws so far to go on.

    The alternative is that each outcome comes so many times as often as it should, by what was seen so far: (c p + seen) /
    (c p + expected). The mean over three values of c is as good as the best of them but for a factor of three.

    Attributes:
        seen: Count of each outcome.
        expected: Expected count of each outcome.
        spread: Variance of the expected count.
        log_e: Logarithm of the evidence, for each of the alternatives.
        most: Largest logarithm of the evidence so far.
    """

    seen: FloatArray
    expected: FloatArray
    spread: FloatArray
    log_e: FloatArray
    most: float = 0.0

    @classmethod
    def none(cls, cells: int) -> DrawsSoFar:
        return cls(np.zeros(cells), np.zeros(cells), np.zeros(cells), np.zeros(len(CONCENTRATIONS)))

    @property
    def p(self) -> float:
        """``anytime_p`` of all draws."""
        return anytime_p(np.array([self.most]))

    def after(self, drawn: IntArray, p: FloatArray, kind: IntArray | None = None) -> tuple[DrawsSoFar, FloatArray]:
        """Add draws whose outcomes had probabilities p; return the new state, and the log evidence after each draw.

        ``p`` has a row for each draw or, with ``kind``, one for each kind of draw.
        """
        if not len(drawn):
            return self, np.empty(0)
        new = DrawsSoFar(self.seen.copy(), self.expected.copy(), self.spread.copy(), self.log_e.copy())
        rows, evidence = np.arange(len(drawn)) if kind is None else kind, np.empty(len(drawn))
        draws_evidence(drawn, rows, p, np.array(CONCENTRATIONS), *new[:4], evidence)
        return new._replace(most=max(self.most, float(evidence.max()))), evidence


def mean_evidence(
    values: ArrayLike | UnitSums,
    units: ArrayLike | Units | None = None,
    *,
    telling: ArrayLike | None = None,
    widen: float = 1.0,
) -> FloatArray:
    """Logarithm of the evidence after each unit that the mean of values is not zero; 0 while there are too few to tell.

    With S the sum so far and V the sum of squares, sqrt(v / (V + v)) exp(S^2 / (2 (V + v))), where v is V at the time from
    which on the sum is taken for normal: when it rests on the like of 50 equally large values.

    Args:
        values: In the order of time, or their sums by unit.
        units: Whose each is: values of one unit may depend on each other.
        telling: Which of them (or of the sums) may be large, all by default: as with a click, where many small values without
            one are balanced by a few large ones. Before there are enough of these a spread is not believed.
        widen: A factor of at least 1 on the errors, for those that the values do not show.

    >>> [anytime_p(mean_evidence([x, 1.0] * 200)) < 0.001 for x in (-1.0, 1.0)]
    [False, True]
    """
    checks.at_least("widen", widen, 1)
    sums = UnitSums.of(values, units)
    x = tells = sums.totals
    if telling is not None:
        own = np.asarray(telling, np.float64)
        tells = np.where((own if isinstance(values, UnitSums) else UnitSums.of(own, units).totals) > 0, x, 0.0)
    squares, told = np.cumsum(x**2), tells**2
    enough = np.cumsum(told) ** 2 >= ENOUGH * np.maximum(np.cumsum(told * told), 1e-300)
    evidence = np.zeros(len(x))
    if not enough.any():
        return evidence
    first = int(np.argmax(enough))
    variance, scale = widen**2 * squares[first:], widen**2 * squares[first]
    so_far = np.cumsum(x)[first:]
    evidence[first:] = (np.log(scale / (variance + scale)) + so_far**2 / (variance + scale)) / 2
    return evidence


MOST_STAKE = 0.9  # of what there is


def bet_evidence(values: ArrayLike, stakes: ArrayLike, bounds: ArrayLike) -> FloatArray:
    """Logarithm of what a bettor has after each unit who began with 1, if every value pays its stake times itself.

    Worth 1 on average if values have mean zero given all that was known before. The stakes decide how fast it grows if not;
    the best one is the mean over the variance.

    Args:
        values: Sums by unit, in the order of time.
        stakes: On each, from what was known before the first value of its unit.
        bounds: On the absolute value of each, known before but for how often a unit comes: no more than nine tenths of what
            there is are at stake.

    >>> bet_evidence([1.0, -1.0, 1.0], [0.1, 0.1, 9.0], [1.0, 1.0, 1.0]).round(3)
    array([ 0.095, -0.01 ,  0.632])
    """
    x, stake, bound = (np.asarray(of, np.float64) for of in (values, stakes, bounds))
    most = np.divide(MOST_STAKE, bound, out=np.zeros_like(bound), where=bound > 0)
    return np.asarray(np.cumsum(np.log1p(np.clip(stake, -most, most) * x)))
