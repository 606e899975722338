"""Debiased balanced interleaving (after Bi et al. 2022, of Amazon Search): balanced lists, credit by inverse probability.

Balanced interleaving can favour a ranker when clicks are random. With A = a b c and B = b c a, document c stands at rank 3
whoever leads, and a click on it always counts for B. Here a click counts for the ranker that places the document higher,
weighted by one over the probability that a click at this rank counts for that ranker. At every rank each ranker then expects a
weight of one, so random clicks favour neither; where only one of them could be credited, as at rank 3, clicks count for nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial.methods.balanced import Balanced, rank_in
from ranktrial.methods.base import Method
from ranktrial.methods.displays import Displays, Linear
from ranktrial.rankings import Pair


@dataclass(frozen=True, repr=False)
class DebiasedBalanced(Method):
    """Debiased balanced interleaving: x is the sum of weighted clicks for A minus those for B.

    >>> for shown in DebiasedBalanced().displays(Pair.from_lists(["abc"], ["bca"], k=3)).of_query(0):
    ...     print(shown.documents, shown.probability, shown.credits)
    (0, 1, 2) 0.5 (2.0, -2.0, 0.0)
    (1, 0, 2) 0.5 (-2.0, 2.0, 0.0)
    """

    def displays(self, pair: Pair) -> Displays:
        mixture = Balanced().displays(pair).mixture  # two displays a query, equally likely: A or B leads
        queries = np.repeat(np.arange(pair.n_queries), 2)
        in_a, in_b = (rank_in(mixture.rankings, top[queries]) for top in (pair.top_a, pair.top_b))
        for_a, for_b = in_a <= in_b, in_b <= in_a  # a document that both place alike counts for both
        chance_a, chance_b = (
            (counts[::2] + counts[1::2].astype(float)).repeat(2, axis=0) / 2 for counts in (for_a, for_b)
        )
        values = for_a / np.maximum(chance_a, 0.5) - for_b / np.maximum(chance_b, 0.5)
        values[(chance_a == 0) | (chance_b == 0)] = 0.0
        return Displays(mixture, Linear(values))
