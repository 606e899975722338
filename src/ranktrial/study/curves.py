"""How do errors fall with the number of impressions, and how sure is that? Every pair's curve, means over pairs, and what else
the same pairs might have shown (bootstrap over pairs)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.study.folder import StudyFolder
from ranktrial.study.labels import role
from ranktrial.study.plan import StudyPlan, Task
from ranktrial.study.summary import METRICS, nearest_checkpoints

POINTS = 80  # of a curve; more cannot be told apart on paper
RESAMPLES = 200
FEWEST = 10  # pairs, for an interval: a bootstrap of fewer is far too sure of itself
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Runs:
    """One method on the pairs of one data set.

    Attributes:
        method: As it is written.
        pairs: Numbers of the pairs, increasing.
        impressions: The checkpoints.
        errors: Each metric as a (pairs, checkpoints) array; NaN where it is not known.
        estimate: At the last checkpoint, by pair.
        delta: True difference, by pair.
        ctr: Clicks per impression on what was shown, at the last checkpoint, by pair.
        ctr_a: Of ranker A, by pair.
        ctr_b: Of ranker B.
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
        """The same, of some of its pairs."""
        keep = np.isin(self.pairs, pairs)
        by_pair = {name: getattr(self, name)[keep] for name in ("pairs", "estimate", "delta", "ctr", "ctr_a", "ctr_b")}
        return Runs(
            self.method, impressions=self.impressions, errors={m: e[keep] for m, e in self.errors.items()}, **by_pair
        )

    def nearest(self, impressions: float) -> int:
        """The checkpoint nearest to a number of impressions."""
        return int(np.argmin(np.abs(np.log(self.impressions / impressions))))


@dataclass(frozen=True)
class LimitRow:
    """Where a method's estimate on one pair goes with ever more impressions (a row of ``limits.parquet``)."""

    pair: int
    method: str
    delta: float
    limit: float
    standard_error: float
    wrong_sign: bool


@dataclass(frozen=True, eq=False)
class DataResults:
    """All methods on one data set.

    Attributes:
        data: Its name.
        runs: By method, in the order of the plan.
        limits: By method; empty where they have not been computed.
    """

    data: str
    runs: Mapping[str, Runs]
    limits: Mapping[str, tuple[LimitRow, ...]]

    def playing(self, *roles: str) -> Runs | None:
        """The first method that plays the first of these roles that is played at all."""
        for wanted in roles:
            for method, runs in self.runs.items():
                if role(method) == wanted:
                    return runs
        return None

    def limits_of(self, part: str) -> tuple[LimitRow, ...]:
        return next((rows for method, rows in self.limits.items() if role(method) == part), ())


def read_results(path: Path) -> tuple[StudyPlan, list[DataResults]]:
    """The results of a study, finished or not; sets without any are left out."""
    study = StudyFolder(path)
    try:
        plan = study.read_plan()
        found = [one for data in plan.data if (one := _data_results(study, plan, data.name)).runs]
        if not found:
            raise ValueError(f"{path}: no results yet; see how far it is with: ranktrial study show {path}")
        return plan, found
    finally:
        study.close()


def thinned(points: IntArray) -> IntArray:
    """Checkpoints to draw: even on a log axis, with those nearest to powers of ten and the last.

    >>> thinned(np.array([100, 450, 990, 2000])).tolist()
    [100, 450, 990, 2000]
    """
    places = np.unique(np.round(np.linspace(0, len(points) - 1, min(POINTS, len(points)))).astype(int))
    return np.union1d(points[places], nearest_checkpoints(points))


def _files(study: StudyFolder, plan: StudyPlan, data: str, method: str) -> list[Path]:
    """Where the rows of one method on one data set are: in the table, if there is one, else in its own parts alone."""
    if study.has_tables():
        return [study.results]
    tasks = (Task(data, pair, method) for pair in range(plan.pairs))
    return [study.part(task) for task in tasks if study.done(task)]


def _data_results(study: StudyFolder, plan: StudyPlan, data: str) -> DataResults:
    points = thinned(plan.points)
    lists = ", ".join(f"list({name} order by impressions) as {name}" for name in (*METRICS, "impressions"))
    runs = {}
    for method in plan.methods:
        files = _files(study, plan, data, method)
        if not files:
            continue
        rows = study.query(
            f"""select pair, any_value(delta) as delta, any_value(ctr_a) as ctr_a, any_value(ctr_b) as ctr_b,
                       max_by(ctr, impressions) as ctr, max_by(estimate, impressions) as estimate, {lists}
                from read_parquet($files) where data = $data and method = $method and list_contains($points, impressions)
                group by pair order by pair""",
            files,
            data=data,
            method=method,
            points=points.tolist(),
        )
        if rows:
            columns = {name: np.array([row[name] for row in rows], float) for name in rows[0] if name != "impressions"}
            errors = {metric: columns.pop(metric) for metric in METRICS}
            pairs = columns.pop("pair").astype(np.int64)
            runs[method] = Runs(method, pairs, np.array(rows[0]["impressions"]), errors, **columns)
    return DataResults(data, runs, _limits(study, plan, data))


def _limits(study: StudyFolder, plan: StudyPlan, data: str) -> dict[str, tuple[LimitRow, ...]]:
    # A part lies in the folder of its data set: no need to open those of others.
    parts = [study.limits] if study.limits.exists() else study.limit_parts(plan)
    files = [file for file in parts if file == study.limits or file.parent.parent.name == data]
    if not files:
        return {}
    rows = study.query(
        """select pair, method, delta, "limit", standard_error, wrong_sign from read_parquet($files)
           where data = $data and "limit" is not null order by method, pair""",
        files,
        data=data,
    )
    known = {row["method"] for row in rows}
    order = [method for method in plan.methods if method in known] + sorted(known - set(plan.methods))
    return {method: tuple(LimitRow(**row) for row in rows if row["method"] == method) for method in order}


# --- sureness -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A number with its interval.

    Attributes:
        value: From all pairs.
        low: Lower end of the 95 % interval over pairs.
        high: Upper end.
        pairs: How many pairs (or errors) it rests on.
    """

    value: float
    low: float
    high: float
    pairs: int


def means(errors: FloatArray) -> FloatArray:
    """Means over pairs; NaN where nothing is known."""
    known = np.isfinite(errors)
    total = np.where(known, errors, 0.0).sum(0)
    return np.asarray(np.divide(total, known.sum(0), out=np.full(total.shape, np.nan), where=known.any(0)))


def standard_errors(errors: FloatArray) -> FloatArray:
    """Of those means; NaN from one pair."""
    n = len(errors)
    spread = errors.std(0, ddof=1) if n > 1 else np.full(errors.shape[1:], np.nan)
    return np.asarray(spread / np.sqrt(n))


def bootstrap(measure: Callable[..., float], *errors: FloatArray) -> Measured:
    """A number worked out from mean curves, with the 95 % interval over samples of as many pairs; rows of all arrays are the
    same pairs and are drawn together. The seed is fixed: the same results give the same interval. Few pairs have none."""
    n = len(errors[0])
    if n < FEWEST:
        value = measure(*(array.mean(0) for array in errors))
        return Measured(value, -np.inf, np.inf, n)
    draws = np.random.default_rng(20200914).multinomial(n, np.full(n, 1 / n), RESAMPLES) / n
    shares = np.vstack([np.full(n, 1 / n), draws])
    curves = [shares @ array for array in errors]
    values = np.array([measure(*rows) for rows in zip(*curves)])
    others = np.sort(values[1:][~np.isnan(values[1:])])
    if np.isnan(values[0]) or len(others) < RESAMPLES / 2:
        return Measured(float(values[0]), -np.inf, np.inf, n)
    cut = (1 - LEVEL) / 2
    # Order statistics, not interpolated: values may be infinite ("never").
    low, high = others[int(cut * len(others))], others[min(int((1 - cut) * len(others)), len(others) - 1)]
    return Measured(float(values[0]), float(low), float(high), n)


def share(wrong: FloatArray) -> Measured:
    """A share of zeros and ones with Wilson's interval, which stays sensible at 0 of n.

    >>> share(np.zeros(50))
    Measured(value=0.0, low=0.0, high=0.07135, pairs=50)
    """
    n, z2 = len(wrong), 1.959964**2
    if n == 0:
        return Measured(np.nan, -np.inf, np.inf, 0)
    p = float(np.mean(wrong))
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    return Measured(p, round(float(max(middle - half, 0)), 5), round(float(min(middle + half, 1)), 5), n)


# --- how many impressions -----------------------------------------------------------------------------------------------------


def reached(impressions: IntArray, curve: FloatArray, levels: ArrayLike) -> FloatArray:
    """After how many impressions a mean error falls to each level and stays there, between checkpoints on a straight line in
    log-log; infinite if it never does, the first checkpoint if it was there from the start.

    >>> reached(np.array([100, 10_000]), np.array([0.1, 0.01]), [0.2, 0.0316227766, 0.001]).round(3)
    array([ 100., 1000.,   inf])
    """
    wanted = np.asarray(levels, np.float64)
    if np.isnan(curve).any():
        return np.full(wanted.shape, np.inf)
    worst = _still_to_come(curve)
    first = np.searchsorted(-worst, -wanted)  # the first checkpoint at or below the level
    after, before = np.minimum(first, len(worst) - 1), np.clip(first - 1, 0, len(worst) - 1)
    steps, points = np.log(np.maximum(worst, 1e-12)), np.log(impressions)  # an error of 0 has no logarithm
    fall = np.where(steps[before] > steps[after], steps[before] - steps[after], 1.0)
    part = (steps[before] - np.log(wanted)) / fall
    between = np.exp(points[before] + part * (points[after] - points[before]))
    return np.select([first == 0, first == len(worst)], [float(impressions[0]), np.inf], between)


def _still_to_come(curve: FloatArray) -> FloatArray:
    """The worst from each checkpoint on: it falls, whatever the noise."""
    return np.maximum.accumulate(curve[::-1])[::-1]


def needed_ratio(impressions: IntArray, curve: FloatArray, baseline: FloatArray) -> float:
    """How many times the baseline's impressions a method needs for the same mean error: the geometric mean over levels that
    both reach on the way; NaN where they have none in common.

    >>> points = np.geomspace(100, 10**6, 50)
    >>> round(needed_ratio(points, 2 / np.sqrt(points), 1 / np.sqrt(points)), 3)
    4.0
    """
    both = [_still_to_come(curve), _still_to_come(baseline)]
    if any(np.isnan(one).any() or one[0] <= 0 for one in both):
        return float("nan")
    top = min(one[0] for one in both)
    bottom = max(one[one > 0].min() for one in both)
    if not bottom < top:
        return float("nan")
    levels = np.geomspace(bottom, top, 12)[1:-1]
    method, other = (np.log(reached(impressions, one, levels)) for one in both)
    return float(np.exp(np.mean(method - other)))


def common(first: Runs, second: Runs) -> tuple[Runs, Runs]:
    """Both on the pairs that both have."""
    pairs = np.intersect1d(first.pairs, second.pairs)
    return first.on(pairs), second.on(pairs)
