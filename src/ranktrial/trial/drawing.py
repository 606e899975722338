"""The draw of a search: a pure function of its lists, of what is believed of users, and of its key.

No store, no clock and no cache: with the same beliefs the same search draws the same ranking, in whichever process. What was
drawn is shown, stored and found again in ``showing`` and ``impressions``.

A design is the mixture of rankings for a query and its two lists, by the trial's method and beliefs. The hold-back is nothing
but two more rankings of the mixture, A's and B's own, so every impression has one exact probability and all of them count in
the estimate. An A/B test is the mixture of these two alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ranktrial import tokens
from ranktrial.log.designs import Design
from ranktrial.log.known import Known
from ranktrial.methods import Beliefs, LiveMethod, LogOpt
from ranktrial.segments import NO_SEGMENTS, Segments
from ranktrial.store.base import Bias

warm = threading.Event()  # set once designs can be made without compiling first


class Search(NamedTuple):
    """A search as it is drawn for.

    Attributes:
        query: The search text.
        a: Ids of A's results, each once, from the top.
        b: Ids of B's.
        unit: Whom the draw belongs to.
        segment: Code of its attributes, 0 if none are declared.
    """

    query: str
    a: list[str]
    b: list[str]
    unit: str
    segment: int = 0


@dataclass(frozen=True)
class Policy:
    """Method, beliefs and key of a version: all that decides a draw beside the search.

    Attributes:
        secret: The trial's, which draws are keyed with.
        version: Id of the version, unique in the store.
        method: Method that makes designs.
        bias: Beliefs about users, as stored.
        known: Effects of single documents.
        segments: Declared attributes of searches.
    """

    secret: bytes
    version: int
    method: LiveMethod
    bias: Bias
    known: Known = field(default_factory=Known)
    segments: Segments = NO_SEGMENTS


class Drawn(NamedTuple):
    """A drawn ranking: row ``place`` of a design."""

    design: Design
    place: int

    @property
    def ranking(self) -> list[str]:
        """Documents of the top k, from the top."""
        return self.design.top(self.place)

    @property
    def probability(self) -> float:
        """Probability with which this search would be shown this ranking, over all units."""
        same = (self.design.rankings == self.design.rankings[self.place]).all(axis=1)
        return float(np.sum(self.design.weights[same]))


def make_design(
    query: str,
    a: Sequence[str],
    b: Sequence[str],
    method: LiveMethod,
    beliefs: Beliefs,
    bias: int = 0,
    known: Known | None = None,
) -> Design:
    """Make the design for two lists without repetition; ``bias`` is the number of the beliefs in the store, 0 if not stored.

    >>> from ranktrial.methods import LogOpt
    >>> method = LogOpt(relevance="constant", holdback=0.5, estimate="ips")
    >>> design = make_design("q", ["x", "y"], ["y", "x"], method, Beliefs(np.array([1, 0.5])))
    >>> [("".join(design.top(row)), round(float(weight), 9)) for row, weight in enumerate(design.weights)]
    [('xy', 0.25), ('yx', 0.25), ('xy', 0.25), ('yx', 0.25)]
    """
    k = len(beliefs.theta)
    slot_of: dict[str, int] = {}
    slots = [np.array([slot_of.setdefault(d, len(slot_of)) for d in ranked[:k]], np.int32) for ranked in (a, b)]
    effects = known.effects(query, tuple(slot_of)) if known is not None and known.keys.size else None
    rankings, weights = method.query_policy(slots[0], slots[1], beliefs, effects)
    below = tuple(
        {*a[k:], *b[k:]}.difference(slot_of)
    )  # a tuple of texts is nothing to the garbage collector, a set is
    own = [some.astype(np.uint8) for some in slots]
    # -1 becomes NOTHING
    table = rankings.astype(np.uint8)
    return Design(query, bias, tuple(slot_of), own[0], own[1], table, weights, below)


Maker = Callable[[str, Sequence[str], Sequence[str], LiveMethod, Beliefs, int, Known], Design]


def draw(search: Search, policy: Policy, make: Maker = make_design) -> Drawn:
    """Draw a ranking for a search; ``make`` makes its design, or knows it from before.

    >>> from ranktrial.methods import LogOpt
    >>> bias = Bias(1, 0, (1.0, 0.5), False, "", 0.5, "{}")
    >>> policy = Policy(b"secret", 1, LogOpt(relevance="constant", holdback=0.5, estimate="ips"), bias)
    >>> for unit in "uvw":
    ...     drawn = draw(Search("q", ["x", "y"], ["y", "x"], unit), policy)
    ...     print(drawn.ranking, round(drawn.probability, 9))
    ['x', 'y'] 0.5
    ['y', 'x'] 0.5
    ['y', 'x'] 0.5
    """
    query, a, b, unit, segment = search
    beliefs = policy.bias.beliefs
    if beliefs.attribute:
        beliefs = beliefs.by_segment[policy.segments.levels(beliefs.attribute, segment)]
    design = make(query, a, b, policy.method, beliefs, policy.bias.id, policy.known)
    return Drawn(design, design.row(tokens.draw(policy.secret, policy.version, unit, query)))


def warm_up() -> None:
    """Load or compile, once in a process, what a design needs, so that the first request does not wait for it."""
    if not warm.is_set():
        make_design("q", ["a", "b"], ["b", "a"], LogOpt(), Beliefs(np.array([1.0, 0.5])))
        warm.set()
