"""Hostile clicks: how much they could add to each estimate."""

from __future__ import annotations

import numpy as np

from ranktrial.analysis.estimators.valuing import click_worth
from ranktrial.analysis.ladder import AB_TRAFFIC, DIRECT, EstimatorResult
from ranktrial.arrays import FloatArray
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log


def most_worth(log: Log, result: EstimatorResult, ranker: int) -> float:
    """Mean over searches of ``worth_of_each``."""
    assert result.estimate is not None
    return float(worth_of_each(log, result, ranker).sum()) / result.estimate.impressions


def worth_of_each(log: Log, result: EstimatorResult, ranker: int) -> FloatArray:
    """Amount that clicks on all results of each search that count for a ranker would add to an estimate in its favour.

    Args:
        result: The estimate.
        ranker: 1 for A, -1 for B.
    """
    assert result.estimate is not None
    theta, direct, plain = result.estimate.theta, result.name == DIRECT, result.name == AB_TRAFFIC

    def contribution(rows: slice, part: Log, before: object) -> FloatArray:
        if plain:  # all of its own pages
            own, found = np.flatnonzero(part.arm == ranker), np.zeros(len(part))
            shares = part.shares[own]
            share = (shares[:, 0] if ranker > 0 else shares[:, 1]) / shares.sum(1)
            found[own] = (part.rankings[part.row[own]] >= 0).sum(1) / share
            return found
        assert theta is not None
        of_page = _worth_at_ranks(part) if direct else click_worth(part, theta)[part.rankings[part.row]]
        return np.asarray(np.maximum(ranker * of_page, 0.0).sum(1))

    name, beliefs = f"hostile clicks: {result.name}, {ranker}", (None if theta is None else theta.tobytes(),)
    found: FloatArray = fold(log, Statistic(name, beliefs, contribution, np.concatenate))[0]
    return found


def _worth_at_ranks(log: Log) -> FloatArray:
    """Worth of a click at each rank of each page to the direct estimate of A - B."""
    slots = log.rankings[log.row]
    of_page = np.zeros(slots.shape)
    for sign, rank in ((1.0, log.rank_a), (-1.0, log.rank_b)):
        chance = log.placement_at(rank)
        worth = np.divide(sign, chance, out=np.zeros_like(chance), where=chance > 0)
        of_page += np.where((slots >= 0) & (rank[slots] == np.arange(log.k)), worth[slots], 0.0)
    return of_page
