"""Identifiability of position bias: which ranks of a log can be compared, and whether that suffices.

Two ranks can be compared only through documents that stood at both and were clicked at one of them. Draw an edge
between such ranks: theta is identified exactly when the graph connects all ranks. It must also do so in both
directions: when no click below ever falls on a document that also stood above, the ratio of the two is not bounded
away from zero.

Documents that were never clicked add nothing to this, so a log may be counted without them: what is said of ranks must be
true either way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.position_bias import _kernels
from ranktrial.position_bias.counts import Counts

GIVEN = ("shown", "design")
NO_FIRST = "nothing was clicked at rank 1, by which theta is scaled"


class NotIdentifiable(ValueError):  # noqa: N818 (reads as what it says)
    """Error for a log from which position bias cannot be estimated; the message names the ranks.

    >>> from ranktrial.position_bias import Conditional
    >>> Conditional().fit(Counts.from_dense([[9, 0], [0, 9]], [[5, 0], [0, 0]]))
    Traceback (most recent call last):
    ...
    ranktrial.position_bias.identifiability.NotIdentifiable: no document that was ever clicked stood at rank 2: ...
    """


@dataclass(frozen=True, eq=False)
class Identifiability:
    """Report on the ranks that a log can compare, and on how much evidence.

    Attributes:
        pairs: effective pairs per edge, ``(k, k)``: a document shown n_r and n_s times at two ranks, and clicked at one
            of them, is worth 2 n_r n_s / (n_r + n_s) shows in an even comparison.
        components: groups of ranks (from 0) that can be compared with each other; one group is what is needed.
        unclicked: ranks that were shown and never clicked, where theta is estimated as 0.
        problem: why theta is not identified, or None.

    >>> report = identifiability(Counts.from_dense([[4, 12, 0], [0, 5, 5]], [[2, 3, 0], [0, 2, 1]]))
    >>> print(report)
    identified: all ranks are compared, most weakly 2 and 3 (5 effective pairs)
    >>> report.pairs
    array([[0., 6., 0.],
           [6., 0., 5.],
           [0., 5., 0.]])
    """

    pairs: FloatArray
    components: tuple[tuple[int, ...], ...]
    unclicked: tuple[int, ...]
    problem: str | None

    @property
    def identified(self) -> bool:
        """True if theta can be estimated."""
        return self.problem is None

    @property
    def weakest(self) -> tuple[int, int, float]:
        """The link that limits the estimate: the fewest effective pairs on the best tree through all ranks."""
        last = (0, 0, 0.0)
        part = np.arange(len(self.pairs))
        first, second = np.nonzero(np.triu(self.pairs, 1) > 0)
        for i in np.argsort(-self.pairs[first, second], kind="stable"):
            r, s = int(first[i]), int(second[i])
            if part[r] != part[s]:  # Kruskal's tree takes it in, the strongest links first
                part[part == part[s]] = part[r]
                last = r, s, float(self.pairs[r, s])
        return last

    def require(self) -> None:
        """Raise NotIdentifiable when theta is not identified."""
        if self.problem is not None:
            raise NotIdentifiable(self.problem)

    def __str__(self) -> str:
        if self.problem is not None:
            return f"not identified: {self.problem}"
        r, s, pairs = self.weakest
        links = f"{float(f'{pairs:.4g}'):,.10g} effective pairs"
        text = f"identified: all ranks are compared, most weakly {r + 1} and {s + 1} ({links})"
        return text + (f"; no clicks at rank {ranks_text(self.unclicked)}" if self.unclicked else "")


def identifiability(counts: Counts, *, given: str = "shown") -> Identifiability:
    """Report on the graph of ranks; ``given`` says what an estimator takes as exposure.

    >>> fixed = Counts.from_dense([[9, 0], [0, 9]], [[5, 0], [0, 2]])
    >>> print(identifiability(fixed))
    not identified: no clicked document connects rank 2 with rank 1, so they cannot be compared
    """
    even = _kernels.even_pairs(exposure(counts, given), counts.clicked)
    links = Links.of(counts, given)
    unclicked = tuple(int(r) for r in np.flatnonzero((links.shown > 0) & ~links.clicked_ranks))
    return Identifiability(even, _groups(even > 0), unclicked, links.problem())


@dataclass(frozen=True, eq=False)
class Links:
    """Numbers of documents by which ranks can be compared; those without a part of a log follow by subtraction.

    Attributes:
        wins: Documents clicked at rank r and exposed there and at s, ``(k, k)``.
        pairs: Documents exposed at both ranks and clicked at either.
        shown: Documents shown at each rank.
        exposed: Documents exposed at each rank, and clicked anywhere.
        clicked: Documents clicked at each rank.
    """

    wins: IntArray
    pairs: IntArray
    shown: IntArray
    exposed: IntArray
    clicked: IntArray

    @classmethod
    def of(cls, counts: Counts, given: str) -> Links:
        wins, pairs, at_rank = _kernels.count_links(counts.shown, exposure(counts, given), counts.clicked)
        return cls(wins, pairs, *at_rank)

    def without(self, part: Links, left: Links) -> Links:
        """Links of a log in which the documents of ``part`` have only the counts of ``left``."""
        return Links(*(a - b + c for a, b, c in zip(*(vars(one).values() for one in (self, part, left)))))

    @property
    def clicked_ranks(self) -> BoolArray:
        return np.asarray(self.clicked > 0)

    def problem(self) -> str | None:
        """Reason why theta is not identified; None if it is."""
        clicked = self.clicked_ranks
        if not clicked[0]:
            return NO_FIRST
        never = np.flatnonzero((self.shown == 0) | (self.exposed == 0))
        if len(never):
            return f"no document that was ever clicked stood at rank {ranks_text(never)}: no comparison with rank 1"
        apart = np.flatnonzero(~_reached((self.pairs > 0) | (self.pairs.T > 0)))
        if len(apart):
            return f"no clicked document connects rank {ranks_text(apart)} with rank 1, so they cannot be compared"
        # A rank never clicked has theta = 0: no link needed. The others must be reached from rank 1 and reach it.
        links = (self.wins > 0) & clicked & clicked[:, None]
        below, above = _reached(links), _reached(links.T)
        for lost, text in (
            (
                clicked & ~below,
                "no click leads from rank 1 to rank {}: clicked above, those documents were not shown there",
            ),
            (
                clicked & ~above,
                "no click leads from rank {} to rank 1: clicked there, those documents were not shown above",
            ),
        ):
            if lost.any():
                return text.format(ranks_text(np.flatnonzero(lost)))
        return None


def exposure(counts: Counts, given: str) -> FloatArray:
    """Shows, or expected shows, per (document, rank)."""
    if checks.one_of("given", given, GIVEN) == "shown":
        return counts.shown
    if counts.expected is None:
        raise ValueError("given is 'design', but these counts do not know their placement: pass it when counting")
    return counts.expected


def first_rank_problem(counts: Counts) -> str | None:
    """Problem of a log without a click at the first rank, which every estimator of theta needs; None if it has one."""
    return None if counts.clicked_ranks[0] else NO_FIRST


def _groups(links: BoolArray) -> tuple[tuple[int, ...], ...]:
    """Connected ranks."""
    either = links | links.T
    left = np.ones(len(links), bool)
    groups = []
    while left.any():
        group = _reached(either, int(np.argmax(left)))
        groups.append(tuple(np.flatnonzero(group).tolist()))
        left &= ~group
    return tuple(groups)


def _reached(links: BoolArray, start: int = 0) -> BoolArray:
    seen = np.zeros(len(links), bool)
    more = np.arange(len(links)) == start
    while np.any(more & ~seen):
        seen |= more
        more = np.asarray(links[seen].any(0))
    return seen


def ranks_text(ranks: object) -> str:
    """Ranks counted from 0, as people name them.

    >>> ranks_text([0, 2, 3])
    '1, 3 and 4'
    """
    numbers = [str(int(r) + 1) for r in np.asarray(ranks).tolist()]
    return numbers[0] if len(numbers) == 1 else ", ".join(numbers[:-1]) + " and " + numbers[-1]
