"""Results of a study, read from its folder: each method's error curves on every pair, and its limits without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.paper.study.files import read_columns
from ranktrial.paper.study.folder import StudyFolder
from ranktrial.paper.study.labels import role
from ranktrial.paper.study.laws import CURVE_COLUMNS
from ranktrial.paper.study.plan import StudyPlan
from ranktrial.paper.study.summary import METRICS, nearest_checkpoints
from ranktrial.paper.study.tables import LIMITS, RESULTS, tables

T = TypeVar("T")
COLUMNS_OF_RUNS = ("pair", "impressions", "ctr_a", "ctr_b", "delta", *CURVE_COLUMNS)
POINTS = 80  # of a curve; more cannot be told apart on paper


@dataclass(frozen=True, eq=False)
class Runs:
    """One method on the pairs of one data set.

    Attributes:
        method: Text of the method.
        pairs: Numbers of the pairs, increasing.
        impressions: The checkpoints.
        errors: Each metric as a (pairs, checkpoints) array; NaN where it is not known.
        estimate: At the last checkpoint, by pair.
        delta: True difference, by pair.
        ctr: Clicks per impression on what was shown, at the last checkpoint, by pair.
        ctr_a: Clicks per impression of ranker A, by pair.
        ctr_b: Clicks per impression of ranker B, by pair.
    """

    method: str
    pairs: IntArray
    impressions: IntArray
    errors: Mapping[str, FloatArray]
    estimate: FloatArray
    delta: FloatArray
    ctr: FloatArray
    ctr_a: FloatArray
    ctr_b: FloatArray

    def on(self, pairs: IntArray) -> Runs:
        """Return the runs on some of the pairs."""
        keep = np.isin(self.pairs, pairs)
        by_pair = {name: getattr(self, name)[keep] for name in ("pairs", "estimate", "delta", "ctr", "ctr_a", "ctr_b")}
        return Runs(
            self.method, impressions=self.impressions, errors={m: e[keep] for m, e in self.errors.items()}, **by_pair
        )

    def nearest(self, impressions: float) -> int:
        """The checkpoint nearest to a number of impressions."""
        return int(np.argmin(np.abs(np.log(self.impressions / impressions))))


@dataclass(frozen=True, eq=False)
class MethodLimits:
    """Limits of one method's estimate with ever more impressions, on the pairs of one data set (from ``limits.parquet``).

    Attributes:
        method: Text of the method.
        pairs: Numbers of the pairs.
        delta: True difference, by pair.
        limit: Expectation of the estimate, by pair.
        standard_error: Standard error of ``limit``; 0 where it is exact.
        wrong_sign: Whether ``limit`` prefers the wrong ranker.
    """

    method: str
    pairs: IntArray
    delta: FloatArray
    limit: FloatArray
    standard_error: FloatArray
    wrong_sign: BoolArray

    @property
    def biased(self) -> bool:
        """True if the method has a systematic error; the limit of the others is Delta itself."""
        return bool((np.abs(self.limit - self.delta) > 1e-9 + 5 * self.standard_error).any())

    @property
    def wrong(self) -> FloatArray:
        """1 for a wrong sign, 0 for a right one, 1/2 where 3 standard errors leave it open, whatever sign it has."""
        unclear = (self.limit != 0) & (np.abs(self.limit) < 3 * self.standard_error)
        return np.where(unclear, 0.5, self.wrong_sign)

    @property
    def scale(self) -> float:
        """The factor by which x comes nearest to Delta (least squares through the origin)."""
        square = float(self.limit @ self.limit)
        return float(self.limit @ self.delta) / square if square else 0.0

    @property
    def rescaled_error(self) -> FloatArray:
        """The absolute error that the best factor leaves, by pair."""
        return np.abs(self.delta - self.scale * self.limit)


@dataclass(frozen=True, eq=False)
class DataResults:
    """All methods on one data set.

    Attributes:
        data: Its name.
        runs: Runs by method, in the order of the plan.
        limits: Limits by method; empty where they have not been computed.
    """

    data: str
    runs: Mapping[str, Runs]
    limits: Mapping[str, MethodLimits]

    def playing(self, *roles: str) -> Runs | None:
        """The first method that plays the first of these roles that is played at all."""
        return _first_playing(self.runs, roles)

    def begun(self, fewest: int) -> DataResults:
        """Return the results without methods that have fewer pairs than that, unless all have; they cannot be compared yet."""
        if all(len(one.pairs) < fewest for one in self.runs.values()):
            return self
        return replace(self, runs={method: one for method, one in self.runs.items() if len(one.pairs) >= fewest})

    def limits_of(self, *roles: str) -> MethodLimits | None:
        """The limits of the first method that plays the first of these roles that has any."""
        return _first_playing(self.limits, roles)


def _first_playing(by_method: Mapping[str, T], roles: Sequence[str]) -> T | None:
    return next((one for wanted in roles for method, one in by_method.items() if role(method) == wanted), None)


def read_results(path: Path) -> tuple[StudyPlan, list[DataResults]]:
    """The results of a study, finished or not; sets without any are left out."""
    study = StudyFolder(path)
    plan = study.read_plan()
    points = thinned(plan.points)
    with tables(study, plan, points) as folder:
        found = [one for data in plan.data if (one := _data_results(plan, folder, data.name, points)).runs]
    if not found:
        raise ValueError(f"{path}: no results yet; see how far it is with: ranktrial study show {path}")
    return plan, found


def thinned(points: IntArray) -> IntArray:
    """Checkpoints to draw: even on a log axis, with those nearest to powers of ten and the last.

    >>> thinned(np.array([100, 450, 990, 2000])).tolist()
    [100, 450, 990, 2000]
    """
    places = np.unique(np.round(np.linspace(0, len(points) - 1, min(POINTS, len(points)))).astype(int))
    return np.union1d(points[places], nearest_checkpoints(points))


def _data_results(plan: StudyPlan, folder: Path, data: str, points: IntArray) -> DataResults:
    runs, limits = {}, {}
    for method in plan.methods:
        if curves := _columns(folder / RESULTS, COLUMNS_OF_RUNS, data, method):
            there = np.unique(curves["impressions"])
            by_pair = {
                name: column.reshape(-1, len(there))[:, np.isin(there, points)] for name, column in curves.items()
            }
            errors = {metric: by_pair[metric] for metric in METRICS}
            last = {name: by_pair[name][:, -1] for name in ("estimate", "delta", "ctr", "ctr_a", "ctr_b")}
            runs[method] = Runs(method, by_pair["pair"][:, -1], points, errors, **last)
        columns = ("pair", "delta", "limit", "standard_error", "wrong_sign")
        if found := _columns(folder / LIMITS, columns, data, method):
            limits[method] = MethodLimits(method, *found.values())
    return DataResults(data, runs, limits)


def _columns(file: Path, names: Sequence[str], data: str, method: str) -> dict[str, Any]:
    """Columns of a table for one method on one data set, by pair, with NaN for NULL; none where there is no row."""
    if not file.exists():
        return {}
    order = "pair, impressions" if "impressions" in names else "pair"
    wanted = ", ".join(f'"{name}"' for name in names)
    query = f"select {wanted} from read_parquet($files) where data = $data and method = $method order by {order}"
    found = read_columns(query, [file], data=data, method=method)
    columns = {name: np.ma.filled(c, np.nan) if np.ma.is_masked(c) else np.asarray(c) for name, c in found.items()}
    return columns if len(columns["pair"]) else {}


def common(*runs: Runs) -> tuple[Runs, ...]:
    """Return the runs on the pairs that all of them have."""
    pairs = reduce(np.intersect1d, (one.pairs for one in runs))
    return tuple(one.on(pairs) for one in runs)
