"""Estimator by how often a document happened to be shown, and the pattern for one of your own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ranktrial.analysis.estimators.kinds import ClickValues, DeltaEstimator
from ranktrial.analysis.estimators.relevance import examinations
from ranktrial.arrays import FloatArray, sum_by_group
from ranktrial.log.log import Log


@dataclass(frozen=True, repr=False)
class Observed(DeltaEstimator):
    """The estimator of the authors' code: exposure and relevance of each document as they happened to be.

    Badly biased with few impressions of a query, of which its error says nothing: it is here to compare with.
    """

    theta_error: ClassVar[bool] = False
    whole_log: ClassVar[bool] = True

    def values(self, log: Log, theta: FloatArray, lam: FloatArray) -> ClickValues:
        seen = examinations(log, np.ones(len(log), bool), theta, log.document, len(log.documents))
        impressions = np.bincount(log.query[log.design], minlength=len(log.queries))
        ever = seen.examined > 0  # documents never examined count as never clicked
        prediction = np.divide(seen.clicks, seen.examined, out=np.zeros(len(ever)), where=ever)[log.document]
        weights = np.zeros(log.n_slots)
        showings = impressions[log.document_query[log.document]]
        np.divide(lam * showings, seen.examined[log.document], out=weights, where=ever[log.document])
        foreseen = np.append(weights * prediction, 0.0)[log.rankings[log.row]] @ theta
        first = sum_by_group(lam * prediction, log.slot_offsets)[log.design]
        return ClickValues(weights[log.clicked[2]], first - foreseen, largest=float(np.abs(weights).max(initial=0.0)))
