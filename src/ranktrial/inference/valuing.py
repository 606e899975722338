"""Values of a log's impressions: guesses of relevance that may be used for each, and the formula with them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import BoolArray, FloatArray, IntArray, offsets_of, ragged, sum_by_group, weighted_counts
from ranktrial.inference.cross_fitting import training_sums
from ranktrial.inference.log import Log
from ranktrial.inference.results import BiasFit, Estimate
from ranktrial.position_bias import Examinations, shrunken_guess
from ranktrial.position_bias.jackknife import jackknife_variance
from ranktrial.rankings import rank_inputs
from ranktrial.rankings.propensity import RequirementError
from ranktrial.rankings.values import Valued, checked_guess, value_rows, value_sums


def scaled(theta: FloatArray) -> FloatArray:
    """Only ratios of theta are known, and an estimated one may exceed that of the first rank."""
    return np.asarray(theta / max(theta.max(), 1.0))


_Fitted = tuple[IntArray, FloatArray]


class _Shown(NamedTuple):
    """What some impressions showed, and all that their values depend on.

    Attributes:
        rows: The rankings.
        design: Of each of them.
        display: Which of the rankings each impression showed.
        at: Impression of each click.
        rank: And rank.
        slots: Candidates of the designs; ``slot_offsets`` say of which,
        place: and which of these designs is that of each ranking.
    """

    rows: IntArray
    design: IntArray
    display: IntArray
    at: IntArray
    rank: IntArray
    slots: IntArray
    slot_offsets: IntArray
    place: IntArray

    @classmethod
    def of(cls, log: Log, impressions: IntArray) -> _Shown:
        rows, display = np.unique(log.row[impressions], return_inverse=True)
        design = np.searchsorted(log.row_offsets, rows, side="right") - 1
        designs, place = np.unique(design, return_inverse=True)
        sizes = np.diff(log.slot_offsets)[designs]
        slots = ragged(log.slot_offsets[designs], sizes)
        at, rank = np.nonzero(log.clicks[impressions])
        return cls(rows, design, display, at, rank, slots, offsets_of(sizes), place)


class Values:
    """x and click weights of a log, filled in part by part; sums of x at other thetas, for the jackknife."""

    def __init__(
        self,
        log: Log,
        theta: FloatArray,
        estimator: str,
        known_queries: bool,
        clip: float | None,
        uncovered: str,
        of: str = "difference",
    ) -> None:
        self.log, self.theta, self.known_queries, self.clip, self.of = log, theta, known_queries, clip, of
        self.rank_aware, self.direct = estimator == "rank-aware", None
        if estimator == "direct":
            self.direct = log.rank_a, log.rank_b
        self.lam, self.unseen = self._lambda(theta)
        if self.direct is not None:  # what could not be seen at its ranks counts as if both left it out
            self.direct = np.where(self.unseen, log.k, log.rank_a), np.where(self.unseen, log.k, log.rank_b)
        if self.unseen.any() and uncovered == "refuse":
            raise RequirementError(_unseen_text(log, self.unseen))
        if known_queries and len(set(np.bincount(log.query).tolist())) > 1:
            raise ValueError("known_queries needs a log in which all queries are equally frequent, as one of a pair")
        self.x = np.zeros(len(log))
        self.click_weights = np.zeros(len(log.clicked[0]))
        self.largest, self.lost = 0.0, 0.0
        self.rest_sums = np.zeros(0)

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

    def add_all(self, group: IntArray, guesses: Iterator[FloatArray], others: Any, left_out: IntArray | None) -> None:
        """Value every group with its guess (a number per slot); and, for each of the other thetas, the sum of x of the
        impressions that are not in the part of the log that it leaves out."""
        first_click = np.searchsorted(self.log.clicked[0], np.arange(len(self.log)))
        thetas = np.array([scaled(other) for other in others])
        self.rest_sums = np.zeros(len(thetas))
        for number, guess in enumerate(guesses):
            inside = np.flatnonzero(group == number)
            if not len(inside):
                continue
            shown = _Shown.of(self.log, inside)
            x, weights, valued = self._part(shown, guess, self.theta, self.lam)
            self.x[inside] = x
            order = first_click[inside][shown.at] + np.arange(len(shown.at)) - np.searchsorted(shown.at, shown.at)
            self.click_weights[order] = weights
            self.largest = max(self.largest, valued.largest)
            self.lost += float(valued.lost[shown.display].sum())
            if left_out is not None:
                self.rest_sums += self._rest(shown, inside, guess, thetas, left_out)

    def _rest(
        self, shown: _Shown, inside: IntArray, guess: FloatArray, thetas: FloatArray, left_out: IntArray
    ) -> FloatArray:
        """For each theta, the sum of x over the impressions that it does not leave out."""
        log = self.log
        sums = value_sums(
            shown.rows, shown.design, offsets_of(np.bincount(shown.display)),
            inside[np.argsort(shown.display, kind="stable")], log.clicks, left_out, log.slot_offsets, log.row_offsets,
            log.rankings, log.weights, (log.rank_a, log.rank_b), guess, thetas, rank_aware=self.rank_aware,
            gain=self.of == "gain", first=not self.known_queries, clip=self.clip, placement=log.given_placement,
        )  # fmt: skip
        if self.known_queries:
            rest = len(inside) - np.bincount(left_out[inside], minlength=len(thetas))
            sums += rest * [sum_by_group(self._lambda(theta)[0] * guess, log.slot_offsets).mean() for theta in thetas]
        return sums

    def _part(
        self, shown: _Shown, guess: FloatArray, theta: FloatArray, lam: FloatArray
    ) -> tuple[FloatArray, FloatArray, Valued]:
        log = self.log
        valued = value_rows(
            shown.rows, shown.design, log.slot_offsets, log.row_offsets, log.rankings, log.weights, lam, guess, theta,
            rank_aware=self.rank_aware, clip=self.clip, placement=log.given_placement, direct=self.direct,
        )  # fmt: skip
        if self.known_queries:
            first = np.full(len(shown.rows), sum_by_group(lam * guess, log.slot_offsets).mean())
        else:
            first = sum_by_group(lam[shown.slots] * guess[shown.slots], shown.slot_offsets)[shown.place]
        weights = valued.affine.values[shown.display[shown.at], shown.rank]
        x = (first + valued.affine.base)[shown.display] + weighted_counts(shown.at, weights, len(shown.display))
        return x, weights, valued

    def normalising(self) -> FloatArray:
        """The guess under which weighted surprises cancel over the log, one constant for each sign of lambda."""
        log, nothing = self.log, np.zeros(self.log.n_slots)
        shown = _Shown.of(log, np.arange(len(log)))
        times = np.bincount(shown.display)
        _, of_clicks, valued = self._part(shown, nothing, self.theta, self.lam)
        weights = valued.affine.values
        guess = nothing.copy()
        for sign in (1, -1):
            examined = float(times @ (np.maximum(sign * weights, 0) @ self.theta))
            clicked = float(np.maximum(sign * of_clicks, 0).sum())
            guess[sign * self.lam > 0] = clicked / examined if examined > 0 else 0.0
        return guess

    def estimate(self, independent: str, fit: BiasFit | None) -> Estimate:
        more: dict[str, Any] = {
            "theta": self.theta,
            "uncovered": self.unseen,
            "bias_bound": self.lost / max(len(self.x), 1),
        }
        units = self.log.unit if independent == "units" else None
        if fit is not None:
            sizes = len(self.x) - np.bincount(fit.group, minlength=len(fit.without))
            own = weighted_counts(fit.group, self.x, len(fit.without))
            without, theta_known = self.rest_sums / sizes, (self.x.sum() - own) / sizes
            more |= {
                "bias": fit.bias,
                "replicates": without,
                "standard_error": jackknife_error(without),
                "clicks_alone": jackknife_error(theta_known),
            }
        return Estimate.of(self.x, self.click_weights, largest_weight=self.largest, units=units, **more)


def jackknife_error(values: FloatArray) -> float:
    """Standard error of an estimate from those without each group."""
    return float(np.sqrt(jackknife_variance(values[:, None])[0, 0]))


def _unseen_text(log: Log, unseen: BoolArray) -> str:
    slot = int(np.argmax(unseen))
    query = log.queries[log.query[log.design_of_slot[slot]]]
    more = f" (and {int(unseen.sum()) - 1} more)" if unseen.sum() > 1 else ""
    return (
        f"query {query}: document {log.documents[log.document[slot]]} is at rank {_rank(log.rank_a[slot], log.k)} in A's "
        f"list and {_rank(log.rank_b[slot], log.k)} in B's, but could never be seen{more}; what decides what is shown must be "
        "able to show every document on which the rankers differ"
    )


def _rank(rank: int, k: int) -> str:
    return str(rank + 1) if rank < k else "none"


def given_guess(log: Log, guess: ArrayLike | float | None, estimator: str) -> FloatArray:
    given = None if guess is None else np.asarray(guess, np.float64)
    single = given is not None and given.ndim == 0
    known = float(given) if single else given  # type: ignore[arg-type]
    per_document = checked_guess(known, len(log.documents), rank_aware=estimator == "rank-aware")
    return per_document[log.document]


def guesses(
    log: Log,
    theta: FloatArray,
    counted: IntArray,
    valued: IntArray | None,
    cross_fit: str,
    estimator: str,
    inputs: FloatArray | None,
) -> Iterator[FloatArray]:
    """A guess per slot for each group, from the impressions that may be used for it.

    ``counted`` and ``valued`` are the groups that impressions are counted in, and valued in. With the latter a group has
    guesses for the designs of its own impressions, in an array that is the next group's too; only the last has all of them.
    """
    n_groups = int(counted.max(initial=-1)) + 1
    if estimator == "constant":
        everything = np.zeros(log.n_slots, np.int64)
        for seen in training_sums(lambda g: examinations(log, counted == g, theta, everything, 1), n_groups, cross_fit):
            yield np.full(log.n_slots, seen.mean)
        return
    member, size = log.members.of_slot, len(log.members.document)
    found = _fits(log, theta, counted, valued, cross_fit) if inputs is None else None
    of_slot = np.zeros(log.n_slots)
    for number, (some, fitted) in enumerate(found or _fitted(log, theta, counted, valued, cross_fit, inputs)):
        guess = np.zeros(size)
        guess[some] = fitted
        guess = checked_guess(guess, size, rank_aware=estimator == "rank-aware")
        if valued is None or number == n_groups - 1:
            yield guess[member]
        else:
            design = np.unique(log.design[valued == number])
            slots = ragged(log.slot_offsets[design], np.diff(log.slot_offsets)[design])
            of_slot[slots] = guess[member[slots]]
            yield of_slot


def _fits(log: Log, theta: FloatArray, counted: IntArray, valued: IntArray | None, cross_fit: str) -> list[_Fitted]:
    """``_fitted``, kept for the next estimate of the same log: most ask for the same."""
    groups = counted.tobytes() + (b"" if valued is None else valued.tobytes())
    asked = theta.tobytes(), blake2b(groups).digest(), cross_fit
    if asked not in log.kept:
        log.kept.clear()
        log.kept[asked] = list(_fitted(log, theta, counted, valued, cross_fit, None))
    known: list[_Fitted] = log.kept[asked]
    return known


def _fitted(
    log: Log, theta: FloatArray, counted: IntArray, valued: IntArray | None, cross_fit: str, inputs: FloatArray | None
) -> Iterator[_Fitted]:
    """For each group, the members that matter for it and a guess for each.

    Members that come later, which are most of them where lists are personal, would only add zeros.
    """
    known, n_groups = log.members, int(counted.max(initial=-1)) + 1
    table, place = rank_inputs(known.rank_a, known.rank_b), known.place
    if inputs is not None:
        table, place = checked_inputs(inputs, log), known.document
    needed = _first_needed(log, counted, valued, cross_fit)

    def seen_in(number: int) -> Examinations:
        return examinations(log, counted == number, theta, known.of_slot, len(known.document))

    for number, seen in enumerate(training_sums(seen_in, n_groups, cross_fit)):
        some = np.flatnonzero(needed <= number)
        document, query = known.document[some], log.document_query[known.document[some]]
        firsts = _firsts(document)
        yield (
            some,
            shrunken_guess(
                seen.of(some),
                np.append(_firsts(query), len(some)),
                table,
                place=place[some],
                document=np.searchsorted(firsts, np.arange(len(some)), side="right") - 1,
                document_offsets=np.append(_firsts(query[firsts]), len(firsts)),
            ),
        )


def _first_needed(log: Log, counted: IntArray, valued: IntArray | None, cross_fit: str) -> IntArray:
    """The first group whose guess depends on each member, or is asked for it."""
    members = log.members
    if valued is None or cross_fit != "past":
        return np.zeros(len(members.document), np.int64)
    never = int(counted.max(initial=0)) + 1
    of_design, of_member = np.full(log.n_designs, never), np.full(len(members.document), never)
    np.minimum.at(of_design, log.design, np.minimum(valued, counted + 1))
    np.minimum.at(of_member, members.of_slot, of_design[log.design_of_slot])
    return of_member


def _firsts(sorted_values: IntArray) -> IntArray:
    """Where each distinct value begins."""
    return np.flatnonzero(np.append(True, sorted_values[1:] != sorted_values[:-1])[: len(sorted_values)])


def examinations(log: Log, inside: BoolArray, theta: FloatArray, member: IntArray, size: int) -> Examinations:
    """What some impressions say of the members that slots belong to."""
    rows, times = np.unique(log.row[inside], return_counts=True)
    slots = log.rankings[rows]
    filled = slots >= 0
    members = member[slots[filled]]
    per_rank = (times[:, None] * theta)[filled], (times[:, None] * theta**2)[filled]
    impression, _, slot = log.clicked
    hits = member[slot[inside[impression]]]
    clicked = np.bincount(hits, minlength=size).astype(np.float64)
    return Examinations(clicked, *(weighted_counts(members, part, size) for part in per_rank))


def checked_inputs(inputs: FloatArray, log: Log) -> FloatArray:
    table, n = np.asarray(inputs, np.float64), len(log.documents)
    if table.ndim != 2 or len(table) != n:
        raise ValueError(f"inputs have shape {table.shape}, must have a row for each of {n} documents")
    if not np.isfinite(table).all():
        row = int(np.argwhere(~np.isfinite(table))[0][0])
        raise ValueError(f"inputs of document {row} are not all finite numbers")
    return table


def observed(log: Log, values: Values, independent: str) -> Estimate:
    """Exposure and relevance of each document as they happened to be: weighted surprises cancel for each of them."""
    theta, lam = values.theta, values.lam
    seen = examinations(log, np.ones(len(log), bool), theta, log.document, len(log.documents))
    impressions = np.bincount(log.query[log.design], minlength=len(log.queries))
    ever = seen.examined > 0  # documents never examined count as never clicked
    guess = np.divide(seen.clicks, seen.examined, out=np.zeros(len(ever)), where=ever)[log.document]
    weights = np.zeros(log.n_slots)
    showings = impressions[log.document_query[log.document]]
    np.divide(lam * showings, seen.examined[log.document], out=weights, where=ever[log.document])
    slots = log.rankings[log.row]
    padded, guessed = np.append(weights, 0.0)[slots], np.append(guess, 0.0)[slots]
    first = sum_by_group(lam * guess, log.slot_offsets)[log.design]
    x = first + (padded * (log.clicks - theta * guessed)).sum(1)
    largest = float(np.abs(weights).max(initial=0.0))
    units = log.unit if independent == "units" else None
    return Estimate.of(x, padded[log.clicks], largest_weight=largest, units=units, theta=theta)
