"""Values of a log's impressions: the estimator's formula on each, with the relevance that it may know, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ranktrial.analysis.estimators.by_segment import by_value
from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.covariates import adjustment
from ranktrial.analysis.estimators.kinds import ByClickModel, ByFormula, ClickValues, DeltaEstimator, Direct
from ranktrial.analysis.estimators.metric_values import MetricValues, ResultValues
from ranktrial.analysis.estimators.relevance import Predictions
from ranktrial.analysis.estimators.results import BiasFit, Estimate, by_group, jackknifed, sums_by
from ranktrial.arrays import BoolArray, FloatArray, IntArray, offsets_of, ragged, sum_by_group, weighted_counts
from ranktrial.log._kernels import clicks_by_row, sort_by_number, values_of_rows
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log
from ranktrial.rankings.propensity import RequirementError
from ranktrial.rankings.values import RANK_AWARE_PREDICTIONS, DesignRows, Valued, value_rows, value_sums


def scaled(theta: FloatArray) -> FloatArray:
    """Scale theta down to at most 1: only its ratios are known, and an estimated one may exceed that of the first rank."""
    return np.asarray(theta / np.maximum(theta.max(-1, keepdims=True), 1.0))


def click_worth(log: Log, theta: FloatArray) -> FloatArray:
    """The plain weight of a click on each slot, lambda / rho, 0 where it cannot be seen; and 0 at the end, for no slot."""
    (by_a, by_b), rho = log.list_exposures(theta), log.exposure(theta)
    return np.append(np.divide(by_a - by_b, rho, out=np.zeros_like(rho), where=rho > 0), 0.0)


class Worth(NamedTuple):
    """Values of some impressions.

    Attributes:
        rows: The impressions, by their numbers in the log.
        x: Value of each.
        weights: Weights of the clicks.
        largest: Largest absolute weight that a click can have.
        lost: Bound on the change of the sum of x by clipping.
        unseen: Candidates on which the rankers differ and that could never be shown, by their numbers in the log.
        codes: Codes of segments that these impressions have.
        rests: Sum of x at the theta without each group of units, over the impressions of all others; a row for each code.
    """

    rows: IntArray | slice
    x: FloatArray
    weights: ClickWeights
    largest: float
    lost: float
    unseen: IntArray
    codes: IntArray
    rests: FloatArray


@dataclass(frozen=True, eq=False)
class Valuer:
    """An estimator with all that it needs to value a log.

    Attributes:
        kind: The estimator.
        theta: Position bias.
        fit: Fit behind theta, if its error is part of the estimate's: it may be another theta for each segment.
        predicted: Predictions of relevance.
        known_queries: True if all queries are known to be equally frequent.
        uncovered: "refuse" or "leave out", as of ``estimate``.
        gain: True if x is the gain in clicks of what was shown over an A/B test, instead of the difference.
        values: Values by a metric; None for clicks.
        of_click: Predictions of the value of a click by the metric.
    """

    kind: DeltaEstimator
    theta: FloatArray
    fit: BiasFit | None
    predicted: Predictions
    known_queries: bool = False
    uncovered: str = "refuse"
    gain: bool = False
    values: MetricValues | None = None
    of_click: Predictions | None = None

    def estimate(self, log: Log, group: IntArray, independent: str) -> Estimate:
        """The estimate of a log, given the group of each impression, by which predictions it may use."""
        found = self.worth(log, group)
        x, rests, groups = found.x, found.rests, found.rests.shape[1]
        kind, plain = self.kind, not self.known_queries and not self.gain
        clipped = isinstance(kind, ByClickModel) and kind.clip is not None
        if log.covariate_names and isinstance(kind, ByFormula) and kind.predicts and plain and not clipped:
            moved = adjustment(log, x, self._unclicked(log, group))
            x = x + moved
            if groups:
                rests = rests + _without_groups(log, moved, groups)
        more: dict[str, Any] = {}
        if self.fit is not None:
            by_name = {name: np.zeros((len(log.attributes.values(name)), groups)) for name in log.attributes.names}
            for name, sums in by_name.items():
                np.add.at(sums, log.attributes.levels(name, found.codes), rests)
            own = by_group(log, x, groups)
            more = {"bias": self.fit.bias, "rests": by_name, **jackknifed(own, rests.sum(0))}
        return Estimate.of(
            sums_by(independent, log, x), found.weights, x=x, theta=self.theta, largest_weight=found.largest,
            uncovered=found.unseen, bias_bound=found.lost / max(len(log), 1), **more,
        )  # fmt: skip

    def worth(self, log: Log, group: IntArray) -> Worth:
        """Value every impression of a log, with the predictions of its group."""

        def contribution(rows: slice, part: Log, before: object) -> list[Worth]:
            results = None if self.values is None or self.values.of_results is None else self.values.of_results
            results = None if results is None else results.chunk(rows, log)
            differs, found = None if self.fit is None else self.fit.by_segment, []
            for value, at, own in by_value(part, "" if differs is None else differs.attribute):
                where = rows if isinstance(at, slice) else rows.start + at
                theta, without = self.theta, np.empty((0, part.k)) if self.fit is None else self.fit.without
                if differs is not None:
                    theta, without = scaled(differs.thetas[value]), differs.without[value]
                some = None if results is None else results.take(at, part)
                one = _Part(self, own, theta, scaled(without), some).worth(group[where])
                if len(one.unseen):
                    one = one._replace(unseen=_slots_in(log, where, own, one.unseen))
                found.append(one._replace(rows=where))
            return found

        asked = self.known_queries, self.uncovered, self.gain
        if self.kind.whole_log or self.known_queries:
            chunks = [contribution(slice(0, len(log)), log, None)]
        else:
            beliefs = self.kind, self.theta.tobytes(), self.fit, self.predicted, asked
            kept = (
                beliefs if self.values is None else None
            )  # which impressions count for a metric changes with the clock
            chunks = fold(log, Statistic(f"{self.kind}, {asked}", kept, contribution, list))[0]
        parts = [part for chunk in chunks for part in chunk]
        x, codes = np.empty(len(log)), log.codes[0]
        rests = np.zeros((len(codes), parts[0].rests.shape[1]))
        for part in parts:
            x[part.rows] = part.x
            rests[np.searchsorted(codes, part.codes)] += part.rests
        weights = ClickWeights.merged(part.weights for part in parts)
        largest, lost = max(part.largest for part in parts), sum(part.lost for part in parts)
        unseen = np.unique(np.concatenate([part.unseen for part in parts]))
        return Worth(slice(None), x, weights, largest, lost, unseen, codes, rests)

    def _unclicked(self, log: Log, group: IntArray) -> FloatArray:
        """Value of each impression had nothing been clicked."""
        none, values = np.empty(0, np.int64), self.values
        bare = replace(log, clicks=np.zeros_like(log.clicks))
        if values is not None:
            nothing = ResultValues(np.empty(0), none, none, np.empty(0))
            values = replace(values, log=bare, each=np.zeros(len(bare)), of_results=nothing)
        return replace(self, values=values).worth(bare, group).x


def _without_groups(log: Log, x: FloatArray, groups: int) -> FloatArray:
    """Sums of x without each group of units, by code of segments."""
    codes, code = log.codes
    cells = log.group(groups) if code is None else code * groups + log.group(groups)
    own = weighted_counts(cells, x, len(codes) * groups).reshape(-1, groups)
    return np.asarray(own.sum(1, keepdims=True) - own)


def _slots_in(log: Log, rows: IntArray | slice, part: Log, slots: IntArray) -> IntArray:
    """Numbers in the whole log of slots of a chunk."""
    if part.n_slots == log.n_slots:
        return slots
    design, known = part.design_of_slot[slots], np.zeros(part.n_designs, np.int64)
    known[part.design] = log.design[rows]
    return np.asarray(log.slot_offsets[known[design]] + slots - part.slot_offsets[design])


# --- one chunk --------------------------------------------------------------------------------------------------------


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
    """

    inside: BoolArray
    display: IntArray
    impressions: IntArray
    starts: IntArray
    rows: IntArray
    design: IntArray
    clicks: IntArray

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
        return cls(inside, display, impressions, starts, rows, design, clicks_by_row(impressions, starts, log.clicks))


class _Part:
    """The impressions of a chunk that have one theta, and the formula on them."""

    def __init__(
        self, valuer: Valuer, log: Log, theta: FloatArray, without: FloatArray, results: ResultValues | None
    ) -> None:
        """``without`` is theta without each group of units; ``results`` are values by a metric, those of clicks are 1."""
        self.valuer, self.kind, self.log = valuer, valuer.kind, log
        self.clip = self.kind.clip if isinstance(self.kind, ByClickModel) else None
        self.theta, self.without, self.results = theta, without, results
        self.rank_aware = isinstance(self.kind, ByFormula) and self.kind.rank_aware
        self.left_out = log.group(len(without)) if len(without) else np.empty(0, np.int64)
        self.designs = DesignRows.of(log.slot_offsets, log.row_offsets, log.rankings, log.weights, log.given_placement)
        self.lam, self.unseen = self.lambdas(theta)
        self.direct = None
        if isinstance(self.kind, Direct):  # what could not be seen at its ranks counts as if both left it out
            self.direct = np.where(self.unseen, log.k, log.rank_a), np.where(self.unseen, log.k, log.rank_b)
        if valuer.uncovered == "refuse" and self.unseen.any():
            raise RequirementError(_unseen_text(log, self.unseen))
        if valuer.known_queries and len(set(np.bincount(log.query).tolist())) > 1:
            raise ValueError("known_queries needs a log in which all queries are equally frequent, as one of a pair")

    def lambdas(self, theta: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Lambda of each slot, 0 for those that could not be seen, and which these are."""
        log = self.log
        by_a, by_b = log.list_exposures(theta)
        lam = log.exposure(theta) - (by_a + by_b) / 2 if self.valuer.gain else by_a - by_b
        if isinstance(self.kind, Direct):
            ranks = np.minimum(log.rank_a, log.k), np.minimum(log.rank_b, log.k)
            seen_a, seen_b = ((rank == log.k) | (log.placement_at(rank) > 0) for rank in ranks)
            unseen = (ranks[0] != ranks[1]) & ~(seen_a & seen_b)  # at no rank it need not be seen
        else:
            unseen = (lam != 0) & ~(log.exposure(theta) > 0)
        return np.where(unseen, 0.0, lam), unseen

    def worth(self, group: IntArray) -> Worth:
        """Every impression valued with the predictions of its group; at the other thetas with the same."""
        if not isinstance(self.kind, ByFormula):
            return self._own_worth()
        log, known_queries = self.log, self.valuer.known_queries
        x, rests = np.zeros(len(log)), np.zeros((len(log.codes[0]), len(self.without)))
        weights, largest, lost = [ClickWeights.of([])], 0.0, 0.0
        for number in np.flatnonzero(np.bincount(group)).tolist():
            shown = _Shown.of(log, group == number)
            new = np.diff(shown.design, prepend=-1) > 0  # rankings of one design stand together
            designs, place = shown.design[new], np.cumsum(new) - 1
            sizes = np.diff(log.slot_offsets)[designs]
            slots = np.arange(log.n_slots) if known_queries else ragged(log.slot_offsets[designs], sizes)
            prediction = np.zeros(log.n_slots)
            prediction[slots] = self.valuer.predicted(number, log, slots)
            if self.rank_aware:
                prediction[slots] = np.clip(prediction[slots], *RANK_AWARE_PREDICTIONS)
            lam, value, foreseen = self.lam, None, prediction
            if self.valuer.of_click is not None:
                value = np.zeros(log.n_slots)
                value[slots] = self.valuer.of_click(number, log, slots)
                lam, foreseen = lam * value, prediction if self.direct is None else prediction * value
            if known_queries:
                first = np.full(len(shown.rows), sum_by_group(lam * prediction, log.slot_offsets).mean())
            else:
                first = sum_by_group(lam[slots] * prediction[slots], offsets_of(sizes))[place]
            valued = self.rows(shown, lam, foreseen, rank_aware=self.rank_aware)
            base, values = first + valued.affine.base, valued.affine.values
            if value is None:
                values_of_rows(shown.impressions, shown.starts, base, values, log.clicks, x)
                clicked = shown.clicks > 0
                weights.append(ClickWeights.of(values[clicked], shown.clicks[clicked]))
            else:
                impression, worths = self._weights(shown, values, value)
                added = weighted_counts(impression, worths, len(log))
                x[shown.inside] = base[shown.display[shown.inside]] + added[shown.inside]
                weights.append(ClickWeights.of(worths))
            largest = max(largest, valued.largest)
            lost += float(valued.lost @ np.diff(shown.starts))
            if len(self.without):
                rests += self._rests(shown, prediction, value)
        unseen = np.flatnonzero(self.unseen)
        return Worth(slice(None), x, ClickWeights.merged(weights), largest, lost, unseen, log.codes[0], rests)

    def rows(self, shown: _Shown, lam: FloatArray, prediction: FloatArray, *, rank_aware: bool) -> Valued:
        """The second sum of the formula on the rankings shown."""
        return value_rows(
            shown.rows, shown.design, self.designs, lam, prediction, self.theta,
            rank_aware=rank_aware, clip=self.clip, direct=self.direct,
        )  # fmt: skip

    def _own_worth(self) -> Worth:
        """Every impression valued by an estimator that has ``values`` of its own."""
        log, (codes, code) = self.log, self.log.codes

        def valued(theta: FloatArray, lam: FloatArray) -> tuple[FloatArray, ClickValues]:
            found = self.kind.values(log, theta, lam)
            return found.base + weighted_counts(log.clicked[0], found.weights, len(log)), found

        x, found = valued(self.theta, self.lam)
        rests = np.zeros((len(codes), len(self.without)))
        for number, theta in enumerate(self.without):
            use = np.flatnonzero(self.left_out != number)
            of_code = np.zeros(len(use), np.int64) if code is None else code[use]
            rests[:, number] = weighted_counts(of_code, valued(theta, self.lambdas(theta)[0])[0][use], len(codes))
        weights = ClickWeights.of(found.weights)
        largest = weights.largest if found.largest is None else found.largest
        return Worth(slice(None), x, weights, largest, found.lost, np.flatnonzero(self.unseen), codes, rests)

    def _rests(self, shown: _Shown, prediction: FloatArray, value: FloatArray | None) -> FloatArray:
        """Sum of x by code of segments at each theta, over the impressions that this theta does not leave out."""
        log, thetas, left_out = self.log, self.without, self.left_out
        codes, code = log.codes
        sums = value_sums(
            shown.rows, shown.design, shown.starts, shown.impressions, log.clicks, left_out, self.designs,
            (log.rank_a, log.rank_b), prediction, thetas, rank_aware=self.rank_aware, gain=self.valuer.gain,
            first=not self.valuer.known_queries, clip=self.clip, worth=value, code=code, codes=len(codes),
        )  # fmt: skip
        if value is not None:
            sums += self._rests_of_values(shown, value)
            prediction = prediction * value
        if self.valuer.known_queries:
            some = shown.impressions
            cell = left_out[some] if code is None else code[some] * len(thetas) + left_out[some]
            of_rest = np.bincount(cell, minlength=sums.size).reshape(sums.shape)
            rest = of_rest.sum(1, keepdims=True) - of_rest
            sums += rest * [
                sum_by_group(self.lambdas(theta)[0] * prediction, log.slot_offsets).mean() for theta in thetas
            ]
        return sums

    # --- values by a metric -------------------------------------------------------------------------------------------

    def _weights(self, shown: _Shown, values: FloatArray, value: FloatArray) -> tuple[IntArray, FloatArray]:
        """Impression of each result of some impressions that was clicked or has a value, and what both add to x."""
        impression, rank, _, away = self._away(shown, np.zeros_like(value) if self.direct is not None else value)
        row = shown.display[impression]
        if self.direct is not None:
            return impression, values[row, rank] * away
        plain = self.rows(shown, self.lam, np.zeros_like(value), rank_aware=False).affine.values
        return impression, self.log.clicks[impression, rank] * values[row, rank] + plain[row, rank] * away

    def _rests_of_values(self, shown: _Shown, value: FloatArray) -> FloatArray:
        """Additions to the sums of x by values of results that differ from what their clicks were predicted to bring."""
        log, thetas, n = self.log, self.without, len(self.without)
        impression, _, slot, away = self._away(shown, value)
        codes, code = log.codes
        of_code = 0 if code is None else code[impression] * log.n_slots
        pairs, place = np.unique(of_code + slot, return_inverse=True)
        by_group = weighted_counts(place * n + self.left_out[impression], away, len(pairs) * n).reshape(-1, n)
        at_code, at_slot = np.divmod(pairs, log.n_slots)
        slots, at = np.unique(at_slot, return_inverse=True)
        columns = np.pad(thetas, ((0, 0), (0, 1))).T
        rho = log.placement_of(slots) @ thetas.T
        by_a, by_b = (columns[np.minimum(rank[slots], log.k)] for rank in (log.rank_a, log.rank_b))
        lam = rho - (by_a + by_b) / 2 if self.valuer.gain else by_a - by_b
        weights = np.divide(lam, rho, out=np.zeros_like(lam), where=rho > 0)
        sums = np.zeros((len(codes), n))
        np.add.at(sums, at_code, weights[at] * (by_group.sum(1, keepdims=True) - by_group))
        return sums

    def _away(self, shown: _Shown, value: FloatArray) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Impression, rank and slot of the results of some impressions that were clicked, and then of others with a value; and
        by how much the value of each differs from what its click, if it has one, was predicted to bring."""
        log, own = self.log, self.results
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


def _unseen_text(log: Log, unseen: BoolArray) -> str:
    slot = int(np.argmax(unseen))
    query = log.queries[log.query[log.design_of_slot[slot]]]
    in_a, in_b = (str(rank[slot] + 1) if rank[slot] < log.k else "none" for rank in (log.rank_a, log.rank_b))
    more = f" (and {int(unseen.sum()) - 1} more)" if unseen.sum() > 1 else ""
    return (
        f"query {query}: document {log.documents[log.document[slot]]} is at rank {in_a} in A's list and {in_b} in B's, but "
        f"could never be seen{more}; a logging policy must be able to show every document on which the rankers differ"
    )


def normalising(valuer: Valuer, log: Log) -> Predictions:
    """The prediction under which weighted surprises cancel over a log, one constant for each sign of lambda."""
    part, nothing = _Part(valuer, log, valuer.theta, np.empty((0, log.k)), None), np.zeros(log.n_slots)
    shown = _Shown.of(log, np.ones(len(log), bool))
    times, weights = np.diff(shown.starts), part.rows(shown, part.lam, nothing, rank_aware=False).affine.values
    prediction = nothing.copy()
    for sign in (1, -1):
        examined = float(times @ (np.maximum(sign * weights, 0) @ valuer.theta))
        clicked = float((np.maximum(sign * weights, 0) * shown.clicks).sum())
        prediction[sign * part.lam > 0] = clicked / examined if examined > 0 else 0.0
    return lambda group, part, slots: prediction[slots]
