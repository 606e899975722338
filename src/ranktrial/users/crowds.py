"""Users who compare all results of a page, and crowds in which people behave differently.

Neither has the one shape of ``users.behaviour``, so only what asks for expected clicks or draws single impressions takes them:
``Pair.ctr``, ``Pair.delta``, ``Mixture.ctr``, ``expected_clicks``, ``draw_clicks``, ``draw_impressions`` and ``Log.simulated``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray
from ranktrial.users.behaviour import User


@dataclass(frozen=True, eq=False)
class Comparing:
    """Users who look at the whole page, whatever the rank, and click among its best documents; made by ``comparing``."""

    zeta: FloatArray
    k: int
    best: int

    @property
    def n_documents(self) -> int:
        """Number of documents whose relevance is known."""
        return len(self.zeta)

    def click_chances(self, table: DocumentArray) -> FloatArray:
        """P(click) at each rank of each ranking; clicks on one ranking are independent."""
        zeta = np.where(table == NO_DOCUMENT, -1.0, self.zeta[table])
        places = np.argsort(np.argsort(-zeta, axis=1, kind="stable"), axis=1)
        return np.where((places < self.best) & (table != NO_DOCUMENT), zeta, 0.0)


@dataclass(frozen=True, eq=False)
class Crowd:
    """Users of several behaviours, each with a share of the searches; made by ``crowd``."""

    shares: FloatArray
    users: tuple[User | Comparing, ...]

    @property
    def k(self) -> int:
        """Number of ranks that all of them know."""
        return min(user.k for user in self.users)

    @property
    def n_documents(self) -> int:
        """Number of documents whose relevance all of them know."""
        return min(user.n_documents for user in self.users)


Users = User | Comparing | Crowd


def comparing(zeta: ArrayLike, k: int, *, best: int = 2) -> Comparing:
    """Users who compare all k results: each of the ``best`` most relevant ones is clicked with probability zeta, at any rank.

    Of equally relevant documents those that stand higher are taken.

    >>> from ranktrial.rankings import expected_clicks
    >>> expected_clicks(np.array([[2, 0, 1]], np.int32), comparing([0.1, 0.5, 0.3], 3))
    array([[0.3, 0. , 0.5]])
    """
    checks.at_least("k", k, 1)
    checks.at_least("best", best, 1)
    return Comparing(checks.probabilities("zeta", zeta), k, best)


def crowd(shares: ArrayLike, users: Sequence[User | Comparing]) -> Crowd:
    """Users of several behaviours: each search is made by one of them, drawn by their shares.

    >>> from ranktrial.rankings import expected_clicks
    >>> from ranktrial.users import position_based
    >>> half_on_phones = crowd([0.5, 0.5], [position_based([0.4, 0.2], theta) for theta in ([1, 0.5], [1, 0])])
    >>> expected_clicks(np.array([[0, 1]], np.int32), half_on_phones)
    array([[0.4 , 0.05]])
    """
    found = checks.probabilities("shares", shares)
    if len(found) != len(users) or not users:
        raise ValueError(f"{len(found)} shares for {len(users)} users, must be one each and at least one")
    if abs(found.sum() - 1) > 1e-9:
        raise ValueError(f"shares sum to {found.sum():g}, must sum to 1")
    return Crowd(found, tuple(users))
