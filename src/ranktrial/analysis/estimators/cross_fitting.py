"""Cross-fitting: every impression is valued with a relevance model fitted to impressions that do not include it.

* "folds": units are dealt out to folds in the order in which they came; each fold is valued with a model fitted to all the
  others. Uses the log best. Right where impressions do not depend on each other, so not quite where the policy was changed in
  the light of earlier clicks.
* "past": models are fitted at given numbers of impressions, each to all impressions before it. Values minus Delta are then
  a martingale whatever changed on the way, as confidence sequences need. All impressions of a unit are valued with the model
  at its first: later models may know what it was shown, which for the same query may be the same again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import BoolArray, IntArray
from ranktrial.log.units import Units

CROSS_FITS = ("folds", "past")
REFITS = tuple(100 * 2**doubling for doubling in range(56))


@dataclass(frozen=True)
class CrossFit:
    """Groups of impressions (folds, or stretches between refits), each of which is valued with a model of its own.

    Attributes:
        how: "folds" or "past".
        folds: Number of folds.
        refits: Numbers of impressions at which models are refitted to the past; by default 100, 200, 400, ...

    >>> units, past = Units.of(["bob", "ann", "bob", "eve"]), CrossFit("past", refits=(1, 3))
    >>> past.groups(units).tolist(), past.counted(np.arange(4), units).tolist()
    ([0, 1, 0, 2], [0, 1, 1, 2])
    """

    how: str = "folds"
    folds: int = 5
    refits: tuple[int, ...] = REFITS

    @classmethod
    def of(cls, how: str, folds: int, refits: ArrayLike | None) -> CrossFit:
        """Build from options as they are given to ``estimate``, checked."""
        checks.one_of("cross_fit", how, CROSS_FITS)
        if how == "past":
            return cls(how, folds, REFITS if refits is None else tuple(checks.checkpoints(refits).tolist()))
        if refits is not None:
            raise ValueError('refits belong to cross_fit="past", not to "folds"')
        return cls(how, checks.whole("folds", folds, 2, 1000))

    def groups(self, units: Units) -> IntArray:
        """Group with whose model each impression is valued, from 0."""
        if self.how == "folds":
            return units.place % self.folds
        return np.asarray(np.searchsorted(self.refits, units.first, side="right").astype(np.int32)[units.place])

    def counted(self, at: IntArray, units: Units) -> IntArray:
        """Group in which impressions ``at`` these places count when models are fitted: for "past" by their own time."""
        if self.how == "folds":
            return self.groups(units)[at]
        return np.asarray(np.searchsorted(self.refits, at, side="right").astype(np.int32))

    def usable(self, counted: IntArray, group: int) -> BoolArray:
        """Flags of what the model of a group may be fitted to, given the group in which each counts."""
        return counted < group if self.how == "past" else counted != group
