"""What does a log say about Delta? One formula, many guesses of relevance (see ``rankings.values``).

Every impression keeps the placement of the policy that showed it, so a log may hold many versions of a policy.

* "ips": the paper's Eq. ips; needs nothing but clicks.
* "constant": subtracts the clicks to be expected if all documents were equally relevant.
* "doubly-robust": subtracts those expected from a guess per document, made from other impressions of the log.
* "rank-aware": the same, and weighs clicks by what their rank can tell. The least variance, hence the default.

These are unbiased given theta. Two more are not; they are here to compare with:

* "self-normalised": divides by the sum of weights instead of its expectation.
* "observed": the authors' code's, divides by how often a document happened to be shown. Badly biased with
  few impressions of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, FloatArray, IntArray, offsets_of, sum_by_group
from ranktrial.inference.cross_fitting import contributions, groups_of, training_sums
from ranktrial.inference.intervals import UnitSums, fixed_interval
from ranktrial.inference.log import ClickLog, checked_queries
from ranktrial.position_bias import Examinations, shrunken_guess
from ranktrial.rankings import IPSWeights, LoggingPolicy, Pair, ips_weights, list_inputs
from ranktrial.rankings.values import checked_guess, expected_value, usefulness

ESTIMATORS = ("ips", "constant", "doubly-robust", "rank-aware", "self-normalised", "observed")
GUESSED = ("constant", "doubly-robust", "rank-aware")


@dataclass(frozen=True)
class Estimate:
    """An estimate of Delta, positive when A gets more clicks.

    Attributes:
        delta: The estimate, in clicks per impression: the mean of x.
        standard_error: Of the estimate, from the spread of x over units (impressions, unless units were given).
        impressions: How many it rests on.
        units: How many independent units gave them.
        effective_clicks: (sum of click weights)^2 / sum of their squares: the number of equally weighted clicks that
            would say as much.
        largest_weight: Largest absolute weight any click can have.
        bias_bound: How far clipping can have moved it; 0 without clipping.
        x: The value of each impression, in the order of the log: what intervals and sequences are made from.
        sums: The same by unit.
    """

    delta: float
    standard_error: float
    impressions: int
    units: int
    effective_clicks: float
    largest_weight: float
    bias_bound: float = 0.0
    x: FloatArray = field(default_factory=lambda: np.empty(0), repr=False, compare=False)
    sums: UnitSums = field(default_factory=lambda: UnitSums.of([]), repr=False, compare=False)

    @classmethod
    def of(
        cls,
        x: FloatArray,
        click_weights: FloatArray,
        *,
        largest_weight: float,
        bias_bound: float = 0.0,
        units: ArrayLike | None = None,
    ) -> Estimate:
        """From the values of impressions and the weights of the clicks among them."""
        sums = UnitSums.of(x, units)
        effective = float(np.abs(click_weights).sum() ** 2 / max((click_weights**2).sum(), 1e-300))
        error = sums.standard_error
        return cls(sums.mean, error, len(x), len(sums), effective, largest_weight, bias_bound, x, sums)

    def confidence_interval(self, level: float = 0.95) -> tuple[float, float]:
        """``fixed_interval``, widened by ``bias_bound``: for a number of units fixed beforehand; looking again and again needs
        a confidence sequence. Refused where there is none: one unit, or no spread (as before the first click)."""
        low, high = fixed_interval(self.sums, level)
        return low - self.bias_bound, high + self.bias_bound

    def to_dict(self) -> dict[str, Any]:
        """All but x and its sums."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("x", "sums")}

    def __str__(self) -> str:
        try:
            low, high = self.confidence_interval()
            interval = f"95% [{low:+.5f}, {high:+.5f}]"
        except ValueError:
            interval = "no interval yet"
        return (
            f"delta {self.delta:+.5f}  {interval}  impressions {self.impressions:,}  "
            f"effective clicks {self.effective_clicks:,.0f}  largest weight {self.largest_weight:.3g}"
        )


def estimate(
    log: ClickLog,
    pair: Pair,
    policies: Sequence[LoggingPolicy],
    *,
    estimator: str = "rank-aware",
    cross_fit: str = "folds",
    folds: int = 5,
    refits: ArrayLike | None = None,
    inputs: FloatArray | None = None,
    known_queries: bool = False,
    clip: float | None = None,
    units: ArrayLike | None = None,
) -> Estimate:
    """Delta from a log shown by ``policies`` (one per version), with the pair's position bias.

    Refuses with the query and document when a document on which the rankers differ could not be seen.

    Args:
        estimator: See the module.
        cross_fit: Guesses come from other "folds", or from the "past" only (see ``cross_fitting``).
        folds: How many.
        refits: After how many impressions guesses are made from the past; by default 100, 200, 400, ...
        inputs: Columns per document that may tell its relevance; by default what both ranked lists say.
        known_queries: All queries of the pair are known to be equally frequent: what the log's own frequencies add to the
            variance is taken out, which pays from about 10 impressions a query.
        clip: Caps weights, and widens the interval by the bias that can cost.
        units: Whose impression each is (users, sessions), where one gives several: all of a unit's share a fold (or
            the guess there was when it first came), and the standard error is over units.
    """
    checks.one_of("estimator", estimator, ESTIMATORS)
    if clip is not None and estimator in ("observed", "self-normalised"):
        raise ValueError(f'clip applies to weights from the policy, not to estimator="{estimator}"')
    theta, queries = pair.known_theta, checked_queries(log, pair, policies)
    groups = groups_of(len(log), cross_fit, folds=folds, refits=refits, units=units)
    if estimator not in GUESSED:
        groups = np.zeros_like(groups)
    lam, rank_aware = pair.lam(theta), estimator == "rank-aware"
    values = _Values(log, pair, queries, lam, rank_aware, known_queries)
    if estimator in GUESSED:
        counted = contributions(groups, cross_fit, refits=refits)
        guesses = _guesses(log, pair, lam, counted, cross_fit, estimator, inputs)
    else:
        guesses = [np.zeros(pair.n_documents)]
    for version, policy in enumerate(policies):
        examined = _examinations(policy, theta, rank_aware)
        for group in np.unique(groups[log.versions == version]):
            rows = np.flatnonzero((log.versions == version) & (groups == group))
            weights = ips_weights(lam, examined(guesses[group]), pair.offsets, clip=clip)
            values.add(rows, weights, guesses[group])
    if estimator == "self-normalised":
        values.normalise()
    if estimator == "observed":
        values.observe()
    return values.estimate(units)


def estimate_ips(
    log: ClickLog, pair: Pair, policies: Sequence[LoggingPolicy], *, clip: float | None = None
) -> Estimate:
    """``estimate`` with the paper's estimator."""
    return estimate(log, pair, policies, estimator="ips", clip=clip)


class _Values:
    """x and click weights of a log, filled in part by part."""

    def __init__(
        self, log: ClickLog, pair: Pair, queries: IntArray, lam: FloatArray, rank_aware: bool, known_queries: bool
    ) -> None:
        self.log, self.pair, self.queries, self.lam = log, pair, queries, lam
        self.rank_aware, self.known_queries = rank_aware, known_queries
        self.theta = pair.known_theta
        self.shown = log.rankings != NO_DOCUMENT
        self.x, self.weights = np.zeros(len(log)), np.zeros(log.clicks.shape)  # W of every rank, clicked or not
        self.largest, self.lost = 0.0, 0.0

    def add(self, rows: IntArray, weights: IPSWeights, guess: FloatArray) -> None:
        documents = np.where(self.shown[rows], self.log.rankings[rows], 0)
        useful = usefulness(self.theta, guess[documents], rank_aware=self.rank_aware)
        self.weights[rows] = np.where(self.shown[rows], weights.values[documents] * useful, 0.0)
        self.largest = max(self.largest, weights.largest)
        self.lost += weights.lost_by_query[self.queries[rows]].sum()
        self.revalue(rows, guess)

    def revalue(self, rows: IntArray | slice, guess: FloatArray) -> None:
        """x by the weights at hand and a guess."""
        guessed = guess[np.where(self.shown[rows], self.log.rankings[rows], 0)]
        first = expected_value(self.lam, guess, self.pair.offsets, known_queries=self.known_queries)
        surprise = self.log.clicks[rows] - self.theta * guessed
        self.x[rows] = first[self.queries[rows]] + (self.weights[rows] * surprise).sum(1)

    def normalise(self) -> None:
        """The guess under which weighted surprises cancel over the log, one constant for each sign of lambda."""
        guess = np.zeros(self.pair.n_documents)
        for sign in (1, -1):
            weights = np.maximum(sign * self.weights, 0)
            examined = (weights * self.theta).sum()
            guess[sign * self.lam > 0] = (weights * self.log.clicks).sum() / examined if examined > 0 else 0.0
        self.revalue(slice(None), guess)

    def observe(self) -> None:
        """Exposure and relevance of each document as they happened to be: weighted surprises cancel for each of them."""
        log, pair, lam = self.log, self.pair, self.lam
        seen = Examinations.from_impressions(log.rankings, log.clicks, self.theta, pair.n_documents)
        impressions = np.bincount(self.queries, minlength=pair.n_queries)
        showings = np.repeat(impressions, np.diff(pair.offsets))
        ever = seen.examined > 0  # documents never examined count as never clicked
        weights, guess = np.zeros((2, pair.n_documents))
        np.divide(lam * showings, seen.examined, out=weights, where=ever)
        np.divide(seen.clicks, seen.examined, out=guess, where=ever)
        self.add(np.arange(len(log)), IPSWeights(weights, 0.0, np.zeros(pair.n_queries)), guess)
        self.largest = float(np.abs(weights).max())

    def estimate(self, units: ArrayLike | None) -> Estimate:
        bound = float(self.lost / len(self.log))  # with the log's own frequencies of queries
        clicked = self.weights[self.log.clicks]
        return Estimate.of(self.x, clicked, largest_weight=self.largest, bias_bound=bound, units=units)


def _examinations(policy: LoggingPolicy, theta: FloatArray, rank_aware: bool) -> Callable[[FloatArray], FloatArray]:
    """The denominator of W for any guess: exposure, in which rank-aware weights count ranks by what they tell."""
    if not rank_aware:
        rho = policy.exposure(theta)
        return lambda guess: rho
    exposures = policy.placement() * theta
    return lambda guess: (exposures * usefulness(theta, guess[:, None], rank_aware=True)).sum(1)


def _guesses(
    log: ClickLog,
    pair: Pair,
    lam: FloatArray,
    groups: IntArray,
    cross_fit: str,
    estimator: str,
    inputs: FloatArray | None,
) -> list[FloatArray]:
    """A guess for each group, from the impressions that may be used for it."""
    n = pair.n_documents
    parts = [
        Examinations.from_impressions(log.rankings[groups == g], log.clicks[groups == g], pair.known_theta, n)
        for g in range(groups.max() + 1)
    ]
    rank_aware = estimator == "rank-aware"
    sums: list[Examinations] = training_sums(parts, cross_fit)
    if estimator == "constant":
        return [checked_guess(seen.mean, n, rank_aware=False) for seen in sums]
    # Most documents of a query are in neither list: nothing is learnt from them, and no guess of them matters.
    matter = np.zeros(n, bool)
    matter[log.rankings[log.rankings != NO_DOCUMENT]] = True
    matter |= lam != 0
    offsets = offsets_of(sum_by_group(matter.astype(np.float64), pair.offsets))
    columns = (list_inputs(pair) if inputs is None else checked_inputs(inputs, n))[matter]
    guesses = []
    for seen in sums:
        guess = np.full(n, seen.mean)
        guess[matter] = shrunken_guess(seen.of(matter), offsets, columns)
        guesses.append(checked_guess(guess, n, rank_aware=rank_aware))
    return guesses


def checked_inputs(inputs: FloatArray, n_documents: int) -> FloatArray:
    table = np.asarray(inputs, np.float64)
    if table.ndim != 2 or len(table) != n_documents:
        raise ValueError(f"inputs have shape {table.shape}, must have a row for each of {n_documents} documents")
    if not np.isfinite(table).all():
        row = int(np.argwhere(~np.isfinite(table))[0][0])
        raise ValueError(f"inputs of document {row} are not all finite numbers")
    return table
