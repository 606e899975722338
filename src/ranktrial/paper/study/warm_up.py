"""Compiled loops of a study's methods, made by one process before the workers start.

Numba keeps what it compiles on disk, but processes that compile the same loop at the same time may spoil each other's files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ranktrial._kernels import watching_compilations
from ranktrial.methods import Method, parse_method
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based, rank_decay

SMALL: dict[str, Any] = {"steps": 2, "samples": 3}  # of the network's training
QUERIES, DOCUMENTS, K = 4, 12, 10


def warm_up(methods: Sequence[str], *, simulate: bool, report: Callable[[str, int, int], None]) -> None:
    """Run every method once on a few queries; ``report`` is called with each loop that has to be compiled."""
    pair, user = _tiny()
    for done, text in enumerate(methods):
        method = _quick(parse_method(text))
        points = [method.traits.learns_at[0] + 1 if method.traits.learns_at else 100]

        def began(loop: str, done: int = done) -> None:
            report(f"compiling, once, for a minute or two: {loop}", done, len(methods))

        with watching_compilations(began):
            run = method.simulate if simulate else method.expected
            run(pair, user, points, seed=1)


def _quick(method: Method) -> Method:
    """Return the method with as little training as possible, and one fit."""
    small = {f.name: SMALL[f.name] for f in fields(method) if f.name in SMALL}
    if len(method.traits.learns_at) > 1 and "schedule" in {f.name for f in fields(method)}:
        small["schedule"] = method.traits.learns_at[:1]
    return replace(method, **small)


def _tiny() -> tuple[Pair, User]:
    random = np.random.default_rng(1)
    n = QUERIES * DOCUMENTS
    offsets = np.arange(0, n + 1, DOCUMENTS)
    features = random.random((n, 3), np.float32)
    theta = rank_decay(K)
    pair = Pair.from_scores(random.random(n), random.random(n), offsets, K)
    return pair.knowing(theta=theta, features=features), position_based(random.random(n), theta)
