"""Logs of nine hundred impressions that are cut into chunks: designs that are shared, of everybody's own, and not listed."""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import IntArray
from ranktrial.log import Log
from ranktrial.methods import LogOpt
from ranktrial.rankings import Pair, PlackettLuce
from ranktrial.users import position_based

THETA = np.array([1.0, 0.6, 0.4])
PAIR = Pair.from_lists([["x", "y", "z"]] * 30, [["z", "w", "y"]] * 30, k=3).knowing(theta=THETA)
USER = position_based([0.6, 0.3, 0.2, 0.5] * 30, THETA)
UNITS = np.random.default_rng(1).integers(0, 500, 900)


def shared() -> Log:
    """Six versions of the designs of thirty queries, one after the other."""
    policies = [LogOpt(holdback=share).policy(PAIR) for share in (0.5, 0.4, 0.3, 0.5, 0.4, 0.3)]
    return Log.simulated(PAIR, policies, USER, [150] * 6, seed=3, units=UNITS)


def personal() -> Log:
    """A design for each impression."""
    log = shared()
    order: IntArray = np.asarray(log.design)
    return numbered(log, order)


def numbered(log: Log, order: IntArray) -> Log:
    """The log with a copy of its design for every impression."""
    single = [log.take(np.array([at])).compact() for at in range(len(log))]
    slots = np.cumsum([0, *(one.n_slots for one in single)])
    rows = np.cumsum([0, *(len(one.weights) for one in single)])
    return Log(
        k=log.k,
        queries=log.queries,
        documents=log.documents,
        document_query=log.document_query,
        query=log.query[order],
        beliefs=log.beliefs[order],
        slot_offsets=slots,
        document=np.concatenate([one.document for one in single]),
        rank_a=np.concatenate([one.rank_a for one in single]),
        rank_b=np.concatenate([one.rank_b for one in single]),
        row_offsets=rows,
        rankings=np.concatenate([np.where(one.rankings >= 0, one.rankings + at, -1) for one, at in zip(single, slots)]),
        weights=np.concatenate([one.weights for one in single]),
        design=np.arange(len(log)),
        row=np.array([int(one.row[0]) for one in single]) + rows[:-1],
        unit=log.unit,
        time=log.time,
        clicks=log.clicks,
        plain=True,
    )


def listless() -> Log:
    """Rankings that cannot be listed: their placement is given."""
    scores = np.random.default_rng(2).normal(size=PAIR.n_documents)
    policy = PlackettLuce(scores, PAIR.offsets, k=3)
    return Log.simulated(PAIR, policy, USER, 900, seed=4, units=UNITS)
