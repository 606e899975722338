"""Estimate of Delta from a log: one formula (``rankings.values``), several relevance models, theta known or estimated.

Every impression keeps the placement of the design that showed it, so a log may hold any number of designs.

``kinds`` has the estimators: by the click model, direct, and from the A/B traffic inside the log. ``IPS``, ``Constant``,
``DoublyRobust`` and ``RankAware`` are unbiased given theta, where clicks are position-based: theta_r zeta_d.

When theta is fitted to the same log its error is part of the estimate's. A delete-a-group jackknife over units tells both:
theta is fitted anew without each group, and the rest valued with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks, frames
from ranktrial.analysis.estimators.ab import ab_values, plain_estimate
from ranktrial.analysis.estimators.by_segment import by_value, fit_by_segment
from ranktrial.analysis.estimators.covariates import adjusted
from ranktrial.analysis.estimators.cross_fitting import groups_at, groups_of, refit_points
from ranktrial.analysis.estimators.kinds import ByFormula, DeltaEstimator, OfABTraffic, SelfNormalised, parse_estimator
from ranktrial.analysis.estimators.metric_values import (
    MetricValues,
    ResultValues,
    WorthPrediction,
    known_worth,
    metric_values,
    worth_prediction,
)
from ranktrial.analysis.estimators.results import BiasFit, Estimate
from ranktrial.analysis.estimators.valuing import (
    Predictions,
    Values,
    Worth,
    Worths,
    given_prediction,
    predictions,
    scaled,
    slots_in,
    worth_in_all,
)
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import GROUPS, Log
from ranktrial.log.units import Units
from ranktrial.metrics import Clicks, Metric, parse_metric
from ranktrial.position_bias import Auto, Conditional, Estimator, NotIdentifiable, fit_groups
from ranktrial.users import rank_decay

ESTIMATED = "estimated"
INDEPENDENT = ("units", "cohorts", "impressions")
UNCOVERED = ("refuse", "leave out")
OF = ("difference", "gain")


def fit_position_bias(
    log: Any,
    *,
    columns: Mapping[str, str] | None = None,
    fitted: int | None = None,
    estimator: Estimator | None = None,
    groups: int = GROUPS,
    most_error: float = np.inf,
) -> BiasFit:
    """Fit theta to a log's clicks; raises NotIdentifiable if it is not identified, also without any one group.

    The log may be a data frame, with ``columns`` as in ``read_log``. ``fitted`` is from how many of the first impressions; all
    by default. ``estimator`` is ``Auto()`` by default, which decides once, on all of these. An error of a theta above
    ``most_error``, in units of theta_1, is too much. Where searches have attributes and theta surely differs between the values
    of one, there is also a theta for each (``by_segment``).

    >>> from ranktrial.methods import AB
    >>> from ranktrial.rankings import Pair
    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists([["a", "b", "c"], ["p", "q"]], [["b", "c", "a"], ["q", "r"]], k=2).knowing(theta=[1.0, 0.6])
    >>> visitors = position_based(zeta=[0.5, 0.3, 0.2, 0.6, 0.4, 0.1], theta=[1.0, 0.6])
    >>> log = Log.simulated(pair, AB().policy(pair), visitors, 20_000, seed=1)
    >>> fit = fit_position_bias(log)
    >>> fit.bias.theta.round(2), fit.bias.standard_error.round(2)
    (array([1.  , 0.61]), array([0.  , 0.02]))
    >>> estimate(log, theta=fit).standard_error > estimate(log).standard_error  # the error of theta is part of it
    True
    """
    log = _log_of(log, columns)
    checks.whole("groups", groups, 2, 1000)
    first = log.first(len(log) if fitted is None else checks.whole("fitted", fitted, 0, len(log)))
    units = len(first.units.names)
    if units < groups:
        raise NotIdentifiable(f"it takes {groups} visitors, there are {units}")
    if not first.clicks[:, 0].any():
        raise NotIdentifiable("nothing was clicked at rank 1, by which theta is scaled")
    eliminates_relevance = estimator is None or isinstance(estimator, Auto | Conditional)
    parts = first.parts(groups, clicked_only=eliminates_relevance)
    fit = BiasFit(*fit_groups(parts, estimator, most_error=most_error))
    return fit_by_segment(first, fit) if first.attributes and eliminates_relevance else fit


def estimate(
    log: Any,
    *,
    columns: Mapping[str, str] | None = None,
    theta: ArrayLike | BiasFit | str | None = None,
    estimator: str | DeltaEstimator = "rank-aware",
    prediction: ArrayLike | float | None = None,
    cross_fit: str = "folds",
    folds: int = 5,
    refits: ArrayLike | None = None,
    fitted: int | None = None,
    known_queries: bool = False,
    independent: str = "units",
    uncovered: str = "refuse",
    of: str = "difference",
    metric: Metric | MetricValues | str | None = None,
    worth: ArrayLike | None = None,
    **options: Any,
) -> Estimate:
    """Estimate Delta from a log, with its error and the data it rests on.

    Refuses with the query and document when a document on which the rankers differ could not be seen.

    Args:
        log: A ``Log``, or a data frame as ``read_log`` reads it.
        columns: Names of columns of a data frame, where they are others.
        theta: Position bias, if it is known; "estimated" (or what ``fit_position_bias`` found) if it comes from the log's
            clicks, with its error. By default the log's own, if it knows it, and else estimated.
        estimator: Such as ``IPS()`` (``kinds``), or its name, such as "ips".
        prediction: Of the relevances, not made from this log: one number, or one per document. By default it is made from
            those impressions of the log that ``cross_fit`` allows.
        cross_fit: Predictions come from other "folds", or from the "past" only (see ``cross_fitting``).
        folds: How many.
        refits: After how many impressions predictions are made from the past; by default 100, 200, 400, ...
        fitted: From how many of the first impressions theta is estimated and predictions are made; by default from all. As long
            as these stay the same, so do the values of all that have been valued.
        known_queries: All queries of the pair are known to be equally frequent: what the log's own frequencies add to the
            variance is taken out, which pays from about 10 impressions a query.
        independent: Whether "units" are independent, or all "impressions". "cohorts" are units too, put together where they
            are more than 131,072 (``units.Cohorts``). All impressions of a unit share a fold (or the prediction there was when
            it first came) in any case.
        uncovered: "refuse" logs in which a document that matters could not be seen, or "leave out" such documents.
        of: The "difference" between A and B; or the "gain" in clicks of what was shown over an A/B test, by a click model.
        metric: What impressions are worth, such as ``Orders(window="7d")``; clicks by default. The estimate is of impressions
            that count for it. Page metrics have A/B estimates only.
        worth: Prediction of the value of a click, by document, not made from this log; with ``prediction`` only.
        options: Options of an estimator that is given by its name, such as ``clip``.

    >>> from ranktrial.analysis import IPS
    >>> from ranktrial.rankings import Mixture, Pair
    >>> pair = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2).knowing(theta=[1.0, 0.5])
    >>> even = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
    >>> log = Log.of(pair, even, [[0, 1], [1, 0], [0, 1]], [[True, False], [False, False], [True, True]])
    >>> round(estimate(log, estimator=IPS()).delta, 4)
    0.2222
    """
    log = _log_of(log, columns)
    kind = parse_estimator(estimator, **options)
    checks.one_of("independent", independent, INDEPENDENT)
    checks.one_of("uncovered", uncovered, UNCOVERED)
    checks.one_of("of", of, OF if kind.by_click_model else OF[:1])
    values = _valued(log, metric)
    if values is not None:
        log, fitted = values.log, None if fitted is None else min(fitted, len(values.log))
        _refuse_values(values, kind)
    if worth is not None and (values is None or prediction is None):
        raise ValueError("worth is the value of a click by a metric, and goes with a prediction of relevance")
    if isinstance(kind, OfABTraffic):
        each = None if values is None else values.each
        return plain_estimate(log, kind, independent, cross_fit=cross_fit, folds=folds, refits=refits, each=each)
    if kind.at_list_ranks and theta is None and log.theta is None:
        theta = rank_decay(log.k)  # enters the prediction only
    fit, bias = _resolved(log, theta, fitted)
    predicted: Predictions
    if kind.has_prediction and prediction is None:
        group, predicted = predicted_from(log, fitted, bias, kind, cross_fit=cross_fit, folds=folds, refits=refits)
    else:
        if prediction is not None and not kind.has_prediction:
            predicting = [name for name, other in DeltaEstimator.registry.items() if other.has_prediction]
            raise ValueError(f"prediction belongs to {', '.join(predicting)}, not to {kind}")
        none = np.empty(0, np.int64)
        groups_at(none, none, cross_fit, folds=folds, refits=refits)  # checks them
        group, predicted = np.zeros(len(log), np.int64), given_prediction(log, prediction, kind)
    asked = known_queries, uncovered, of
    if isinstance(kind, SelfNormalised):
        predicted = Values(log, bias, kind, *asked).normalising()
    of_click = None if values is None else _worth(values, worth, group, fitted, cross_fit, folds=folds, refits=refits)
    valuer = _Valuer(kind, bias, fit if kind.theta_error else None, predicted, asked, values, of_click)
    found = valuer.estimate(log, group, independent)
    predicts = kind.has_prediction and kind.weight_cap is None and not known_queries
    if not log.covariate_names or not predicts or of != "difference":
        return found
    return adjusted(log, found, valuer.unclicked(log, group), independent)


@dataclass(frozen=True, eq=False)
class _Valuer:
    """An estimator with all that it needs to value a log, or a part of it.

    Attributes:
        theta: Position bias.
        fit: Where theta comes from, if it was fitted: it may be another one for each segment.
        predicted: Predictions of relevance.
        options: Those of ``Values``.
        values: Of the log, by a metric; None for clicks.
        of_click: Predictions of the value of a click.
    """

    kind: DeltaEstimator
    theta: FloatArray
    fit: BiasFit | None
    predicted: Predictions
    options: tuple[bool, str, str]
    values: MetricValues | None = None
    of_click: Predictions | None = None

    def estimate(self, log: Log, group: IntArray, independent: str) -> Estimate:
        """The estimate of a log, given the predictions that each of its impressions may use."""

        def contribution(rows: slice, part: Log, before: object) -> Worths:
            return list(self._worths(log, part, rows, group))

        def result(chunks: Sequence[Worths]) -> Estimate:
            return worth_in_all(log, chunks, self.theta, independent, self.fit)

        if self.kind.whole_log or self.options[0]:
            return result([contribution(slice(0, len(log)), log, None)])
        beliefs = self.kind, self.theta.tobytes(), self.fit, self.predicted, self.options
        kept = beliefs if self.values is None else None  # which impressions count for a metric changes with the clock
        found: Estimate = fold(log, Statistic(f"{self.kind}, {self.options}", kept, contribution, result))[0]
        return found

    def unclicked(self, log: Log, group: IntArray) -> FloatArray:
        """Value of each impression had nothing been clicked."""
        none, values = np.empty(0, np.int64), self.values
        bare = replace(log, clicks=np.zeros_like(log.clicks))
        if values is not None:
            nothing = ResultValues(np.empty(0), none, none, np.empty(0))
            values = replace(values, log=bare, each=np.zeros(len(bare)), of_results=nothing)
        return replace(self, values=values).estimate(bare, group, "impressions").x

    def _worths(self, log: Log, part: Log, rows: slice, group: IntArray) -> Iterator[tuple[IntArray | slice, Worth]]:
        known = None if self.values is None else self.values.of_results
        results = None if known is None else known.chunk(rows, log)
        differs = None if self.fit is None else self.fit.by_segment
        for value, at, own in by_value(part, "" if differs is None else differs.attribute):
            where = rows if isinstance(at, slice) else rows.start + at
            of_own = None if results is None else results.take(at, part)
            theta, without = self.theta, np.empty((0, part.k)) if self.fit is None else self.fit.without
            if differs is not None:
                theta, without = scaled(differs.thetas[value]), differs.without[value]
            one = self._value(own, group[where], theta, without, of_own)
            yield where, one._replace(unseen=slots_in(log, where, own, one.unseen))

    def _value(
        self,
        part: Log,
        group: IntArray,
        theta: FloatArray,
        without: FloatArray,
        results: ResultValues | None,
    ) -> Worth:
        left_out = None if self.fit is None else part.group(len(self.fit.without))
        others = np.array([scaled(one) for one in without])
        valued = Values(part, theta, self.kind, *self.options, own=results)
        if not isinstance(self.kind, ByFormula):
            return valued.own_worth(others, left_out)
        return valued.worth(group, self.predicted, others, left_out, self.of_click)


def _log_of(given: Any, columns: Mapping[str, str] | None) -> Log:
    """The log itself, or that of a data frame."""
    if isinstance(given, Log):
        if columns is not None:
            raise ValueError("columns name those of a data frame, not of a Log")
        return given
    if not frames.is_frame(given):
        raise TypeError(
            f"log is {type(given).__name__}, must be a Log or a data frame: Log.of(pair, policy, rankings, clicks), "
            "trial.log(), ..."
        )
    return Log.from_frame(given, columns=columns)


def _valued(log: Log, metric: Metric | MetricValues | str | None) -> MetricValues | None:
    """Values by a metric; None for clicks, which need none."""
    if metric is None or isinstance(metric, MetricValues):
        return metric
    known = parse_metric(metric)
    return None if known == Clicks() else metric_values(log, known)


def _refuse_values(values: MetricValues, kind: DeltaEstimator) -> None:
    if values.of_results is None and not kind.of_ab_traffic:
        raise ValueError(f"{values.metric} is of the whole page: use estimator=Adjusted(), not {kind}")
    if kind.clicks_only:
        raise ValueError(f"{kind} is for clicks only, not for {values.metric}")
    if kind.weight_cap is not None:
        raise ValueError(f"clip applies to weights of clicks, not to {values.metric}: use its cap")
    if not len(values.log):
        raise ValueError(f"no search counts for {values.metric} yet")


def _worth(
    values: MetricValues,
    worth: ArrayLike | None,
    group: IntArray,
    fitted: int | None,
    cross_fit: str,
    *,
    folds: int,
    refits: ArrayLike | None,
) -> WorthPrediction:
    """Predictions of the value of a click for each group of impressions."""
    log = values.log
    if worth is not None:
        given = np.broadcast_to(np.asarray(worth, np.float64), len(log.documents))
        return known_worth(log, given)
    groups = int(group.max(initial=0)) + 1
    if groups == 1 and cross_fit == "folds":  # relevance was given: nothing of this log may be used
        return known_worth(log, np.zeros(len(log.documents)))
    counted = group[: len(log) if fitted is None else fitted]
    if cross_fit == "past":
        counted = groups_of(len(counted), cross_fit, folds=folds, refits=refits, units=None)
    return worth_prediction(values, counted, groups, cross_fit)


def predicted_from(
    log: Log,
    fitted: int | None,
    theta: FloatArray,
    kind: DeltaEstimator,
    *,
    cross_fit: str,
    folds: int = 5,
    refits: ArrayLike | None = None,
) -> tuple[IntArray, Predictions]:
    """Predictions of relevance from the first impressions of a log, and which of them each impression may use."""
    first = len(log) if fitted is None else checks.whole("fitted", fitted, 0, len(log))
    group = groups_at(log.units.place, log.units.first, cross_fit, folds=folds, refits=refits)
    counted = group[:first]
    if cross_fit == "past":
        counted = groups_of(first, cross_fit, folds=folds, refits=refits, units=None)
        last = int(np.searchsorted(refit_points(refits), max(first - 1, 0), side="right"))
    else:
        last = int(counted.max(initial=0))

    points = None if refits is None else tuple(np.asarray(refits).tolist())
    name = "one relevance" if kind.one_relevance else "relevance by rank"
    beliefs = theta.tobytes(), cross_fit, folds, points
    found = log.kept.fitted(log, first, name, beliefs, lambda part: predictions(part, theta, counted, cross_fit, kind))
    return np.minimum(group, last), found


def _resolved(
    log: Log, theta: ArrayLike | BiasFit | str | None, fitted: int | None
) -> tuple[BiasFit | None, FloatArray]:
    """The fit behind theta, if there is one, and theta."""
    if isinstance(theta, str):
        checks.one_of("theta", theta, (ESTIMATED,))
    known = log.theta if theta is None else theta
    if known is None or isinstance(known, str):
        known = fit_position_bias(log, fitted=fitted)
    if isinstance(known, BiasFit):
        return known, scaled(known.bias.theta)
    bias = checks.probabilities("theta", known)
    if len(bias) != log.k:
        raise ValueError(f"theta has {len(bias)} ranks, the log k = {log.k}")
    return None, bias


def estimate_ab(
    in_a: ArrayLike,
    clicks: ArrayLike,
    *,
    queries: ArrayLike | None = None,
    split: ArrayLike = 0.5,
    estimator: str | DeltaEstimator = "adjusted",
    units: ArrayLike | Units | None = None,
    independent: str = "units",
    **fit: Any,
) -> Estimate:
    """Delta from an A/B test of which no more is known than whose list each impression showed and how often it was clicked.

    Options are those of ``estimate`` and ``ab.ab_values``. A log with both lists of every search says more
    (``Log.from_records``).

    >>> print(estimate_ab([True, False, True, False], [2, 1, 0, 1], estimator="means").delta)
    0.0
    """
    x, weight = ab_values(in_a, clicks, queries=queries, split=split, estimator=estimator, units=units, **fit)
    each = np.repeat(weight, np.asarray(clicks, np.int64))
    owners = units if independent == "units" else None
    return Estimate.of(x, each, largest_weight=float(np.abs(weight).max()), units=owners)
