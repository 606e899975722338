"""Estimates from sums computed in SQL where the log is: Parquet through DuckDB, or tables of a database.

They equal those of ``analysis.estimate`` for the same log, estimator and theta: fitted to the same counts, folds of the same
units, the same jackknife. Options that need a number for each impression or document back in the engine are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks
from ranktrial.analysis.estimators import DeltaEstimator, Means, parse_estimator
from ranktrial.analysis.estimators.cross_fitting import training_sums
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.estimators.valuing import scaled
from ranktrial.analysis.intervals import Band, asymptotic_radius
from ranktrial.analysis.ladder import AB_TRAFFIC, LEAST_ARM, REFUTED, Hausman
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.distributions import normal_quantile, t_quantile
from ranktrial.formats.database import SQLLog
from ranktrial.formats.sql import ARMS, MOMENTS
from ranktrial.log.log import GROUPS
from ranktrial.log.units import UnitSums
from ranktrial.position_bias import Counts, Examinations, NotIdentifiable, PositionBias, fit_groups
from ranktrial.position_bias.jackknife import jackknife_variance, ratio_freedom
from ranktrial.rankings import RequirementError
from ranktrial.rankings.values import RANK_AWARE_PREDICTIONS

FOLDS = 5
FIRST_LOOK, ENOUGH_TO_TELL = 100, 20


class NoPlainTrafficError(ValueError):
    """Error for a log without A/B traffic, which has no difference in means."""


@dataclass(frozen=True, eq=False)
class UnitMoments(UnitSums):
    """Moments of ``UnitSums``, added up over units, as intervals need them.

    Attributes:
        count: Number of units.
        squares: Sum of squared totals; ``products`` of totals times impressions; ``sizes`` of squared impressions.
        clickers: Units with a click that counts.
    """

    count: int = 0
    squares: float = 0.0
    products: float = 0.0
    sizes: float = 0.0
    clickers: int = 0

    def __len__(self) -> int:
        return self.count

    @cached_property
    def _away(self) -> float:
        return max(self.squares - 2 * self.mean * self.products + self.mean**2 * self.sizes, 0.0)

    @property
    def mean(self) -> float:
        return float(self.totals.sum() / self.impressions.sum())

    @property
    def standard_error(self) -> float:
        n = self.count
        return float(np.sqrt(n / (n - 1) * self._away) / self.impressions.sum()) if n > 1 else float("nan")


@dataclass(frozen=True, eq=False, repr=False)
class SummedEstimate(Estimate):
    """An ``Estimate`` of which only sums are known: no values of single impressions, so one look and no sequence of them."""

    estimator: DeltaEstimator = field(default_factory=Means)
    prediction: tuple[float, ...] = ()  # of each fold
    fixed: FloatArray | None = None  # the estimate without each group of units, theta as it is

    def sequence(self, units: ArrayLike, level: float = 0.95, *, tightest_at: float = 10_000) -> Band:
        """The asymptotic confidence sequence at all units, the only look that sums can give."""
        looked = checks.checkpoints(units)
        sums = self.sums
        assert isinstance(sums, UnitMoments)
        if looked.tolist() != [self.units]:
            raise ValueError(f"sums of {self.units} units say nothing of {looked.tolist()} units")
        reach = np.inf
        if self.units >= FIRST_LOOK and sums.clickers >= ENOUGH_TO_TELL:
            spread = sums.standard_error * np.sqrt(self.units)
            wide = asymptotic_radius([self.units], [spread], level=level, tightest_at=tightest_at)[0]
            reach = self.inflation(level) * float(wide)
        ends = [np.array([self.delta + side * reach]) for side in (-1, 1)]
        return Band(looked, np.array([self.delta]), ends[0], ends[1], level)


def fit_bias(log: SQLLog, *, groups: int = GROUPS) -> tuple[PositionBias, FloatArray]:
    """``fit_position_bias`` from counts that the engine adds up: theta, and theta without each group of units.

    Memory grows with the candidates that were clicked (documents of one design), not with impressions.
    """
    found = log.sums(log.queries.counts(groups))
    candidate, rank, group = (found[name].astype(np.int64) for name in ("candidate", "r", "grp"))
    if not len(candidate) or not found["clicked"][rank == 1].any():
        raise NotIdentifiable("nothing was clicked at rank 1, by which theta is scaled")
    units = len(np.unique(group))
    if units < groups:
        raise NotIdentifiable(f"units of {units} of {groups} groups have impressions of what was clicked, must be all")
    tables = {name: found[name].astype(np.float64) for name in ("shown", "clicked", "expected")}
    query = found["query"].astype(np.int64)
    parts = grouped_counts(candidate - 1, query - 1, rank, group, tables, k=log.k, groups=groups)
    return fit_groups(parts)


def grouped_counts(
    candidate: IntArray,
    query: IntArray,
    rank: IntArray,
    group: IntArray,
    cells: dict[str, FloatArray],
    *,
    k: int,
    groups: int,
) -> list[Counts]:
    """Counts of each group of units, from cells (candidate, rank from 1, group) with what was shown, clicked and expected."""
    n = int(candidate.max(initial=-1)) + 1
    query_of = np.zeros(n, np.int64)
    query_of[candidate] = query
    parts = []
    for number in range(groups):
        inside = group == number
        documents, row = np.unique(candidate[inside], return_inverse=True)
        tables = {name: np.zeros((len(documents), k)) for name in cells}
        for name, table in tables.items():
            table[row, rank[inside] - 1] = cells[name][inside]
        parts.append(
            Counts(n, documents, tables["shown"], tables["clicked"], query_of[documents], tables.get("expected"))
        )
    return parts


def estimate_sums(
    log: SQLLog,
    *,
    theta: ArrayLike | None = None,
    estimator: str | DeltaEstimator = "constant",
    prediction: float | None = None,
    folds: int = FOLDS,
    groups: int = GROUPS,
    uncovered: str = "refuse",
) -> SummedEstimate:
    """Delta from a log in a database, as ``analysis.estimate`` has it with the same options.

    Args:
        theta: Position bias where it is known; by default it is fitted to the log.
        estimator: ``IPS()`` or ``Constant()``; ``RankAware()`` or ``Direct()`` with a ``prediction``; ``Means()`` of A/B.
        prediction: Relevance of all documents; by default, for "constant", clicks per examination in the other folds.
        folds: Number of folds of units for that default.
        groups: Number of groups of units for the jackknife, where theta is fitted.
        uncovered: "refuse" logs in which a document that matters could not be seen, or "leave out" such documents.
    """
    kind = parse_estimator(estimator)
    if isinstance(kind, Means):
        return _of_arms(log)
    fitted = kind.one_relevance and prediction is None
    if not kind.adds_up or kind.weight_cap or (kind.has_prediction and prediction is None and not fitted):
        raise ValueError(
            f"{kind} cannot be computed by sums where the log is: it needs the relevance of each document, or a number for "
            "each search, which the engine does not have. Possible are IPS(), Constant(), Means(), and RankAware() or Direct() "
            "with one relevance for all documents (prediction=0.2). Or read the log into memory."
        )
    checks.one_of("uncovered", uncovered, ("refuse", "leave out"))
    bias, without = None, np.empty((0, log.k))
    if theta is None:
        bias, without = fit_bias(log, groups=groups)
        known = scaled(bias.theta)
    else:
        known = checks.probabilities("theta", theta)
        if len(known) != log.k:
            raise ValueError(f"theta has {len(known)} ranks, the log k = {log.k}")
    direct, given = kind.at_list_ranks, None
    if kind.rank_aware:
        prediction = float(np.clip(checks.between("prediction", prediction, 0, 1), *RANK_AWARE_PREDICTIONS))  # type: ignore[arg-type]
        given = prediction
    elif prediction is not None:
        checks.between("prediction", prediction, 0, 1)
    parts = folds if fitted else 1
    largest = log.sums(log.queries.largest(known, prediction=given, direct=direct))
    if uncovered == "refuse" and largest["unseen"][0] > 0:
        raise RequirementError(
            f"query {largest['query'][0]}: document {largest['document'][0]} or another could never be seen, and the rankers "
            f"differ on it ({int(largest['unseen'][0])} candidates in all); a logging policy must be able to show every "
            "document on which the rankers differ"
        )
    found = log.sums(log.queries.moments(known, folds=parts, prediction=given, direct=direct))
    predictions = np.zeros(parts)
    if fitted:
        predictions = _constants(found, folds)
    elif prediction is not None and kind.has_prediction:
        predictions[:] = prediction
    z = predictions[found["fold"].astype(np.int64)]
    value = {name: column.astype(np.float64) for name, column in found.items()}
    moments = UnitMoments(
        None,
        np.array([value["impressions"].sum()]),
        np.array([(z * value["shift"] + value["hit"]).sum()]),
        count=int(value["units"].sum()),
        squares=float((z**2 * value["shift_shift"] + 2 * z * value["shift_hit"] + value["hit_hit"]).sum()),
        products=float((z * value["impressions_shift"] + value["impressions_hit"]).sum()),
        sizes=float(value["impressions_impressions"].sum()),
        clickers=int(value["clickers"].sum()),
    )
    more: dict[str, Any] = {"standard_error": moments.standard_error, "clicks_alone": moments.standard_error}
    if bias is not None:
        replicates, alone = _replicates(log, known, without, predictions, given, direct)
        more = {
            "bias": bias,
            "replicates": replicates,
            "fixed": alone,
            "standard_error": _error(replicates),
            "clicks_alone": _error(alone),
            "freedom": ratio_freedom(replicates, alone),
        }
    return SummedEstimate(
        delta=moments.mean,
        impressions=int(moments.impressions[0]),
        units=len(moments),
        effective_clicks=float(value["heavy"].sum() ** 2 / max(value["squares"].sum(), 1e-300)),
        largest_weight=float(largest["largest"][0]),
        theta=known,
        sums=moments,
        estimator=kind,
        prediction=tuple(predictions.tolist()),
        **more,
    )


def _constants(found: Mapping[str, NDArray[Any]], folds: int) -> FloatArray:
    """Relevance for each fold: clicks per examination in all others."""
    if len(found["fold"]) < folds:
        raise ValueError(
            f"{len(found['fold'])} units cannot be divided into {folds} folds: give one relevance of all documents "
            "(prediction=0.2)"
        )
    seen = [found[name].astype(np.float64) for name in ("clicks", "seen", "seen_twice")]
    parts = [Examinations(*(column[[fold]] for column in seen)) for fold in range(folds)]
    return np.array([others.mean for others in training_sums(parts.__getitem__, folds, "folds")])


def _replicates(
    log: SQLLog,
    theta: FloatArray,
    without: FloatArray,
    predictions: FloatArray,
    prediction: float | None,
    direct: bool,
) -> tuple[FloatArray, FloatArray]:
    """The estimate without each group of units: theta fitted anew, and theta as it is."""
    groups = len(without)
    thetas = [theta, *(scaled(one) for one in without)]
    found = log.sums(
        log.queries.replicates(thetas, groups, predictions=predictions.tolist(), prediction=prediction, direct=direct)
    )
    t, group = (found[name].astype(np.int64) for name in ("t", "grp"))
    x = found["x"].astype(np.float64)
    whole, own, refitted = np.zeros(groups + 1), np.zeros(groups), np.zeros(groups)
    whole[t[group < 0]] = x[group < 0]
    first, others = (t == 0) & (group >= 0), (t > 0) & (group >= 0)
    own[group[first]], refitted[group[others]] = x[first], x[others]
    n = np.zeros(groups)
    n[group[first]] = found["n"].astype(np.float64)[first]
    left = n.sum() - n
    return (whole[1:] - refitted) / left, (whole[0] - own) / left


def _error(values: FloatArray) -> float:
    return float(np.sqrt(jackknife_variance(values[:, None])[0, 0]))


def _arms(log: SQLLog) -> dict[str, float]:
    """Sums of A/B traffic; 0 where there is none, of which engines say NULL."""
    return {name: float(np.nan_to_num(float(column[0] or 0))) for name, column in log.sums(log.queries.arms()).items()}


def _of_arms(log: SQLLog) -> SummedEstimate:
    """Difference in means of the A/B traffic, with its error over units."""
    found = _arms(log)
    n_a, n_b = found["n_a"], found["n_b"]
    if not n_a or not n_b:
        raise NoPlainTrafficError("Means() needs A/B traffic of both lists, and this log has none")
    mean_a, mean_b, total = found["y_a"] / n_a, found["y_b"] / n_b, n_a + n_b
    delta = mean_a - mean_b
    moments = _of_linear(found, _arm_values(found), delta)
    weights = np.array([total / n_a, total / n_b])
    clicks = np.array([found["y_a"], found["y_b"]])
    return SummedEstimate(
        delta=delta,
        standard_error=moments.standard_error,
        clicks_alone=moments.standard_error,
        impressions=int(total),
        units=len(moments),
        effective_clicks=float((weights @ clicks) ** 2 / max(weights**2 @ clicks, 1e-300)),
        largest_weight=float(weights.max()),
        sums=moments,
    )


def most_worth(log: SQLLog, found: SummedEstimate, *, name: str) -> tuple[float, float]:
    """Mean over searches of what clicks on all results that count for A, and for B, would add in its favour.

    The same as ``analysis.hostile.most_worth``, from sums. A click on an A/B page weighs as in the difference in means.
    """
    if name == AB_TRAFFIC:
        arms = _arms(log)
        told = log.sums(log.queries.results())
        return float(told["for_a"][0]) / arms["n_a"], float(told["for_b"][0]) / arms["n_b"]
    assert found.theta is not None
    told = log.sums(log.queries.hostile(found.theta, direct=found.estimator.at_list_ranks))
    return float(told["for_a"][0]) / found.impressions, float(told["for_b"][0]) / found.impressions


def clicks_of_both(log: SQLLog, theta: FloatArray | None) -> UnitSums | None:
    """Clicks per search of pages that are half A's and half B's; None where neither the click model nor A/B traffic tells.

    By the click model where theta is known and everything that A or B lists could be seen; else the mean of the two means of
    the A/B traffic.
    """
    if theta is not None and not float(log.sums(log.queries.largest(theta, both=True))["unseen"][0] or 0):
        by_unit = log.sums(log.queries.moments(theta, folds=1, both=True))
        value = {name: float(column[0]) for name, column in by_unit.items()}
        return UnitMoments(
            None, np.array([value["impressions"]]), np.array([value["hit"]]), count=int(value["units"]),
            squares=value["hit_hit"], products=value["impressions_hit"], sizes=value["impressions_impressions"],
            clickers=int(value["clickers"]),
        )  # fmt: skip
    found = _arms(log)
    if not found["n_a"] or not found["n_b"]:
        return None
    mean = (found["y_a"] / found["n_a"] + found["y_b"] / found["n_b"]) / 2
    return _of_linear(found, _arm_values(found) * np.array([0.5, 0.5, -0.5, -0.5]), mean)


def _of_linear(found: Mapping[str, float], linear: FloatArray, mean: float) -> UnitMoments:
    """Moments of an estimate from A/B traffic, given the sum of (value - mean) of a unit as a function of its n and y."""
    total = found["n_a"] + found["n_b"]
    products, size = _products(found, ARMS), np.array([1.0, 0, 1, 0])
    of_totals = linear + mean * size  # totals of values themselves add the mean for each impression
    return UnitMoments(
        None, np.array([total]), np.array([mean * total]), count=int(found["units"]),
        squares=float(of_totals @ products @ of_totals), products=float(of_totals @ products @ size),
        sizes=float(size @ products @ size), clickers=int(found["y_a"] + found["y_b"]),
    )  # fmt: skip


def _arm_values(found: Mapping[str, float]) -> FloatArray:
    """Coefficients of a unit's n_a, y_a, n_b and y_b in its sum of (value - delta); see ``analysis.difference_values``."""
    n_a, n_b = found["n_a"], found["n_b"]
    mean_a, mean_b, total = found["y_a"] / n_a, found["y_b"] / n_b, n_a + n_b
    return np.array([-mean_a * total / n_a, total / n_a, mean_b * total / n_b, -total / n_b])


def _products(found: Mapping[str, float], names: Sequence[str]) -> FloatArray:
    """Sums of products of any two columns, as a matrix."""
    table = np.zeros((len(names), len(names)))
    for i, one in enumerate(names):
        for j, two in enumerate(names[i:], i):
            table[i, j] = table[j, i] = found[f"{one}_{two}"]
    return table


def against_means(log: SQLLog, upper: SummedEstimate, *, name: str) -> Hausman | None:
    """The test of an estimate by the click model against the difference in means of A/B traffic; None if there is too little.

    As between two estimates of ``analysis.ladder``: the spread of the difference over units, times what refitting theta adds.
    """
    assert upper.theta is not None
    prediction = upper.prediction[0] if upper.estimator.rank_aware else None
    query = log.queries.moments(
        upper.theta, folds=len(upper.prediction), prediction=prediction, direct=upper.estimator.at_list_ranks, arms=True
    )
    by_fold = {column: values.astype(np.float64) for column, values in log.sums(query).items()}
    sums = {column: float(values.sum()) for column, values in by_fold.items()}
    if min(sums["n_a"], sums["n_b"]) < LEAST_ARM:
        return None
    names, linear = (*MOMENTS, *ARMS), _arm_values(sums)
    plain, n, units = sums["n_a"] + sums["n_b"], sums["impressions"], sums["units"]
    squares = 0.0
    for at, fold in enumerate(by_fold["fold"].astype(np.int64)):
        found = {column: float(values[at]) for column, values in by_fold.items()}
        away = np.array([-upper.delta / n, upper.prediction[fold] / n, 1 / n, *(-linear / plain)])
        squares += float(away @ _products(found, names) @ away)
    error, wider, level = float(np.sqrt(units / (units - 1) * max(squares, 0.0))), 1.0, 1 - REFUTED
    delta = sums["y_a"] / sums["n_a"] - sums["y_b"] / sums["n_b"]
    if upper.replicates is not None and upper.fixed is not None:
        groups = len(upper.replicates)
        told = log.sums(log.queries.group_sizes(groups))
        arms = np.zeros((groups, 4))
        arms[told["grp"].astype(np.int64)] = np.stack([told[column].astype(np.float64) for column in ARMS], axis=1)
        size = arms[:, 0] + arms[:, 2]
        below = delta - (arms @ linear) / (plain - size)  # the mean of (value - delta) over the others
        refitted, fixed = (_error(above - below) for above in (upper.replicates, upper.fixed))
        error *= max(refitted / fixed, 1.0) if fixed > 0 else 1.0
        half = 0.5 + level / 2
        wider = t_quantile(half, groups - 1) / normal_quantile(half)
    reach = asymptotic_radius([units], [wider * error * np.sqrt(units)], level=level)[0]
    return Hausman(name, AB_TRAFFIC, upper.delta - delta, error, float(reach))
