"""Result of an estimate of position bias, and the arithmetic that the estimators share.

Every estimator is a small value object with ``fit(counts) -> PositionBias``. Theta is relative: only ratios of
examination probabilities are identified from clicks, so theta_1 = 1 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ranktrial import checks, frames, notebook
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.distributions import normal_quantile, t_quantile
from ranktrial.interval import Interval
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import Identifiability, ranks_text

FEW = 10  # degrees of freedom, below which an estimate says that its intervals are wide for want of units
SURE = 1e-6  # change of log theta: a smaller step of Newton's method needs no check
MOST_STEPS = 100  # of Newton's method
UNITS_AT_ONCE = 4096  # that a variance is added up from: bounds memory


@dataclass(frozen=True, eq=False)
class PositionBias:
    """An estimate of theta with its uncertainty.

    Attributes:
        theta: examination probability per rank, relative to the first.
        standard_error: of each theta; nan where the method gives none (use ``jackknife``), 0 at rank 1.
        covariance: of theta, ``(k, k)``.
        method: the estimator, as it is written.
        iterations: sweeps or Newton steps taken.
        converged: False when the limit of iterations stopped it.
        identifiability: what the log can tell.
        log_likelihood: at the estimate; of the clicks given each document's total for the conditional equation.
        zeta: relevance of every document of the data set, from models that estimate it.
        predicted: documents that were never shown: their zeta is the mean (or the regression's prediction).
        degrees_of_freedom: of the t distribution behind ``confidence_interval``, one number or one per rank; few where few
            independent units (queries, or documents if queries are not known) have the evidence.
        remark: why this estimator, what to beware of.

    >>> from ranktrial.position_bias import Conditional
    >>> bias = Conditional().fit(Counts.from_dense([[10, 10], [30, 20], [20, 20]], [[4, 2], [9, 4], [8, 5]]))
    >>> bias
    PositionBias by Conditional()
    rank  theta   +-
       1  1.0000  0.0000
       2  0.6137  0.0392
    few independent units: intervals are 2.3 times as wide as from many (t with 1.9 degrees of freedom at rank 2)
    >>> print(f"{bias.confidence_interval()[1]:.2f}")
    0.46 to 0.82
    """

    theta: FloatArray
    standard_error: FloatArray
    covariance: FloatArray
    method: str
    iterations: int
    converged: bool
    identifiability: Identifiability
    log_likelihood: float | None = None
    zeta: FloatArray | None = None
    predicted: BoolArray | None = None
    degrees_of_freedom: float | FloatArray = float("inf")
    remark: str = ""

    to_frame = frames.to_frame

    chart = notebook.chart

    def _repr_html_(self) -> str:
        """Render theta with its intervals for notebooks."""
        return notebook.of_position_bias(self)

    @property
    def k(self) -> int:
        """Number of ranks."""
        return len(self.theta)

    @property
    def note(self) -> str:
        """The remark, and what few independent units do to errors and intervals."""
        notes = [self.remark]
        freedom = np.broadcast_to(self.degrees_of_freedom, self.k)
        alone = np.flatnonzero(np.isnan(freedom))
        if len(alone):
            notes.append(
                f"no standard error at rank {ranks_text(alone)}: every comparison it rests on comes from one unit"
            )
        least = int(np.argmin(np.where(np.isnan(freedom), np.inf, freedom)))
        if freedom[least] < FEW:
            wider = t_quantile(0.975, float(freedom[least])) / normal_quantile(0.975)
            notes.append(
                f"few independent units: intervals are {wider:.1f} times as wide as from many "
                f"(t with {freedom[least]:.1f} degrees of freedom at rank {least + 1})"
            )
        return "; ".join(note for note in notes if note)

    def confidence_interval(self, level: float = 0.95) -> tuple[Interval, ...]:
        """One interval per rank, symmetric on the log scale as a ratio wants it; 0 to infinity where there is no error."""
        checks.between("level", level, 0, 1, open_ends=True)
        freedom = np.broadcast_to(self.degrees_of_freedom, self.k).tolist()
        quantiles = [t_quantile(0.5 + level / 2, each) for each in freedom]
        t = np.where(self.standard_error > 0, quantiles, 0.0)
        reach = t * self.standard_error
        positive = self.theta > 0
        with np.errstate(over="ignore"):
            factor = np.exp(reach / np.where(positive, self.theta, 1.0))
        low, high = np.where(positive, self.theta / factor, 0.0), np.where(positive, self.theta * factor, reach)
        unknown = np.isnan(self.standard_error)
        low, high = np.where(unknown, 0.0, low), np.where(unknown, np.inf, high)
        return tuple(Interval(*ends) for ends in zip(low.tolist(), high.tolist()))

    def to_dict(self) -> dict[str, object]:
        """Plain numbers for JSON; relevances are left out."""
        return {
            "theta": self.theta.tolist(),
            "standard_error": [None if np.isnan(e) else float(e) for e in self.standard_error],
            "method": self.method,
            "iterations": self.iterations,
            "converged": self.converged,
            "log_likelihood": self.log_likelihood,
            "identifiability": str(self.identifiability),
            "note": self.note,
        }

    def __repr__(self) -> str:
        lines = [f"PositionBias by {self.method}{'' if self.converged else ' (not converged)'}", "rank  theta   +-"]
        lines += [f"{r + 1:4d}  {t:.4f}  {e:.4f}" for r, (t, e) in enumerate(zip(self.theta, self.standard_error))]
        return "\n".join([*lines, *([self.note] if self.note else [])])


class Estimator(Protocol):
    """Interface of estimators of position bias from counts.

    >>> from ranktrial.position_bias import Auto, Conditional
    >>> counts = Counts.from_dense([[10, 10], [20, 20]], [[4, 2], [8, 4]])
    >>> estimators: list[Estimator] = [Auto(), Conditional()]
    >>> [estimator.fit(counts).theta.round(6).tolist() for estimator in estimators]
    [[1.0, 0.5], [1.0, 0.5]]
    """

    def fit(self, counts: Counts) -> PositionBias: ...


Evaluated = tuple[float, FloatArray, FloatArray]  # value, gradient, information (minus the second derivative)
Maximum = tuple[FloatArray, float, int, bool]  # theta, its value, steps taken, success


def maximise(
    likelihood: Callable[[FloatArray], Evaluated],
    start: FloatArray,
    free: BoolArray,
    *,
    limit: int = MOST_STEPS,
    highest: float = np.inf,
) -> Maximum:
    """Newton's method (``newton``) on log theta for one concave function."""
    return maximise_all(lambda _, thetas: [likelihood(thetas[0])], [newton(start, free, limit=limit, highest=highest)])[
        0
    ]


def maximise_all(
    likelihoods: Callable[[list[int], FloatArray], Iterable[Evaluated]],
    searches: Sequence[Generator[FloatArray, Evaluated, Maximum]],
) -> list[Maximum]:
    """The maxima that many searches find side by side: ``likelihoods`` is asked for all that are not done yet at once."""
    asked = {number: next(search) for number, search in enumerate(searches)}
    found = dict[int, Maximum]()
    while asked:
        numbers = list(asked)
        for number, answer in zip(numbers, likelihoods(numbers, np.array(list(asked.values())))):
            try:
                asked[number] = searches[number].send(answer)
            except StopIteration as end:
                found[number] = end.value
                del asked[number]
    return [found[number] for number in range(len(searches))]


def newton(
    start: FloatArray, free: BoolArray, *, limit: int = MOST_STEPS, highest: float = np.inf
) -> Generator[FloatArray, Evaluated, Maximum]:
    """Newton's method on log theta for a concave function, which is sent what it is at every theta that this yields.

    Steps are halved until the value does not fall, and never change a theta by more than a factor e^2 or beyond ``highest``.
    So near the maximum that rounding decides about the value, a step is taken as it is.
    """
    theta = start.copy()
    value, gradient, information = yield theta
    for step in range(1, limit + 1):
        loose = free & ~((theta >= highest) & (gradient > 0))
        move = np.zeros_like(theta)
        move[loose] = _solve(information[np.ix_(loose, loose)], gradient[loose])
        move *= min(1.0, 2.0 / max(np.abs(move).max(), 1e-300))
        for _ in range(40):
            candidate = np.where(loose, np.minimum(theta * np.exp(move), highest), theta)
            new = yield candidate
            if new[0] >= value - 1e-12 * abs(value) or np.abs(move).max() < SURE:
                break
            move /= 2
        theta, (value, gradient, information) = candidate, new
        if np.abs(move).max() < 1e-10:
            return theta, value, step, True
    return theta, value, limit, False


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    if len(right) == 0:
        return right
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0])


def by_unit(units: IntArray | None, n: int) -> tuple[IntArray, IntArray]:
    """Rows in the order of their units, and offsets: unit g has the rows offsets[g] to offsets[g + 1] of that order.

    >>> by_unit(np.array([7, 3, 7]), 3)
    (array([1, 0, 2]), array([0, 1, 3]))
    """
    if units is None:
        return np.arange(n), np.arange(n + 1)
    order = np.argsort(units, kind="stable")
    return order, np.append(np.unique(units[order], return_index=True)[1], n)


def sandwich(
    terms: Callable[[IntArray], tuple[FloatArray, FloatArray]],
    offsets: IntArray,
    information: FloatArray,
    free: BoolArray,
) -> tuple[FloatArray, FloatArray]:
    """Covariance of log theta from independent units, and the degrees of freedom of each rank's variance.

    ``terms(offsets)`` gives the scores ``(units, k)`` and informations ``(units, k, k)`` of these units; ``information`` is
    the sum of all. Scores at the estimate add up to zero, so they are smaller than at the truth, by more the fewer units
    matter. Were the score of unit g to have variance H_g (its information, up to a common factor), the unit's part of the
    error of log theta_r would have, with B the inverse of H = sum_g H_g and b its column r, the covariances

        Omega_gh = b' (1[g = h] H_g - H_g B H_h) b.

    The sum of squared parts is scaled by b' H b / trace(Omega), which makes it unbiased, and has about
    trace(Omega)^2 / trace(Omega^2) degrees of freedom: as many as there are units, less 1, if all are alike, fewer if a few
    units have most of the evidence (Bell and McCaffrey 2002; Imbens and Kolesar 2016). Where each comparison rests on a
    single unit Omega is zero: nothing tells the error, which is nan.
    """
    some = np.ix_(free, free)
    bread = np.linalg.pinv(information[some])
    k = len(bread)
    meat, cross = np.zeros((k, k)), np.zeros((k, k, k))
    total, lost, squares = np.zeros((3, k))
    for start in range(0, len(offsets) - 1, UNITS_AT_ONCE):
        scores, informations = terms(offsets[start : start + UNITS_AT_ONCE + 1])
        parts = scores[:, free] @ bread
        meat += parts.T @ parts
        pulls = informations[:, free][:, :, free] @ bread  # H_g B
        moved = bread @ pulls  # B H_g B
        weights = np.diagonal(moved, axis1=1, axis2=2)
        own = (pulls * moved).sum(1)
        total += weights.sum(0)
        lost += own.sum(0)
        squares += (weights**2 - 2 * weights * own).sum(0)
        cross += moved.transpose(2, 1, 0) @ pulls.transpose(2, 0, 1)
    trace = total - lost
    defined = trace > 1e-6 * total
    scale, degrees = np.full((2, k), np.nan)
    scale[defined] = total[defined] / trace[defined]
    squares += np.einsum("rij,rji->r", cross, cross)
    degrees[defined] = np.maximum(trace[defined] ** 2 / squares[defined], 1.0)  # it is at least 1, but for rounding
    covariance = np.zeros_like(information)
    freedom = np.full(len(information), np.inf)
    covariance[some] = meat * np.sqrt(scale * scale[:, None])
    freedom[free] = degrees
    return covariance, freedom


def on_theta_scale(
    log_covariance: FloatArray, theta: FloatArray, one_click: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Standard errors and covariance of theta from those of log theta.

    ``one_click`` is the theta that a single click would have meant: the error where no click was seen and theta is 0.
    """
    covariance = log_covariance * theta * theta[:, None]
    unclicked = theta == 0
    covariance[unclicked, unclicked] = one_click[unclicked] ** 2
    return np.sqrt(np.maximum(np.diag(covariance), 0.0)), covariance


def start_theta(counts: Counts, *, below: float = 1.0) -> FloatArray:
    """The click rate per rank relative to the first, with theta_1 = 1 and the others at most ``below``."""
    rate = counts.click_rate
    theta = np.minimum(rate / rate[0], below)
    theta[0] = 1.0
    return np.asarray(theta)
