"""Making of designs: the mixture of rankings for a query and its two lists, by the trial's method and beliefs.

The hold-back is nothing but two more rankings of the mixture, A's and B's own, so every impression has one exact
probability and all of them count in the estimate. An A/B test is the mixture of these two alone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain, islice, zip_longest

import numpy as np

from ranktrial.log.designs import Design
from ranktrial.log.known import Known
from ranktrial.methods import Beliefs, LogOpt, Method

ENDED = "\0 the end of a list"
_warm = threading.Event()


def make_design(
    query: str,
    a: Sequence[str],
    b: Sequence[str],
    method: Method,
    beliefs: Beliefs,
    *,
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
    effects = None if known is None else known.effects(query, tuple(slot_of))
    rankings, weights = method.query_policy(slots[0], slots[1], beliefs, effects)
    below = tuple(
        {*a[k:], *b[k:]}.difference(slot_of)
    )  # a tuple of texts is nothing to the garbage collector, a set is
    own = [some.astype(np.uint8) for some in slots]
    # -1 becomes NOTHING
    table = rankings.astype(np.uint8)
    return Design(query, bias, tuple(slot_of), own[0], own[1], table, weights, below)


def warm_up() -> None:
    """Load or compile, once in a process, what a design needs, so that the first request does not wait for it."""
    if not _warm.is_set():
        make_design("q", ["a", "b"], ["b", "a"], LogOpt(), Beliefs(np.array([1.0, 0.5])))
        _warm.set()


def is_warm() -> bool:
    """True if designs can be made without compiling first."""
    return _warm.is_set()


def page_of(top: Sequence[str], a: Sequence[str], b: Sequence[str], k: int, offset: int, size: int | None) -> list[str]:
    """Part of the top k and what follows from rank k on: what is left of both lists, A's next, B's next, in turn, each once.

    Where the top is shorter than k nothing takes the place of what is missing: a page that begins there ends there.
    """
    end = None if size is None else offset + size
    page = list(top[offset:end])
    if (end is None or end > k) and (len(top) == k or offset >= k):
        order = dict.fromkeys(chain(top, chain.from_iterable(zip_longest(a, b, fillvalue=ENDED))))
        order.pop(ENDED, None)
        page += islice(order, len(top) + max(offset - k, 0), None if end is None else len(top) + end - k)
    return page
