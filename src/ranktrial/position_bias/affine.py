"""Trust bias by estimating equations: P(click d at rank r) = a_r x_d + b_r, x_d the click rate of d at rank 1.

Where people also trust high ranks, click rates at a rank are a straight line in relevance (Agarwal et al. 2019). Clicks
tell the line relative to the first rank only. Relevance is eliminated, and ranks that share no document with the first are
reached through others. With shows n_dr and clicks C_dr, T_d and e_d = sum_r n_dr a_r,

    x_d = (T_d - sum_r n_dr b_r) / e_d,    sum_d w_d [ C_dr - n_dr (a_r x_d + b_r) ] = 0,    a_1 = 1, b_1 = 0,

for w = 1 and for w = z_d, an *instrument*: anything that goes with relevance and does not come from these clicks, such as
click rates in another part of the log. Each term is linear in the clicks and has mean zero at the true a and b, whatever x is
and however few shows a document has. With b = 0 and w = 1 this is the conditional equation (``conditional``). Without documents
that differ in relevance at the same ranks, a and b cannot be told apart: that is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.position_bias import _kernels
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import NotIdentifiable, exposure
from ranktrial.position_bias.jackknife import jackknife_variance

STEPS = 30
HALVINGS = 6
PRECISION = 1e-9


@dataclass(frozen=True, eq=False)
class AffineBias:
    """Click rates at every rank as a line in the click rate of the same document at rank 1.

    Attributes:
        slope: a of each rank, 1 at the first.
        intercept: b of each rank, 0 at the first.
        slope_error: Standard errors from the log without each group.
        intercept_error: Standard errors likewise.
        without: a and b without each group, ``(groups, 2, k)``.
    """

    slope: FloatArray
    intercept: FloatArray
    slope_error: FloatArray
    intercept_error: FloatArray
    without: FloatArray


def affine_bias(
    parts: Sequence[Counts],
    instruments: FloatArray,
    start: FloatArray,
    *,
    given: str = "shown",
    most_error: float = np.inf,
) -> AffineBias:
    """Lines from counts of groups of a log, with jackknife errors.

    Args:
        parts: Counts of each group, all documents that were shown included.
        instruments: Instrument of each document, by its number: a row for each of so many shares of the log, to which parts
            belong in turn. A row must not come from the clicks of its share.
        start: Theta, to start from.
        given: "shown" or "design", as of ``Conditional``.
        most_error: Errors of a, and of b relative to the mean click rate at rank 1, may be as large.

    Refused (NotIdentifiable) where a or b cannot be told, also without any one group.

    >>> shown, relevance = np.full((40, 2), 1e6), np.linspace(0.1, 0.9, 40)[:, None]
    >>> day = Counts.from_dense(shown, shown * (relevance * [1.0, 0.4] + [0.0, 0.05]))
    >>> lines = affine_bias([day, day], relevance.T, np.array([1.0, 0.5]))
    >>> lines.slope.round(3), lines.intercept.round(3)
    (array([1. , 0.4]), array([0.  , 0.05]))
    """
    total = Counts.merged(parts)
    shares = len(instruments)
    of_share = [Counts.merged(parts[number::shares]) for number in range(shares)]
    found = _Equations.of(of_share, instruments, given).solved(np.stack([start / start[0], np.zeros(len(start))]))
    without = []
    for number, part in enumerate(parts):
        rest = [one - part if share == number % shares else one for share, one in enumerate(of_share)]
        without.append(_Equations.of(rest, instruments, given).solved(found))
    errors = np.sqrt(np.diag(jackknife_variance(np.array(without).reshape(len(parts), -1)))).reshape(2, -1)
    rate = total.clicked[:, 0].sum() / max(float(exposure(total, given)[:, 0].sum()), 1e-300)
    relative = errors / np.array([[1.0], [rate]])
    worst = np.unravel_index(int(np.argmax(relative)), relative.shape)
    if not relative[worst] <= most_error:
        what = ("slope", "intercept")[worst[0]]
        raise NotIdentifiable(f"the {what} at rank {worst[1] + 1} is {found[worst]:.2f} +- {errors[worst]:.2f}")
    return AffineBias(found[0], found[1], errors[0], errors[1], np.array(without))


@dataclass(frozen=True, eq=False)
class _Equations:
    shown: FloatArray
    clicked: FloatArray
    instrument: FloatArray

    @classmethod
    def of(cls, shares: list[Counts], instruments: FloatArray, given: str) -> _Equations:
        """Documents of each share by themselves; instruments with mean 0 and spread 1, which changes no solution."""
        shown = np.concatenate([exposure(share, given) for share in shares])
        clicked = np.concatenate([share.clicked for share in shares])
        z = np.concatenate([row[share.documents] for row, share in zip(instruments, shares)])
        every = shown.sum(1) / max(float(shown.sum()), 1e-300)
        z = z - every @ z
        return cls(shown, clicked, z / max(float(np.sqrt(every @ z**2)), 1e-300))

    def _left(self, lines: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The left sides, a row for each w, and their derivatives in a and b."""
        left, slopes = _kernels.affine_equations(self.shown, self.clicked, self.instrument, *lines)
        return left, slopes

    def solved(self, start: FloatArray) -> FloatArray:
        """a and b by Newton's method, with steps halved until they help."""
        scale = max(float(self.clicked.sum()), 1.0)
        k = self.shown.shape[1]
        lines = start
        left, slopes = self._left(lines)
        for _ in range(STEPS):
            if np.abs(left).max() <= PRECISION * scale:
                return lines
            step = np.zeros_like(lines)
            matrix = slopes[:, 1:, :, 1:].reshape(2 * (k - 1), 2 * (k - 1))
            step[:, 1:] = np.linalg.lstsq(matrix, -left[:, 1:].ravel(), rcond=1e-10)[0].reshape(2, k - 1)
            size = np.abs(left).sum()
            for halving in range(HALVINGS):
                tried = lines + step / 2**halving
                left, slopes = self._left(tried)
                if (tried[0] > 0).all() and np.abs(left).sum() < size:
                    break
            else:
                break
            lines = tried
        raise NotIdentifiable("no slopes and intercepts fit the clicks: documents differ too little at the same ranks")
