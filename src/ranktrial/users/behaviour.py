"""Click behaviours to simulate (position-based, trust bias, cascade), all of one shape.

A user reads a ranking from the top. While still reading, the document d at rank r is clicked with probability
``slope[r] * zeta[d] + intercept[r]``; the user then reads on with probability ``stay_after_click[r]`` or
``stay_after_skip[r]``. Three behaviours are special cases:

* position-based (the paper's): slope = theta, intercept = 0, always reads on; clicks are independent given the ranking.
* trust bias (Agarwal et al. 2019): theta_r (e+_r zeta + e-_r (1 - zeta)), affine in zeta; clicks still independent.
* cascade (Craswell et al. 2008): the user may leave after each click or skip, so clicks depend on what stands above.

One shape means that every simulation kernel and every exact moment works for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray


def rank_decay(k: int, eta: float = 1.0) -> FloatArray:
    """Examination probabilities theta_r = 1 / r^eta for ranks 1..k.

    >>> rank_decay(4)
    array([1.        , 0.5       , 0.33333333, 0.25      ])
    """
    checks.at_least("k", k, 1)
    checks.between("eta", eta, 0, 100)
    return np.arange(1, k + 1, dtype=np.float64) ** -eta


@dataclass(frozen=True, eq=False)
class User:
    """A click behaviour over the documents of a data set; made by the functions below."""

    name: str
    zeta: FloatArray
    slope: FloatArray
    intercept: FloatArray
    stay_after_click: FloatArray
    stay_after_skip: FloatArray

    @property
    def k(self) -> int:
        """Number of ranks the user can see."""
        return len(self.slope)

    @property
    def n_documents(self) -> int:
        """Number of documents whose relevance is known."""
        return len(self.zeta)

    @cached_property
    def reads_on(self) -> bool:
        """True when clicks on one ranking are independent: the user never leaves early."""
        return bool(np.all(self.stay_after_click == 1) and np.all(self.stay_after_skip == 1))

    @property
    def follows_position_bias(self) -> bool:
        """True for the position-based user: P(click d at rank r) = theta_r zeta_d, whatever else is on the page."""
        return self.reads_on and not self.intercept.any() and bool(np.all(self.slope > 0))

    def cut(self, k: int) -> User:
        """Return this user seeing no more than k ranks, as many as the page shows."""
        if k == self.k:
            return self
        ranks = (self.slope, self.intercept, self.stay_after_click, self.stay_after_skip)
        return User(self.name, self.zeta, *(per_rank[:k] for per_rank in ranks))

    def of(self, documents: IntArray) -> User:
        """Return this user for the given documents only, numbered in that order."""
        return replace(self, zeta=self.zeta[documents])

    def __repr__(self) -> str:
        return f"User({self.name!r}, k={self.k}, documents={len(self.zeta)})"


def _user(
    name: str, zeta: ArrayLike, slope: FloatArray, intercept: FloatArray, click: FloatArray, skip: FloatArray
) -> User:
    return User(name, checks.probabilities("zeta", zeta), slope, intercept, click, skip)


def position_based(zeta: ArrayLike, theta: ArrayLike) -> User:
    """The user of the paper: P(click d at rank r) = theta_r zeta_d.

    Args:
        zeta: P(click) of each document once it is looked at.
        theta: P(looked at) of each rank.

    >>> from ranktrial.rankings import Pair
    >>> pair = Pair.from_lists([["a", "b"]], [["b", "a"]], k=2)
    >>> user = position_based(zeta=[0.5, 0.2], theta=[1.0, 0.6])
    >>> [round(clicks, 2) for clicks in pair.ctr(user)]  # A: 1 * 0.5 + 0.6 * 0.2, B: 1 * 0.2 + 0.6 * 0.5
    [0.62, 0.5]
    """
    slope = checks.probabilities("theta", theta)
    ones = np.ones_like(slope)
    return _user("position-based", zeta, slope, np.zeros_like(slope), ones, ones)


def trust_bias(zeta: ArrayLike, theta: ArrayLike, *, relevant: ArrayLike, irrelevant: ArrayLike) -> User:
    """Users who trust high ranks: P(click) = theta_r (relevant_r zeta_d + irrelevant_r (1 - zeta_d)).

    ``relevant`` is the chance to click an examined document that is relevant, ``irrelevant`` one that is not, per rank.
    """
    theta = checks.probabilities("theta", theta)
    plus = checks.probabilities("relevant", relevant)
    minus = checks.probabilities("irrelevant", irrelevant)
    if not len(theta) == len(plus) == len(minus):
        raise ValueError(
            f"theta, relevant and irrelevant have {len(theta)}, {len(plus)}, {len(minus)} ranks, must agree"
        )
    if np.any(minus > plus):
        r = int(np.argmax(minus > plus))
        raise ValueError(f"irrelevant[{r}] is {minus[r]:g}, must be at most relevant[{r}] = {plus[r]:g}")
    ones = np.ones_like(theta)
    return _user("trust bias", zeta, theta * (plus - minus), theta * minus, ones, ones)


def cascade(
    zeta: ArrayLike,
    k: int,
    *,
    leave_after_click: float = 0.5,
    leave_after_skip: float = 0.1,
    theta: ArrayLike | None = None,
) -> User:
    """Users who read down the list and leave; with ``theta`` they also overlook documents, as the position-based user does."""
    checks.between("leave_after_click", leave_after_click, 0, 1)
    checks.between("leave_after_skip", leave_after_skip, 0, 1)
    slope = np.ones(k) if theta is None else checks.probabilities("theta", theta)
    if len(slope) != k:
        raise ValueError(f"theta has {len(slope)} ranks, must have k = {k}")
    stay_click, stay_skip = np.full(k, 1 - leave_after_click), np.full(k, 1 - leave_after_skip)
    return _user("cascade", zeta, slope, np.zeros(k), stay_click, stay_skip)
