"""Estimates from sums computed in SQL where the log is, in tables of a database.

They equal those of ``analysis.estimate`` for the same log and theta, with ``estimator=Constant()`` and ``Means()``: fitted to
the same counts, folds of the same units, the same jackknife.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks
from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.estimators.valuing import scaled
from ranktrial.analysis.intervals import ENOUGH_TO_TELL, FIRST_LOOK, Band, asymptotic_radius, t_widening
from ranktrial.analysis.ladder import AB_TRAFFIC, LEAST_ARM, POSITION_BASED, REFUTED, Hausman
from ranktrial.arrays import FloatArray
from ranktrial.formats.database import SQLLog
from ranktrial.formats.sql import ARMS, MOMENTS
from ranktrial.log.log import GROUPS
from ranktrial.log.units import UnitSums
from ranktrial.position_bias import Counts, Examinations, NotIdentifiable, PositionBias, fit_groups
from ranktrial.position_bias.jackknife import jackknife_variance, ratio_freedom
from ranktrial.rankings import RequirementError

FOLDS = 5
CELLS = ("shown", "clicked", "expected")  # numbers of a document at a rank


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
    def standard_error(self) -> float:
        n, mean = self.count, self.mean
        away = max(self.squares - 2 * mean * self.products + mean**2 * self.sizes, 0.0)
        return float(np.sqrt(n / (n - 1) * away) / self.impressions.sum()) if n > 1 else float("nan")


@dataclass(frozen=True, eq=False, repr=False)
class SummedEstimate(Estimate):
    """An ``Estimate`` of which only sums are known: no values of single impressions, so one look and no sequence of them."""

    added: Added | None = None
    predictions: FloatArray = field(default_factory=lambda: np.zeros(0))  # relevance for each fold
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
    names = {"document": "candidate", "query": "query", "rank": "r", "group": "grp"}
    cells: dict[str, NDArray[Any]] = {name: found[column].astype(np.int64) for name, column in names.items()}
    cells |= {name: found[name].astype(np.float64) for name in CELLS}
    if not len(cells["document"]) or not cells["clicked"][cells["rank"] == 1].any():
        raise NotIdentifiable("nothing was clicked at rank 1, by which theta is scaled")
    units = len(np.unique(cells["group"]))
    if units < groups:
        raise NotIdentifiable(f"units of {units} of {groups} groups have impressions of what was clicked, must be all")
    return fit_groups(grouped_counts(cells, k=log.k, groups=groups))


def grouped_counts(cells: Mapping[str, NDArray[Any]], *, k: int, groups: int) -> list[Counts]:
    """Counts of each group of units, from cells of a query's document, rank (from 1) and group, with ``CELLS`` of each."""
    n = int(cells["document"].max(initial=-1)) + 1
    query_of = np.zeros(n, np.int64)
    query_of[cells["document"]] = cells["query"]
    parts = []
    for number in range(groups):
        inside = cells["group"] == number
        documents, row = np.unique(cells["document"][inside], return_inverse=True)
        tables = {name: np.zeros((len(documents), k)) for name in CELLS if name in cells}
        for name, table in tables.items():
            table[row, cells["rank"][inside] - 1] = cells[name][inside]
        parts.append(
            Counts(n, documents, tables["shown"], tables["clicked"], query_of[documents], tables.get("expected"))
        )
    return parts


@dataclass(frozen=True, eq=False)
class Added:
    """A log as its database added it up for one theta.

    Attributes:
        columns: Sums of ``sql.SUMS`` over each fold of units, and of products of two ``sql.MOMENTS``, by name.
    """

    columns: Mapping[str, FloatArray]

    @classmethod
    def of(cls, log: SQLLog, theta: FloatArray, *, both: bool = False) -> Added:
        """Sums of a log; ``both`` is for the clicks of pages that are half A's and half B's."""
        found = log.sums(log.queries.moments(theta, folds=FOLDS, both=both))
        return cls({name: column.astype(np.float64) for name, column in found.items()})

    def __getitem__(self, name: str) -> float:
        """The sum over all folds."""
        return float(self.columns[name].sum())

    @property
    def has_arms(self) -> bool:
        """True if there is A/B traffic of both lists."""
        return self["n_a"] > 0 and self["n_b"] > 0

    @cached_property
    def products(self) -> FloatArray:
        """Sums of products of two ``MOMENTS``, by fold."""
        table = np.zeros((len(self.columns["fold"]), len(MOMENTS), len(MOMENTS)))
        for i, one in enumerate(MOMENTS):
            for j, two in enumerate(MOMENTS[i:], i):
                table[:, i, j] = table[:, j, i] = self.columns[f"{one}_{two}"]
        return table

    def over_units(self, values: FloatArray, sizes: Sequence[float], *, units: str, clickers: float) -> UnitMoments:
        """Moments of values and sizes of units, which are sums of their ``MOMENTS`` with these coefficients, by fold."""
        of_fold = np.stack([self.columns[name] for name in MOMENTS], axis=1)
        size = np.broadcast_to(np.array(sizes, np.float64), values.shape)
        square, product, sized = (
            float(np.einsum("fi,fij,fj", one, self.products, two))
            for one, two in ((values, values), (values, size), (size, size))
        )
        return UnitMoments(
            None, np.array([np.sum(of_fold * size)]), np.array([np.sum(of_fold * values)]), count=round(self[units]),
            squares=square, products=product, sizes=sized, clickers=round(clickers),
        )  # fmt: skip

    def of_model(self, predictions: FloatArray) -> UnitMoments:
        """Values by the click model, with one relevance of all documents for each fold."""
        values = np.stack([[0, z, 1, 0, 0, 0, 0] for z in predictions.tolist()])
        return self.over_units(values, (1, 0, 0, 0, 0, 0, 0), units="units", clickers=self["clickers"])

    @property
    def arm_values(self) -> FloatArray:
        """Coefficients of a unit's n_a, y_a, n_b and y_b in its sum of (value - delta); see ``analysis.difference_values``."""
        n_a, n_b = self["n_a"], self["n_b"]
        mean_a, mean_b, total = self["y_a"] / n_a, self["y_b"] / n_b, n_a + n_b
        return np.array([-mean_a * total / n_a, total / n_a, mean_b * total / n_b, -total / n_b])

    def of_arms(self, signs: tuple[float, float]) -> UnitMoments:
        """Values by A/B traffic of the two means, each times a number: (1, -1) for their difference."""
        size = np.array([1.0, 0, 1, 0])
        mean = signs[0] * self["y_a"] / self["n_a"] + signs[1] * self["y_b"] / self["n_b"]
        linear = self.arm_values * np.repeat((signs[0], -signs[1]), 2)
        values = np.tile([0, 0, 0, *(linear + mean * size)], (len(self.products), 1))
        return self.over_units(values, (0, 0, 0, *size), units="plain", clickers=self["y_a"] + self["y_b"])


def estimate_sums(
    log: SQLLog, *, theta: ArrayLike | None = None, groups: int = GROUPS, uncovered: str = "refuse"
) -> SummedEstimate:
    """Delta from a log in a database, as ``analysis.estimate`` has it with ``Constant()``.

    Args:
        theta: Position bias where it is known; by default it is fitted to the log.
        groups: Number of groups of units for the jackknife, where theta is fitted.
        uncovered: "refuse" logs in which a document that matters could not be seen, or "leave out" such documents.
    """
    checks.one_of("uncovered", uncovered, ("refuse", "leave out"))
    bias, without = None, np.empty((0, log.k))
    if theta is None:
        bias, without = fit_bias(log, groups=groups)
        known = scaled(bias.theta)
    else:
        known = checks.probabilities("theta", theta)
        if len(known) != log.k:
            raise ValueError(f"theta has {len(known)} ranks, the log k = {log.k}")
    largest = log.sums(log.queries.largest(known))
    if uncovered == "refuse" and largest["unseen"][0] > 0:
        raise RequirementError(
            f"query {largest['query'][0]}: document {largest['document'][0]} or another could never be seen, and the rankers "
            f"differ on it ({int(largest['unseen'][0])} candidates in all); a logging policy must be able to show every "
            "document on which the rankers differ"
        )
    added = Added.of(log, known)
    predictions = _constants(added)
    moments = added.of_model(predictions)
    more: dict[str, Any] = {}
    if bias is not None:
        replicates, alone = _replicates(log, known, without, predictions)
        more = {
            "bias": bias,
            "replicates": replicates,
            "fixed": alone,
            "standard_error": _error(replicates),
            "clicks_alone": _error(alone),
            "freedom": ratio_freedom(replicates, alone),
        }
    most = float(largest["largest"][0])
    weights = ClickWeights(np.array([[added["clicks"]], [added["squares"]]]), added["heavy"], most)
    return SummedEstimate.of(
        moments, weights, largest_weight=most, theta=known, added=added, predictions=predictions, **more
    )


def _constants(added: Added) -> FloatArray:
    """Relevance for each fold: clicks per examination in all others."""
    if len(added.columns["fold"]) < FOLDS:
        raise ValueError(
            f"the log has {len(added.columns['fold'])} visitors, fewer than the {FOLDS} groups in which their clicks predict "
            "each other"
        )
    seen = [added.columns[name] for name in ("clicks", "seen", "seen_twice")]
    parts = [Examinations(*(column[[fold]] for column in seen)) for fold in range(FOLDS)]
    total = sum(parts[1:], parts[0])
    return np.array([(total - part).mean for part in parts])


def _replicates(
    log: SQLLog, theta: FloatArray, without: FloatArray, predictions: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The estimate without each group of units: theta fitted anew, and theta as it is."""
    groups = len(without)
    thetas = [theta, *(scaled(one) for one in without)]
    found = log.sums(log.queries.replicates(thetas, groups, predictions.tolist()))
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


def difference_in_means(added: Added) -> SummedEstimate | None:
    """Difference in means of the A/B traffic, with its error over units; None if there is no A/B traffic."""
    if not added.has_arms:
        return None
    moments, total = added.of_arms((1, -1)), added["n_a"] + added["n_b"]
    weights = np.array([total / added["n_a"], total / added["n_b"]])
    of_clicks = ClickWeights.of(weights, [added["y_a"], added["y_b"]])
    return SummedEstimate.of(moments, of_clicks, largest_weight=float(weights.max()), added=added)


def most_worth(found: SummedEstimate) -> tuple[float, float]:
    """Mean over searches of what clicks on all results that count for A, and for B, would add in its favour.

    The same as ``analysis.hostile.most_worth``, from sums. A click on an A/B page weighs as in the difference in means.
    """
    added = found.added
    assert added is not None
    if found.theta is None:
        return added["results_a"] / added["n_a"], added["results_b"] / added["n_b"]
    return added["for_a"] / added["impressions"], added["for_b"] / added["impressions"]


def clicks_of_both(log: SQLLog, added: Added, theta: FloatArray | None) -> UnitSums | None:
    """Clicks per search of pages that are half A's and half B's; None where neither the click model nor A/B traffic tells.

    By the click model where theta is known and everything that A or B lists could be seen; else the mean of the two means of
    the A/B traffic.
    """
    if theta is not None and not float(log.sums(log.queries.largest(theta, both=True))["unseen"][0] or 0):
        return Added.of(log, theta, both=True).of_model(np.zeros(FOLDS))
    return added.of_arms((0.5, 0.5)) if added.has_arms else None


def against_means(log: SQLLog, upper: SummedEstimate) -> Hausman | None:
    """The test of the estimate by the click model against the difference in means; None if A/B traffic is too little.

    As between two estimates of ``analysis.ladder``: the spread of the difference over units, times what refitting theta adds.
    """
    added = upper.added
    assert added is not None
    if min(added["n_a"], added["n_b"]) < LEAST_ARM:
        return None
    plain, n, units, linear = added["n_a"] + added["n_b"], added["impressions"], added["units"], added.arm_values
    values = np.stack([[-upper.delta / n, z / n, 1 / n, *(-linear / plain)] for z in upper.predictions.tolist()])
    squares = max(float(np.einsum("fi,fij,fj", values, added.products, values)), 0.0)
    error, wider, level = float(np.sqrt(units / (units - 1) * squares)), 1.0, 1 - REFUTED
    delta = added["y_a"] / added["n_a"] - added["y_b"] / added["n_b"]
    if upper.replicates is not None and upper.fixed is not None:
        groups = len(upper.replicates)
        told = log.sums(log.queries.group_sizes(groups))
        arms = np.zeros((groups, 4))
        arms[told["grp"].astype(np.int64)] = np.stack([told[column].astype(np.float64) for column in ARMS], axis=1)
        size = arms[:, 0] + arms[:, 2]
        below = delta - (arms @ linear) / (plain - size)  # the mean of (value - delta) over the others
        refitted, fixed = (_error(above - below) for above in (upper.replicates, upper.fixed))
        error *= max(refitted / fixed, 1.0) if fixed > 0 else 1.0
        wider = t_widening(groups - 1, level)
    reach = asymptotic_radius([units], [wider * error * np.sqrt(units)], level=level)[0]
    return Hausman(POSITION_BASED, AB_TRAFFIC, upper.delta - delta, error, float(reach))
