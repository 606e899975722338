"""Estimate of Delta from a log: one formula (``rankings.values``), several relevance models, theta known or estimated.

Every impression keeps the placement of the design that showed it, so a log may hold any number of designs.

``kinds`` has the estimators: by the click model, direct, and from the A/B traffic inside the log. ``IPS``, ``Constant``,
``DoublyRobust`` and ``RankAware`` are unbiased given theta, where clicks are position-based: theta_r zeta_d.

When theta is fitted to the same log its error is part of the estimate's. A delete-a-group jackknife over units tells both:
theta is fitted anew without each group, and the rest valued with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks, frames
from ranktrial.analysis.estimators.ab import ab_estimate
from ranktrial.analysis.estimators.by_segment import fit_by_segment
from ranktrial.analysis.estimators.cross_fitting import CrossFit
from ranktrial.analysis.estimators.kinds import (
    ByClickModel,
    ByFormula,
    DeltaEstimator,
    Direct,
    OfABTraffic,
    SelfNormalised,
    parse_estimator,
)
from ranktrial.analysis.estimators.metric_values import MetricValues, known_worth, metric_values, worth_from
from ranktrial.analysis.estimators.relevance import Predictions, given_prediction, predicted_from
from ranktrial.analysis.estimators.results import BiasFit, Estimate
from ranktrial.analysis.estimators.valuing import Valuer, normalising, scaled
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.log.log import GROUPS, Log
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
    checks.one_of("of", of, OF if isinstance(kind, ByClickModel) else OF[:1])
    fitting = CrossFit.of(cross_fit, folds, refits)
    values = _valued(log, metric, kind)
    if values is not None:
        log, fitted = values.log, None if fitted is None else min(fitted, len(values.log))
    if worth is not None and (values is None or prediction is None):
        raise ValueError("worth is the value of a click by a metric, and goes with a prediction of relevance")
    if isinstance(kind, OfABTraffic):
        return ab_estimate(log, kind, independent, fitting, None if values is None else values.each)
    if isinstance(kind, Direct) and theta is None and log.theta is None:
        theta = rank_decay(log.k)  # enters the prediction only
    fit, bias = _resolved(log, theta, fitted)
    group: IntArray = np.zeros(len(log), np.int64)
    counted = group
    predicts = isinstance(kind, ByFormula) and kind.predicts
    if predicts and prediction is None:
        group, predicted = predicted_from(log, fitted, bias, fitting, predicts)
        counted = fitting.counted(np.arange(len(log) if fitted is None else fitted), log.units)
    elif prediction is None or predicts:
        rank_aware = isinstance(kind, ByFormula) and kind.rank_aware
        predicted = given_prediction(log, prediction, rank_aware=rank_aware)
    else:
        predicting = [name for name, other in DeltaEstimator.registry.items() if getattr(other, "predicts", "")]
        raise ValueError(f"prediction belongs to {', '.join(predicting)}, not to {kind}")
    of_click: Predictions | None = None
    if values is not None:
        of_click = worth_from(values, group, counted, fitting) if worth is None else known_worth(log, worth)
    error_of = fit if kind.theta_error else None
    valuer = Valuer(kind, bias, error_of, predicted, known_queries, uncovered, of == "gain", values, of_click)
    if isinstance(kind, SelfNormalised):
        valuer = replace(valuer, predicted=normalising(valuer, log))
    return valuer.estimate(log, group, independent)


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


def _valued(log: Log, metric: Metric | MetricValues | str | None, kind: DeltaEstimator) -> MetricValues | None:
    """Values by a metric, of which the estimator can be; None for clicks, which need none."""
    if metric is None:
        return None
    if isinstance(metric, MetricValues):
        values = metric
    else:
        known = parse_metric(metric)
        if known == Clicks():
            return None
        values = metric_values(log, known)
    if values.of_results is None and not isinstance(kind, OfABTraffic):
        raise ValueError(f"{values.metric} is of the whole page: use estimator=Adjusted(), not {kind}")
    if not isinstance(kind, ByClickModel | Direct | OfABTraffic):
        raise ValueError(f"{kind} is for clicks only, not for {values.metric}")
    if isinstance(kind, ByClickModel) and kind.clip is not None:
        raise ValueError(f"clip applies to weights of clicks, not to {values.metric}: use its cap")
    if not len(values.log):
        raise ValueError(f"no search counts for {values.metric} yet")
    return values


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
