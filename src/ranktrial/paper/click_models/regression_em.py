"""Regression-EM (Wang et al. 2018): position bias and relevance, with relevance from a regression on features.

The E-step is that of ``em``; the M-step for zeta fits a regression to each document's expected relevance. Any
regression will do that has the two methods of ``Regression``. That of the paper's experiments is a network of 2 x 32
sigmoid units, 75 Adam steps a round on 512 documents drawn by display frequency, for exactly 100 rounds:
``RegressionEM(model, features, tolerance=0)``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray, Numbers
from ranktrial.paper.click_models import _kernels
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import NotIdentifiable, first_rank_problem, identifiability, ranks_text
from ranktrial.position_bias.model import PositionBias, start_theta
from ranktrial.seeds import Seed, generator


class Regression(Protocol):
    """A model of zeta on features that keeps learning: one call of ``fit`` is one round of EM.

    >>> class Mean:  # the smallest there is: features do not matter
    ...     level = 0.5
    ...     def predict(self, features):
    ...         return np.full(len(features), self.level)
    ...     def fit(self, features, targets, weights, rng):
    ...         self.level = np.average(targets, weights=weights)
    >>> model: Regression = Mean()
    >>> model.fit(np.ones((2, 1)), np.array([0.2, 0.8]), np.array([3.0, 1.0]), np.random.default_rng(0))
    >>> model.predict(np.ones((2, 1))).round(2)
    array([0.35, 0.35])
    """

    def predict(self, features: Numbers) -> FloatArray:
        """Relevance of each row, between 0 and 1."""
        ...

    def fit(self, features: Numbers, targets: FloatArray, weights: FloatArray, rng: np.random.Generator) -> None:
        """Move towards ``targets`` (expected relevances); ``weights`` are display counts."""
        ...


class _ShownDocuments(NamedTuple):
    """Some of the documents shown, their counts and their features."""

    shown: FloatArray
    clicked: FloatArray
    rows: Numbers

    def expect(self, model: Regression, theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Log-likelihood, expected examinations per rank and relevances per document."""
        examined, relevant = np.empty(len(theta)), np.empty(len(self.shown))
        zeta = np.clip(model.predict(self.rows), 1e-6, 1 - 1e-6).astype(np.float64)
        value = _kernels.em_sweep(self.shown, self.clicked, theta, zeta, examined, relevant)
        return float(value), examined, relevant


@dataclass(frozen=True, eq=False)
class RegressionEM:
    """EM with zeta from a regression on ``features``, one row per document of the data set.

    Args:
        model: the regression as it is before training; each fit trains a copy, so that it depends on the counts only.
        features: ``(documents, features)``.
        theta: known examination probabilities; None estimates them.
        floor: smallest theta, applied after each normalisation by theta_1.
        tolerance: stop when the best log-likelihood has grown by less than this fraction over ``patience`` rounds;
            0 runs exactly ``limit`` rounds.
        most: with theta known, a round works out the relevance of at most so many of the documents shown, drawn anew in
            proportion to their shows (a round of the authors' regression looks at 75 x 512), and the likelihood is that of as
            many drawn once; None for all. Theta itself is estimated from all.
        authors_rows: a slip of the authors' code: train on the features of the first documents of the data set
            instead of those of the documents shown (the same once every document has been shown).
        seed: of the draws of documents and of the regression's own.

    >>> class Mean:  # the smallest regression there is: features do not matter
    ...     level = 0.5
    ...     def predict(self, features):
    ...         return np.full(len(features), self.level)
    ...     def fit(self, features, targets, weights, rng):
    ...         self.level = np.average(targets, weights=weights)
    >>> counts = Counts.from_dense([[10, 10], [20, 20]], [[4, 2], [8, 4]])
    >>> estimate = RegressionEM(Mean(), np.ones((2, 1)), limit=1000, tolerance=0).fit(counts)
    >>> estimate.theta.round(3), estimate.zeta.round(3)
    (array([1. , 0.5]), array([0.4, 0.4]))
    """

    model: Regression
    features: Numbers
    theta: FloatArray | None = None
    floor: float = 0.01
    tolerance: float = 1e-5
    limit: int = 100
    patience: int = 5
    most: int | None = None
    authors_rows: bool = False
    seed: Seed = 0

    def fit(self, counts: Counts) -> PositionBias:
        features = self._checked_features(counts)
        model, rng = copy.deepcopy(self.model), generator(self.seed)
        theta = self._first_theta(counts)
        seen = counts.seen
        shown, clicked, documents = counts.shown[seen], counts.clicked[seen], counts.documents[seen]
        shows, shows_of_rank = shown.sum(1), shown.sum(0)
        most = self.most if self.theta is not None and self.most is not None and self.most < len(documents) else None

        def draw() -> IntArray | slice:
            if most is None:
                return slice(len(documents))
            cumulated = np.cumsum(shows)
            at = np.sort(rng.random(most)) * cumulated[-1]  # rows are then fetched in the order of the file
            return np.asarray(np.searchsorted(cumulated, at, side="right"), np.int64)

        def choose(at: IntArray | slice) -> _ShownDocuments:
            return _ShownDocuments(shown[at], clicked[at], features[documents[at]])

        at = draw()
        judged = learnt = choose(at)
        path: list[float] = []
        while True:
            value, examined, relevant = judged.expect(model, theta)
            path.append(value)
            if self._settled(path) or len(path) > self.limit:
                break
            if self.theta is None:
                theta = examined / shows_of_rank
                theta = np.maximum(theta / theta[0], self.floor)
            if most is not None:
                at = draw()
                learnt = choose(at)
                relevant = learnt.expect(model, theta)[2]
            rows = features[at] if self.authors_rows else learnt.rows
            model.fit(rows, relevant / shows[at], shows if most is None else np.ones(most), rng)
        return self._estimate(counts, theta, np.asarray(model.predict(features), np.float64), path)

    def _first_theta(self, counts: Counts) -> FloatArray:
        if self.theta is None:
            self._require_shows(counts)
            return start_theta(counts, below=0.99)
        theta = checks.probabilities("theta", self.theta)
        if len(theta) != counts.k:
            raise ValueError(f"theta has {len(theta)} ranks, the counts have {counts.k}")
        return theta

    def _estimate(self, counts: Counts, theta: FloatArray, zeta: FloatArray, path: list[float]) -> PositionBias:
        predicted = np.ones(counts.n_documents, bool)
        predicted[counts.documents[counts.seen]] = False
        unknown = np.full(counts.k, np.nan if self.theta is None else 0.0)
        unknown[0] = 0.0
        return PositionBias(
            theta,
            unknown,
            np.diag(unknown),
            repr(self),
            len(path) - 1,
            self._settled(path),
            identifiability(counts),
            log_likelihood=path[-1],
            zeta=zeta,
            predicted=predicted,
            remark="standard errors by jackknife only; theta leans on the regression being right",
        )

    def _require_shows(self, counts: Counts) -> None:
        empty = np.flatnonzero(counts.shown.sum(0) == 0)
        if len(empty):
            raise NotIdentifiable(f"these counts have no shows at rank {ranks_text(empty)}")
        problem = first_rank_problem(counts)
        if problem is not None:
            raise NotIdentifiable(problem)

    def _checked_features(self, counts: Counts) -> Numbers:
        features = np.asarray(self.features)
        if features.ndim != 2 or len(features) != counts.n_documents:
            raise ValueError(
                f"features is {features.shape}, must have one row for each of {counts.n_documents} documents"
            )
        if not np.isfinite(features.sum(dtype=np.float64)) and not np.all(np.isfinite(features)):
            row, column = np.argwhere(~np.isfinite(features))[0]
            raise ValueError(f"feature {column} of document {row} is {features[row, column]}, must be finite")
        return features

    def _settled(self, path: list[float]) -> bool:
        if self.tolerance == 0:
            return len(path) > self.limit
        if len(path) <= self.patience:
            return False
        return max(path) - max(path[: -self.patience]) <= self.tolerance * abs(max(path))

    def __repr__(self) -> str:
        known = "" if self.theta is None else ", theta=known"
        return f"RegressionEM({type(self.model).__name__}{known}{', authors_rows=True' if self.authors_rows else ''})"
