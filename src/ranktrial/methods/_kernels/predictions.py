"""Compiled relevance model on the ranks in two lists: for all documents of a pair, and for the lists of a live request."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial.position_bias.relevance import PREDICTIONS

LOW, HIGH = PREDICTIONS


@nb.njit(cache=True)
def rank_prediction(rank_a: Any, rank_b: Any, k: Any, lists: Any, effects: Any) -> Any:
    """Relevance of documents at these ranks (from 0; k or more is nowhere) by a regression on ``rank_inputs``.

    ``effects`` is what is known of each beyond that; an empty array for nothing.
    """
    n = rank_a.shape[0]
    prediction = np.empty(n)
    log = np.log(np.arange(1.0, k + 2.0))
    for i in range(n):
        at_a = min(rank_a[i], k)
        at_b = min(rank_b[i], k)
        first = min(at_a, at_b)
        a, b, best = at_a + 1.0, at_b + 1.0, first + 1.0
        # In pairs, so that rankers that change places leave it the same to the last bit, and ties are ties.
        value = lists[0] + (lists[1] / a + lists[2] / b) - (lists[3] * log[at_a] + lists[4] * log[at_b])
        value = min(max(value + (lists[5] / best - lists[6] * log[first]), LOW), HIGH)
        if effects.shape[0]:
            value = min(max(value + effects[i], LOW), HIGH)
        prediction[i] = value
    return prediction


@nb.njit(cache=True)
def list_prediction(a: Any, b: Any, k: Any, lists: Any, effects: Any) -> Any:
    """Predicted relevance of the candidates, the top k of two lists of document numbers from 0 (see ``rank_prediction``)."""
    n = 0
    for i in range(min(a.shape[0], k)):
        n = max(n, a[i] + 1)
    for i in range(min(b.shape[0], k)):
        n = max(n, b[i] + 1)
    rank_a = np.full(n, k, np.int64)
    rank_b = np.full(n, k, np.int64)
    for i in range(min(a.shape[0], k)):
        rank_a[a[i]] = i
    for i in range(min(b.shape[0], k)):
        rank_b[b[i]] = i
    return rank_prediction(rank_a, rank_b, k, lists, effects)
