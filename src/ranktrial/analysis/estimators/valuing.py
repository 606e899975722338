"""Values of a log's impressions: the cross-fitted relevance model of each, and the estimator's formula with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.kinds import ClickValues, DeltaEstimator
from ranktrial.analysis.estimators.metric_values import ResultValues
from ranktrial.analysis.estimators.results import BiasFit, Estimate
from ranktrial.arrays import BoolArray, FloatArray, IntArray, offsets_of, ragged, sum_by_group, weighted_counts
from ranktrial.log._kernels import clicks_by_row, sort_by_number, values_of_rows
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log
from ranktrial.log.units import UnitSums
from ranktrial.position_bias import Examinations, RelevanceFit
from ranktrial.position_bias.jackknife import jackknife_variance, ratio_freedom
from ranktrial.position_bias.relevance import PREDICTIONS, linear_prediction
from ranktrial.rankings import rank_inputs
from ranktrial.rankings.propensity import RequirementError
from ranktrial.rankings.values import (
    RANK_AWARE_PREDICTIONS,
    DesignRows,
    Valued,
    checked_prediction,
    value_rows,
    value_sums,
)


def scaled(theta: FloatArray) -> FloatArray:
    """Scale theta down to at most 1: only its ratios are known, and an estimated one may exceed that of the first rank."""
    return np.asarray(theta / max(theta.max(), 1.0))


def _designs(log: Log) -> DesignRows:
    return DesignRows.of(log.slot_offsets, log.row_offsets, log.rankings, log.weights, log.given_placement)


class _Shown(NamedTuple):
    """Rankings, designs and clicks of some impressions, on which their values depend.

    Attributes:
        inside: Flags of the impressions.
        display: Index of the ranking that each of them showed; -1 for all others.
        impressions: Their numbers, by the ranking that they showed.
        starts: Ranking i was shown by ``impressions[starts[i]:starts[i + 1]]``.
        rows: The distinct rankings shown.
        design: Design of each ranking.
        clicks: Number of clicks on each ranking at each rank.
        slots: Candidates of the designs.
        slot_offsets: Start of each design's candidates.
        place: Index of each ranking's design among these designs.
    """

    inside: BoolArray
    display: IntArray
    impressions: IntArray
    starts: IntArray
    rows: IntArray
    design: IntArray
    clicks: IntArray
    slots: IntArray
    slot_offsets: IntArray
    place: IntArray

    @classmethod
    def of(cls, log: Log, inside: BoolArray) -> _Shown:
        """Describe the impressions whose flag is set."""
        row = np.where(inside, log.row, -1)
        times = np.bincount(row + 1, minlength=len(log.rankings) + 1)[1:]
        rows = np.flatnonzero(times)
        number = np.full(len(log.rankings) + 1, -1)
        number[rows] = np.arange(len(rows))
        starts = offsets_of(times[rows])
        display = number[row]
        impressions = sort_by_number(display, starts)
        design = np.searchsorted(log.row_offsets, rows, side="right") - 1
        first = np.flatnonzero(np.diff(design, prepend=-1))  # rankings of one design stand together
        sizes = np.diff(log.slot_offsets)[design[first]]
        place = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(rows))))
        slots = ragged(log.slot_offsets[design[first]], sizes)
        clicks = clicks_by_row(impressions, starts, log.clicks)
        return cls(inside, display, impressions, starts, rows, design, clicks, slots, offsets_of(sizes), place)


class Values:
    """The formula on a log, or on a chunk of it."""

    def __init__(
        self,
        log: Log,
        theta: FloatArray,
        kind: DeltaEstimator,
        known_queries: bool,
        uncovered: str,
        of: str = "difference",
        own: ResultValues | None = None,
    ) -> None:
        """``own`` are the values of results, by a metric; those of clicks are 1 by default."""
        self.log, self.theta, self.known_queries, self.clip, self.of = log, theta, known_queries, kind.weight_cap, of
        self.own, self.kind, self.rank_aware = own, kind, kind.rank_aware
        self.direct = (log.rank_a, log.rank_b) if kind.at_list_ranks else None
        self.lam, self.unseen = self._lambda(theta)
        if self.direct is not None:  # what could not be seen at its ranks counts as if both left it out
            self.direct = np.where(self.unseen, log.k, log.rank_a), np.where(self.unseen, log.k, log.rank_b)
        if self.unseen.any() and uncovered == "refuse":
            raise RequirementError(_unseen_text(log, self.unseen))
        if known_queries and len(set(np.bincount(log.query).tolist())) > 1:
            raise ValueError("known_queries needs a log in which all queries are equally frequent, as one of a pair")

    def _lambda(self, theta: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Lambda of each slot, 0 for those that could not be seen, and which these are."""
        by_a, by_b = self.log.list_exposures(theta)
        lam = by_a - by_b if self.of == "difference" else self.log.exposure(theta) - (by_a + by_b) / 2
        if self.direct is None:
            unseen = (lam != 0) & ~(self.log.exposure(theta) > 0)
        else:
            ranks = [np.minimum(rank, self.log.k) for rank in self.direct]
            seen = [(rank == self.log.k) | (self.log.placement_at(rank) > 0) for rank in ranks]
            unseen = (ranks[0] != ranks[1]) & ~(seen[0] & seen[1])  # at no rank it need not be seen
        return np.where(unseen, 0.0, lam), unseen

    def worth(
        self,
        group: IntArray,
        predictions: Predictions,
        others: FloatArray,
        left_out: IntArray | None,
        of_click: Predictions | None = None,
    ) -> Worth:
        """Every impression valued with the predictions of its group; and, for each of the other thetas, the sum of x of those
        that are not in the part of the log that it leaves out. ``of_click`` predicts the value of a click."""
        log = self.log
        x, rest_sums = np.zeros(len(log)), np.zeros((len(log.codes[0]), len(others)))
        weights = [ClickWeights.of([])]
        largest, lost = 0.0, 0.0
        for number in np.flatnonzero(np.bincount(group)).tolist():
            shown = _Shown.of(log, group == number)
            slots = np.arange(log.n_slots) if self.known_queries else shown.slots
            prediction = np.zeros(log.n_slots)
            prediction[slots] = predictions.of(number, log, slots)
            if self.rank_aware:
                prediction[slots] = np.clip(prediction[slots], *RANK_AWARE_PREDICTIONS)
            value = None
            if of_click is not None:
                value = np.zeros(log.n_slots)
                value[slots] = of_click.of(number, log, slots)
            first, valued = self._part(shown, prediction, self.theta, self.lam, value)
            base, values = first + valued.affine.base, valued.affine.values
            if value is None:
                values_of_rows(shown.impressions, shown.starts, base, values, log.clicks, x)
                clicked = shown.clicks > 0
                weights.append(ClickWeights.of(values[clicked], shown.clicks[clicked]))
            else:
                impression, worths = self._weights(shown, prediction, values, value)
                added = weighted_counts(impression, worths, len(log))
                x[shown.inside] = base[shown.display[shown.inside]] + added[shown.inside]
                weights.append(ClickWeights.of(worths))
            largest = max(largest, valued.largest)
            lost += float(valued.lost @ np.diff(shown.starts))
            if left_out is not None:
                rest_sums += self._rest(shown, prediction, others, left_out, value)
        return Worth(
            x, ClickWeights.merged(weights), largest, lost, rest_sums, np.flatnonzero(self.unseen), log.codes[0]
        )

    def own_worth(self, others: FloatArray, left_out: IntArray | None) -> Worth:
        """Every impression valued by an estimator that has ``values`` of its own, otherwise as ``worth``."""
        log, (codes, code) = self.log, self.log.codes
        x, found = self._x(self.theta)
        rest_sums = np.zeros((len(codes), len(others)))
        for number, theta in enumerate(others):
            use = np.flatnonzero(left_out != number)
            of_code = np.zeros(len(use), np.int64) if code is None else code[use]
            rest_sums[:, number] = weighted_counts(of_code, self._x(theta)[0][use], len(codes))
        weights = ClickWeights.of(found.weights)
        largest = weights.largest if found.largest is None else found.largest
        return Worth(x, weights, largest, found.lost, rest_sums, np.flatnonzero(self.unseen), log.codes[0])

    def _x(self, theta: FloatArray) -> tuple[FloatArray, ClickValues]:
        found = self.kind.values(self.log, theta, self._lambda(theta)[0])
        return found.base + weighted_counts(self.log.clicked[0], found.weights, len(self.log)), found

    def _rest(
        self,
        shown: _Shown,
        prediction: FloatArray,
        thetas: FloatArray,
        left_out: IntArray,
        value: FloatArray | None,
    ) -> FloatArray:
        """Sum of x by code of segment for each theta, over the impressions that this theta does not leave out."""
        log = self.log
        sums = value_sums(
            shown.rows, shown.design, shown.starts, shown.impressions, log.clicks, left_out, _designs(log),
            (log.rank_a, log.rank_b), prediction, thetas, rank_aware=self.rank_aware, gain=self.of == "gain",
            first=not self.known_queries, clip=self.clip, worth=value, code=log.codes[1], codes=len(log.codes[0]),
        )  # fmt: skip
        if value is not None:
            sums += self._rest_of_values(shown, thetas, left_out, value)
            prediction = prediction * value
        if self.known_queries:
            code, some = log.codes[1], shown.impressions
            cell = left_out[some] if code is None else code[some] * len(thetas) + left_out[some]
            of_rest = np.bincount(cell, minlength=sums.size).reshape(sums.shape)
            rest = of_rest.sum(1, keepdims=True) - of_rest
            sums += rest * [
                sum_by_group(self._lambda(theta)[0] * prediction, log.slot_offsets).mean() for theta in thetas
            ]
        return sums

    def _rest_of_values(self, shown: _Shown, thetas: FloatArray, left_out: IntArray, value: FloatArray) -> FloatArray:
        """Additions to the sums of x by values of results that differ from what their clicks were predicted to bring."""
        log, n = self.log, len(thetas)
        impression, _, slot, away = self._away(shown, value)
        codes, code = log.codes
        of_code = 0 if code is None else code[impression] * log.n_slots
        pairs, place = np.unique(of_code + slot, return_inverse=True)
        by_group = weighted_counts(place * n + left_out[impression], away, len(pairs) * n).reshape(-1, n)
        at_code, at_slot = np.divmod(pairs, log.n_slots)
        slots, at = np.unique(at_slot, return_inverse=True)
        columns = np.pad(thetas, ((0, 0), (0, 1))).T
        rho = log.placement_of(slots) @ thetas.T
        by_a, by_b = (columns[np.minimum(rank[slots], log.k)] for rank in (log.rank_a, log.rank_b))
        lam = by_a - by_b if self.of == "difference" else rho - (by_a + by_b) / 2
        weights = np.divide(lam, rho, out=np.zeros_like(lam), where=rho > 0)
        added = weights[at] * (by_group.sum(1, keepdims=True) - by_group)
        sums, firsts = np.zeros((len(codes), n)), _firsts(at_code)
        if len(firsts):
            sums[at_code[firsts]] = np.add.reduceat(added, firsts)
        return sums

    def _away(self, shown: _Shown, value: FloatArray) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Impression, rank and slot of the results of some impressions that were clicked, and then of others with a value; and
        by how much the value of each differs from what its click, if it has one, was predicted to bring."""
        log, own = self.log, self.own
        assert own is not None
        use, more = shown.inside[log.clicked[0]], shown.inside[own.impression]
        impression, rank, slot = (of[use] for of in log.clicked)
        others, other_rank = own.impression[more], own.rank[more]
        return (
            np.concatenate([impression, others]),
            np.concatenate([rank, other_rank]),
            np.concatenate([slot, log.rankings[log.row[others], other_rank]]),
            np.concatenate([own.of_clicks[use] - value[slot], own.value[more]]),
        )

    def _weights(
        self, shown: _Shown, prediction: FloatArray, values: FloatArray, value: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Impression of each result of some impressions that was clicked or has a value, and what both add to x."""
        if self.direct is not None:
            impression, rank, _, own = self._away(shown, np.zeros_like(value))
            return impression, values[shown.display[impression], rank] * own
        impression, rank, _, away = self._away(shown, value)
        row = shown.display[impression]
        plain = self._rows(shown, self.lam, np.zeros_like(prediction), self.theta, rank_aware=False).affine.values
        return impression, self.log.clicks[impression, rank] * values[row, rank] + plain[row, rank] * away

    def _part(
        self,
        shown: _Shown,
        prediction: FloatArray,
        theta: FloatArray,
        lam: FloatArray,
        value: FloatArray | None = None,
    ) -> tuple[FloatArray, Valued]:
        """The first sum of the formula for each ranking shown, and the second."""
        foreseen, lam_v = prediction, lam
        if value is not None:
            foreseen, lam_v = (prediction, lam * value) if self.direct is None else (prediction * value, lam * value)
        valued = self._rows(shown, lam_v, foreseen, theta, rank_aware=self.rank_aware)
        if self.known_queries:
            return np.full(len(shown.rows), sum_by_group(lam_v * prediction, self.log.slot_offsets).mean()), valued
        return sum_by_group(lam_v[shown.slots] * prediction[shown.slots], shown.slot_offsets)[shown.place], valued

    def _rows(
        self, shown: _Shown, lam: FloatArray, prediction: FloatArray, theta: FloatArray, *, rank_aware: bool
    ) -> Valued:
        return value_rows(
            shown.rows, shown.design, _designs(self.log), lam, prediction, theta,
            rank_aware=rank_aware, clip=self.clip, direct=self.direct,
        )  # fmt: skip

    def normalising(self) -> BySlot:
        """The prediction under which weighted surprises cancel over the log, one constant for each sign of lambda."""
        log, nothing = self.log, np.zeros(self.log.n_slots)
        shown = _Shown.of(log, np.ones(len(log), bool))
        times, weights = np.diff(shown.starts), self._part(shown, nothing, self.theta, self.lam)[1].affine.values
        prediction = nothing.copy()
        for sign in (1, -1):
            examined = float(times @ (np.maximum(sign * weights, 0) @ self.theta))
            clicked = float((np.maximum(sign * weights, 0) * shown.clicks).sum())
            prediction[sign * self.lam > 0] = clicked / examined if examined > 0 else 0.0
        return BySlot(prediction)


class Worth(NamedTuple):
    """Values of the impressions of a chunk.

    Attributes:
        x: Value of each impression.
        weights: Weights of the clicks.
        largest: Largest absolute weight that a click can have.
        lost: Bound on the change of the sum of x by clipping.
        rest_sums: Sum of x at each of the other thetas, over the impressions that it does not leave out; a row for each of
            ``codes``.
        unseen: Candidates on which the rankers differ and that could never be shown.
        codes: Codes of segments that the chunk has.
    """

    x: FloatArray
    weights: ClickWeights
    largest: float
    lost: float
    rest_sums: FloatArray
    unseen: IntArray
    codes: IntArray


Worths = list[tuple[IntArray | slice, Worth]]  # of a chunk, by the values of an attribute: their impressions in the log


def worth_in_all(
    log: Log, chunks: Sequence[Worths], theta: FloatArray, independent: str, fit: BiasFit | None
) -> Estimate:
    """The estimate from what each chunk of a log is worth."""
    x, found = np.empty(len(log)), [one for chunk in chunks for one in chunk]
    groups = 0 if fit is None else len(fit.without)
    rests = {name: np.zeros((len(log.attributes.values(name)), groups)) for name in log.attributes.names}
    for rows, one in found:
        x[rows] = one.x
        for name, sums in rests.items():
            np.add.at(sums, log.attributes.levels(name, one.codes), one.rest_sums)
    more: dict[str, Any] = {}
    if fit is not None:
        rest_sums = np.sum([one.rest_sums.sum(0) for _, one in found], axis=0)
        more = {"bias": fit.bias, "rests": rests, **jackknifed(by_group(log, x, groups), rest_sums)}
    return Estimate.summed(
        sums_by(independent, log, x),
        ClickWeights.merged([one.weights for _, one in found]),
        theta=theta,
        largest_weight=max(one.largest for _, one in found),
        uncovered=np.unique(np.concatenate([one.unseen for _, one in found])),
        bias_bound=sum(one.lost for _, one in found) / max(len(log), 1),
        x=x,
        **more,
    )


def slots_in(log: Log, rows: IntArray | slice, part: Log, slots: IntArray) -> IntArray:
    """Numbers in the whole log of slots of a chunk."""
    if part.n_slots == log.n_slots:
        return slots
    design, known = part.design_of_slot[slots], np.zeros(part.n_designs, np.int64)
    known[part.design] = log.design[rows]
    return np.asarray(log.slot_offsets[known[design]] + slots - part.slot_offsets[design])


def sums_by(independent: str, log: Log, x: FloatArray) -> UnitSums:
    """Sums of x over what is independent."""
    if independent == "cohorts":
        return log.cohorts.sums(x)
    return UnitSums.of(x, log.units if independent == "units" else None)


def jackknifed(groups: FloatArray, rest_sums: FloatArray) -> dict[str, Any]:
    """Errors of an estimate, given number and sum of x of each group of units (``by_group``), and the sums of x without each
    group, with what is fitted to the rest."""
    sizes, own = groups
    left = sizes.sum() - sizes
    without, theta_known = rest_sums / left, (own.sum() - own) / left
    return {
        "replicates": without,
        "standard_error": jackknife_error(without),
        "clicks_alone": jackknife_error(theta_known),
        "freedom": ratio_freedom(without, theta_known),
    }


def by_group(log: Log, x: FloatArray, groups: int, at: IntArray | slice = slice(None)) -> FloatArray:
    """Number and sum of the values x of each group of units; ``at`` as ``Estimate.picked``."""
    group = log.group(groups)[at]
    return np.stack([np.bincount(group, of, groups) for of in (None, x)])


def jackknife_error(values: FloatArray) -> float:
    """Standard error of an estimate from those without each group."""
    return float(np.sqrt(jackknife_variance(values[:, None])[0, 0]))


def _unseen_text(log: Log, unseen: BoolArray) -> str:
    slot = int(np.argmax(unseen))
    query = log.queries[log.query[log.design_of_slot[slot]]]
    more = f" (and {int(unseen.sum()) - 1} more)" if unseen.sum() > 1 else ""
    return (
        f"query {query}: document {log.documents[log.document[slot]]} is at rank {_rank(log.rank_a[slot], log.k)} in A's "
        f"list and {_rank(log.rank_b[slot], log.k)} in B's, but could never be seen{more}; a logging policy must be able to "
        "show every document on which the rankers differ"
    )


def _rank(rank: int, k: int) -> str:
    return str(rank + 1) if rank < k else "none"


# --- predictions --------------------------------------------------------------------------------------------------------------


class Predictions(Protocol):
    """Relevance models, one for each group of impressions."""

    def __hash__(self) -> int: ...

    def of(self, group: int, log: Log, slots: IntArray) -> FloatArray:
        """Predicted relevance of these slots, by the model of a group of impressions; the log may be a part of another."""
        ...


@dataclass(frozen=True, eq=False)
class BySlot:
    """Given relevance of every slot of a log."""

    prediction: FloatArray

    def of(self, group: int, log: Log, slots: IntArray) -> FloatArray:
        return self.prediction[slots]


@dataclass(frozen=True, eq=False)
class ByDocument:
    """Given relevance of every document of a log."""

    prediction: FloatArray

    def of(self, group: int, log: Log, slots: IntArray) -> FloatArray:
        return self.prediction[log.document[slots]]


@dataclass(frozen=True, eq=False)
class Constants:
    """Relevance that is the same for all slots, one number for each group."""

    prediction: Sequence[float]

    def of(self, group: int, log: Log, slots: IntArray) -> FloatArray:
        return np.full(len(slots), self.prediction[group])


class Fit(NamedTuple):
    """``RelevanceFit`` by numbers of documents and queries, also for those that it has not met.

    Attributes:
        constant: Intercept of the regression on the inputs.
        slopes: Slope of each input.
        effects: Effect of each document; nan for those that were not met, as are all beyond the end.
        shared: Effect, by query, on documents that were not met; 0 for queries beyond the end.
    """

    constant: float
    slopes: FloatArray
    effects: FloatArray
    shared: FloatArray


@dataclass(frozen=True, eq=False)
class FittedRelevance:
    """Relevance fitted to clicks: a regression on the ranks in both lists, query and document effects."""

    fits: Sequence[Fit]

    def of(self, group: int, log: Log, slots: IntArray) -> FloatArray:
        fit, document = self.fits[group], log.document[slots]
        width = log.rank_width
        ranks = log.rank_a[slots] * width + log.rank_b[slots]
        table, place = _rank_inputs(ranks, width)
        prediction = linear_prediction(fit.constant, fit.slopes, table)[place[ranks]]
        effects = _looked_up(fit.effects, document, np.nan)
        new = np.flatnonzero(np.isnan(effects))
        effects[new] = _looked_up(fit.shared, log.document_query[document[new]], 0.0)
        return np.asarray(np.clip(prediction + effects, *PREDICTIONS))


def _rank_inputs(ranks: IntArray, width: int) -> tuple[FloatArray, IntArray]:
    """``rank_inputs`` of the pairs of ranks that occur, rank in A's list * width + rank in B's, and the row of each pair."""
    pairs = np.flatnonzero(np.bincount(ranks, minlength=width * width))
    row = np.zeros(width * width, np.int64)
    row[pairs] = np.arange(len(pairs))
    return rank_inputs(*np.divmod(pairs, width)), row


def _looked_up(table: FloatArray, number: IntArray, otherwise: float) -> FloatArray:
    """Entries of a table by index; ``otherwise`` for indices beyond its end."""
    found = np.full(len(number), otherwise)
    inside = number < len(table)
    found[inside] = table[number[inside]]
    return found


def given_prediction(log: Log, prediction: ArrayLike | float | None, kind: DeltaEstimator) -> ByDocument:
    given = None if prediction is None else np.asarray(prediction, np.float64)
    single = given is not None and given.ndim == 0
    known = float(given) if single else given  # type: ignore[arg-type]
    per_document = checked_prediction(known, len(log.documents), rank_aware=kind.rank_aware)
    return ByDocument(per_document)


def predictions(
    log: Log,
    theta: FloatArray,
    counted: IntArray,
    cross_fit: str,
    kind: DeltaEstimator,
) -> Predictions:
    """Predictions for each group, from the impressions that may be used for it; ``counted`` is where each one counts."""
    width, n_groups = log.rank_width, int(counted.max(initial=-1)) + 1
    seen = _Seen.of(log, theta, counted)
    usable = [seen.group < g if cross_fit == "past" else seen.group != g for g in range(n_groups)]
    if kind.one_relevance:
        return Constants([Examinations(*(part[use] for part in seen.sums)).mean for use in usable])
    table, number = _rank_inputs(seen.key % width**2, width)
    fits = []
    for use in usable:
        key, sums = seen.members(np.flatnonzero(use))
        document, ranks = np.divmod(key, width**2)
        firsts, query = _firsts(document), log.document_query[document]
        by_query = np.argsort(query, kind="stable")  # documents of a query need not stand side by side
        if len(query) and (np.diff(query) < 0).any():
            key, sums = key[by_query], sums.of(by_query)
            document, ranks = np.divmod(key, width**2)
            firsts, query = _firsts(document), query[by_query]
        found = RelevanceFit.of(
            sums,
            np.append(_firsts(query), len(key)),
            table,
            place=number[ranks],
            document=np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(key)))),
            document_offsets=np.append(_firsts(query[firsts]), len(firsts)),
        )
        effects = _by_number(document[firsts], found.effects, np.nan)
        fits.append(Fit(found.constant, found.slopes, effects, _by_number(query[_firsts(query)], found.shared, 0.0)))
    return FittedRelevance(fits)


class _Seen(NamedTuple):
    """Clicks and examinations of documents by their ranks in both lists, for each group of impressions.

    Attributes:
        key: Number of the document, then its rank in A's list and in B's; sorted.
        group: Group of the impressions.
        sums: Clicks, sum of theta and sum of theta squared over the shows (``Examinations``).
    """

    key: IntArray
    group: IntArray
    sums: tuple[FloatArray, FloatArray, FloatArray]

    @classmethod
    def of(cls, log: Log, theta: FloatArray, counted: IntArray) -> _Seen:
        width = log.rank_width

        def contribution(rows: slice, part: Log, before: object) -> list[tuple[NDArray[Any], ...]]:
            group = counted[rows]
            found: list[tuple[NDArray[Any], ...]] = []
            of_slot = (part.document * width + part.rank_a) * width + part.rank_b
            key, member = np.unique(of_slot, return_inverse=True)
            for number in np.unique(group).tolist():
                sums = examinations(part, group == number, theta, member, len(key))
                some = np.flatnonzero(sums.examined > 0)
                of_some, of_group = sums.of(some), np.full(len(some), number, np.int16)
                found.append((key[some], of_group, of_some.clicks, of_some.examined, of_some.squared))
            return found

        nothing = np.empty(0)
        chunks = [[(nothing.astype(np.int64), nothing.astype(np.int16), nothing, nothing, nothing)]]
        chunks += fold(log, Statistic("examinations", None, contribution, list))[0]
        key, group, *sums_of = (np.concatenate(column) for column in zip(*(one for chunk in chunks for one in chunk)))
        by_key = np.argsort(key, kind="stable")
        clicks, examined, squared = (part[by_key] for part in sums_of)
        return cls(key[by_key], group[by_key], (clicks, examined, squared))

    def members(self, some: IntArray) -> tuple[IntArray, Examinations]:
        """Distinct keys of some rows, and what these add up to."""
        key = self.key[some]
        firsts = _firsts(key)
        if not len(firsts):
            return key, Examinations(*(np.empty(0) for _ in range(3)))
        return key[firsts], Examinations(*(np.add.reduceat(part[some], firsts) for part in self.sums))


def _by_number(number: IntArray, values: FloatArray, otherwise: float) -> FloatArray:
    """A table of values by number, as long as need be."""
    table = np.full(int(number.max(initial=-1)) + 1 if values.any() else 0, otherwise)
    if len(table):
        table[number] = values
    return table


def _firsts(sorted_values: IntArray) -> IntArray:
    """Start of each run of equal values."""
    return np.flatnonzero(np.append(True, sorted_values[1:] != sorted_values[:-1])[: len(sorted_values)])


def examinations(log: Log, inside: BoolArray, theta: FloatArray, member: IntArray, size: int) -> Examinations:
    """Clicks and examinations in the given impressions, added up over the members that slots belong to."""
    rows, times = np.unique(log.row[inside], return_counts=True)
    slots = log.rankings[rows]
    filled = slots >= 0
    members = member[slots[filled]]
    per_rank = (times[:, None] * theta)[filled], (times[:, None] * theta**2)[filled]
    impression, _, slot = log.clicked
    hits = member[slot[inside[impression]]]
    clicked = np.bincount(hits, minlength=size).astype(np.float64)
    return Examinations(clicked, *(weighted_counts(members, part, size) for part in per_rank))
