"""Cross-fitting: every impression is valued with a relevance model fitted to impressions that do not include it.

* "folds": units are dealt out to folds in the order in which they came; each fold is valued with a model fitted to all the
  others. Uses the log best. Right where impressions do not depend on each other, so not quite where the policy was changed in
  the light of earlier clicks.
* "past": models are fitted at given numbers of impressions, each to all impressions before it. Values minus Delta are then
  a martingale whatever changed on the way, as confidence sequences need. All impressions of a unit are valued with the model
  at its first: later models may know what it was shown, which for the same query may be the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import IntArray
from ranktrial.log.units import Units

T = TypeVar("T", bound=Any)
CROSS_FITS = ("folds", "past")
FIRST_REFIT = 100


def groups_of(
    n: int, cross_fit: str, *, folds: int, refits: ArrayLike | None, units: ArrayLike | Units | None
) -> IntArray:
    """Group of each of n impressions (fold, or stretch between refits) whose relevance model it is valued with, from 0."""
    known = None if units is None else Units.of(units)
    if known is not None and known.place.shape != (n,):
        raise ValueError(f"units have shape {known.place.shape}, the log {n} impressions: must be one each")
    place, first = (np.arange(n), np.arange(n)) if known is None else (known.place, known.first)
    return groups_at(place, first, cross_fit, folds=folds, refits=refits)


def groups_at(
    place: IntArray, first: IntArray, cross_fit: str, *, folds: int = 5, refits: ArrayLike | None = None
) -> IntArray:
    """``groups_of`` some impressions, by the place of each one's unit among units that first came with the impressions
    ``first``.
    """
    checks.one_of("cross_fit", cross_fit, CROSS_FITS)
    if cross_fit == "past":
        before = np.searchsorted(first, refit_points(refits))  # units that came before each point
        sizes = np.diff(before, prepend=0, append=len(first))
        return np.repeat(np.arange(len(sizes)), sizes)[place]
    if refits is not None:
        raise ValueError('refits belong to cross_fit="past", not to "folds"')
    return np.asarray(place % checks.whole("folds", folds, 2, 1000))


def refit_points(refits: ArrayLike | None) -> IntArray:
    """Numbers of impressions at which the relevance model is refitted to the past."""
    return FIRST_REFIT * 2 ** np.arange(64 - 8) if refits is None else checks.checkpoints(refits)


def contributions(groups: IntArray, cross_fit: str, *, refits: ArrayLike | None) -> IntArray:
    """The group that each impression is counted in when sums are made for predictions: in time, for "past"."""
    if cross_fit == "folds":
        return groups
    return groups_of(len(groups), cross_fit, folds=2, refits=refits, units=None)


def training_sums(part: Callable[[int], T], n: int, cross_fit: str) -> Iterator[T]:
    """Training sums of each of n groups: the sum over all other groups ("folds") or all earlier ones ("past").

    ``part`` gives the sum of one group, of any type with + and -.
    """
    if cross_fit == "folds":
        total = part(0)
        for number in range(1, n):
            total = total + part(number)
        for number in range(n):
            yield total - part(number)
        return
    before = part(0) - part(0)
    for number in range(n):
        yield before
        if number < n - 1:
            before = before + part(number)
