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
from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.position_bias import _kernels
from ranktrial.position_bias.counts import Counts

PAIRS = ("all", "adjacent", "pivot")
GIVEN = ("shown", "design")


class NotIdentifiable(ValueError):  # noqa: N818 (reads as what it says)
    """The log cannot tell position bias from relevance; the message names the ranks.

    >>> from ranktrial.position_bias import Conditional
    >>> Conditional().fit(Counts.from_dense([[9, 0], [0, 9]], [[5, 0], [0, 0]]))
    Traceback (most recent call last):
    ...
    ranktrial.position_bias.identifiability.NotIdentifiable: no document that was ever clicked stood at rank 2: ...
    """


@dataclass(frozen=True, eq=False)
class Identifiability:
    """Which ranks a log can compare, and on how much evidence.

    Attributes:
        pairs: effective pairs per edge, ``(k, k)``: a document shown n_r and n_s times at two ranks, and clicked at one
            of them, is worth 2 n_r n_s / (n_r + n_s) shows in an even comparison.
        clicks: clicks at rank r that an even comparison with rank s can use (row r, column s).
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
    clicks: FloatArray
    components: tuple[tuple[int, ...], ...]
    unclicked: tuple[int, ...]
    problem: str | None

    @property
    def identified(self) -> bool:
        """Whether theta can be estimated."""
        return self.problem is None

    @property
    def weakest(self) -> tuple[int, int, float]:
        """The link that limits the estimate: the fewest effective pairs on the best tree through all ranks."""
        last, part = (0, 0, 0.0), np.arange(len(self.pairs))
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


def identifiability(counts: Counts, *, pairs: str = "all", given: str = "shown") -> Identifiability:
    """Report on the graph of ranks; ``pairs`` says which edges an estimator uses, ``given`` what it takes as exposure.

    >>> fixed = Counts.from_dense([[9, 0], [0, 9]], [[5, 0], [0, 2]])
    >>> print(identifiability(fixed))
    not identified: rank 2 shares no clicked document with rank 1
    """
    exposed = exposure(counts, given)
    wins, even = _kernels.paired_clicks(exposed, counts.clicked)
    used = edges(counts.k, pairs)
    wins, even = np.where(used, wins, 0.0), np.where(used, even, 0.0)
    clicks = counts.clicked.sum(0)
    unclicked = tuple(int(r) for r in np.flatnonzero((counts.shown.sum(0) > 0) & (clicks == 0)))
    components = _groups(even > 0)
    return Identifiability(even, wins, components, unclicked, _problem(counts, exposed, wins, components, pairs))


def exposure(counts: Counts, given: str) -> FloatArray:
    """Shows, or expected shows, per (document, rank)."""
    if checks.one_of("given", given, GIVEN) == "shown":
        return counts.shown
    if counts.expected is None:
        raise ValueError("given is 'design', but these counts do not know their placement: pass it when counting")
    return counts.expected


def edges(k: int, pairs: str) -> BoolArray:
    """Pairs of ranks that are compared: all, neighbours, or each with the first."""
    checks.one_of("pairs", pairs, PAIRS)
    r = np.arange(k)
    if pairs == "adjacent":
        return np.asarray(np.abs(r[:, None] - r) == 1)
    if pairs == "pivot":
        return np.asarray((r[:, None] == 0) ^ (r == 0))
    return np.asarray(r[:, None] != r)


def first_rank_problem(counts: Counts) -> str | None:
    """What no estimator of theta can do without: a click at the first rank."""
    if counts.clicked[:, 0].sum() == 0:
        return "nothing was clicked at rank 1, by which theta is scaled"
    return None


def _problem(
    counts: Counts, exposed: FloatArray, wins: FloatArray, components: tuple[tuple[int, ...], ...], pairs: str
) -> str | None:
    problem = first_rank_problem(counts)
    if problem is not None:
        return problem
    ever = counts.clicked.sum(1) > 0
    never = np.flatnonzero((counts.shown.sum(0) == 0) | (exposed[ever].sum(0) == 0))
    if len(never):
        return f"no document that was ever clicked stood at rank {ranks_text(never)}: no comparison with rank 1"
    through = {"all": "", "adjacent": " through neighbouring ranks", "pivot": " directly"}[pairs]
    apart = [r for group in components if 0 not in group for r in group]
    if apart:
        return f"rank {ranks_text(apart)} shares no clicked document with rank 1{through}"
    # A rank never clicked has theta = 0: no link needed. The others must be reached from rank 1 and reach it.
    clicked = counts.clicked_ranks
    links = (wins > 0) & clicked & clicked[:, None]
    below, above = _reached(links), _reached(links.T)
    for lost, text in (
        (
            clicked & ~below,
            "no click leads from rank 1 to rank {}: clicked above, those documents were not shown there{}",
        ),
        (
            clicked & ~above,
            "no click leads from rank {} to rank 1: clicked there, those documents were not shown above{}",
        ),
    ):
        if lost.any():
            return text.format(ranks_text(np.flatnonzero(lost)), through)
    return None


def _groups(links: BoolArray) -> tuple[tuple[int, ...], ...]:
    """Connected ranks."""
    either, left, groups = links | links.T, np.ones(len(links), bool), []
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
