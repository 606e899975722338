"""Relevance model: shrinkage estimates from clicks and theta, of low variance and not unbiased.

The estimators that use it are unbiased with any relevance.

Over a log document d was examined E_d = sum_r shown_dr theta_r times in expectation and clicked C_d times, about zeta_d E_d;
a raw rate C_d / E_d is noise where E_d is small. Instead

    zeta_d = mean + inputs_d . b + a_query + e_d,

each term shrunk towards 0 as much as its own spread over the log tells: what cannot be told from click noise adds nothing.
Spreads come from the method of moments: documents of one query that deviate together tell the spread of a_query, what single
documents deviate beyond click noise that of e_d. All of it is sums over documents and one small linear system.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ranktrial.arrays import BoolArray, FloatArray, IntArray, weighted_counts
from ranktrial.position_bias._kernels import examined_rows, shrunken_effects, spread_sums

PREDICTIONS = (0.01, 0.99)
PRIOR_RELEVANCE = 0.3  # believed before any click
PRIOR_EXAMINATIONS = 1.0  # that the belief is worth


@dataclass(frozen=True, eq=False)
class Examinations:
    """Clicks and expected examinations of every document; ``a + b`` merges two logs, ``total - part`` removes one.

    Attributes:
        clicks: Clicks C_d.
        examined: Expected examinations E_d, the sum of theta at the ranks where it was shown.
        squared: Sum of theta^2 at these ranks; C_d has variance zeta_d E_d - zeta_d^2 squared_d.

    >>> theta = np.array([1.0, 0.5])
    >>> day = Examinations.from_counts(np.array([[10.0, 10], [0, 20]]), np.array([[4.0, 2], [0, 1]]), theta)
    >>> day.clicks, day.examined
    (array([6., 1.]), array([15., 10.]))
    >>> (day + day - day).examined
    array([15., 10.])
    """

    clicks: FloatArray
    examined: FloatArray
    squared: FloatArray

    @classmethod
    def from_counts(cls, shown: FloatArray, clicked: FloatArray, theta: FloatArray) -> Examinations:
        """Build from counts per (document, rank)."""
        return cls(*examined_rows(shown, clicked, theta).T)

    def of(self, documents: BoolArray | IntArray) -> Examinations:
        """Return the sums of some documents only."""
        return Examinations(self.clicks[documents], self.examined[documents], self.squared[documents])

    def __add__(self, other: Examinations) -> Examinations:
        return Examinations(self.clicks + other.clicks, self.examined + other.examined, self.squared + other.squared)

    def __sub__(self, part: Examinations) -> Examinations:
        clicks, examined = self.clicks - part.clicks, self.examined - part.examined
        left = examined > 1e-9 * self.examined  # sums of fractions need not cancel exactly
        return Examinations(*(np.where(left, a, 0.0) for a in (clicks, examined, self.squared - part.squared)))

    @property
    def mean(self) -> float:
        """Clicks per examination over all documents, the estimate of relevance without a model."""
        clicks = self.clicks.sum() + PRIOR_EXAMINATIONS * PRIOR_RELEVANCE
        return float(np.clip(clicks / (self.examined.sum() + PRIOR_EXAMINATIONS), *PREDICTIONS))


def relevance_prediction(
    shown: FloatArray, clicked: FloatArray, theta: FloatArray, offsets: IntArray, inputs: FloatArray | None = None
) -> FloatArray:
    """Shrinkage estimate of zeta per document from counts per (document, rank); 0.3 where nothing is known at all.

    ``inputs`` are columns that may tell relevant documents from others, such as ``rankings.rank_inputs``.

    Three documents of a query; their clicks per examination are 0.9, 0.13 and 0, the last from few shows:

    >>> shown, clicked = np.array([[20.0, 20], [20, 20], [2, 2]]), np.array([[18.0, 9], [3, 1], [0, 0]])
    >>> relevance_prediction(shown, clicked, np.array([1.0, 0.5]), np.array([0, 3])).round(2)
    array([0.83, 0.2 , 0.34])
    """
    return RelevanceFit.of(Examinations.from_counts(shown, clicked, theta), offsets, inputs).prediction


@dataclass(frozen=True, eq=False)
class RelevanceFit:
    """Relevance fitted to a log: a regression on the inputs, and the effects of single documents.

    Attributes:
        prediction: Prediction of every row.
        constant: Constant of the regression on the inputs.
        slopes: Slope of each input.
        effects: How each document deviates; queries' deviations are part of it.
        shared: How the documents of each query deviate together, as far as that is believed of those that were never examined.
        spread: Variances of deviations, of single documents within a query and of what those of a query share.
    """

    prediction: FloatArray
    constant: float
    slopes: FloatArray
    effects: FloatArray
    shared: FloatArray
    spread: tuple[float, float]

    @classmethod
    def of(
        cls,
        seen: Examinations,
        offsets: IntArray,
        inputs: FloatArray | None = None,
        *,
        place: IntArray | None = None,
        document: IntArray | None = None,
        document_offsets: IntArray | None = None,
        prior: FloatArray | None = None,
    ) -> RelevanceFit:
        """Fit the model to sums per document; ``offsets`` say which belong to which query.

        Where many have the same inputs, these are given once, and ``place`` says which each has.
        A document may have several rows, with inputs of their own (other ranks for other people): then ``document`` says whose
        row each is, and ``document_offsets`` which documents belong to which query. ``prior`` is a constant and slopes up to
        scale, believed as far as clicks do not say otherwise; by default relevance is taken not to depend on the inputs.
        """
        constant, slopes = seen.mean, np.zeros(0 if inputs is None else inputs.shape[1])
        prediction = np.full(len(seen.clicks), constant)
        place = np.arange(len(prediction)) if place is None else place
        if inputs is not None:
            if prior is not None:
                shape = (prior[0] + inputs @ prior[1:])[place]
                scale = constant * max(seen.examined.sum(), 1e-300) / max(float(seen.examined @ shape), 1e-300)
                constant, slopes = scale * prior[0], scale * prior[1:]
                prediction = linear_prediction(constant, slopes, inputs)[place]
            more, deviations = _explained(seen, prediction, offsets, inputs, place)
            constant, slopes = constant + more, slopes + deviations
            prediction = linear_prediction(constant, slopes, inputs)[place]
        if document is None or document_offsets is None:
            document, document_offsets = np.arange(len(prediction)), offsets
        summed = _residuals(seen, prediction, document, int(document_offsets[-1]))
        spread = spreads(*summed, document_offsets)
        effects, shared = shrunken_effects(*summed, document_offsets, *spread)
        return cls(np.clip(prediction + effects[document], *PREDICTIONS), constant, slopes, effects, shared, spread)

    def with_effects_from(
        self,
        seen: Examinations,
        inputs: FloatArray,
        document: IntArray,
        document_offsets: IntArray,
        *,
        place: IntArray | None = None,
    ) -> RelevanceFit:
        """Fit with this regression and these spreads, and effects of some documents from other clicks."""
        prediction = linear_prediction(self.constant, self.slopes, inputs)
        prediction = prediction if place is None else prediction[place]
        summed = _residuals(seen, prediction, document, int(document_offsets[-1]))
        effects, shared = shrunken_effects(*summed, document_offsets, *self.spread)
        return replace(
            self, prediction=np.clip(prediction + effects[document], *PREDICTIONS), effects=effects, shared=shared
        )


def linear_prediction(constant: float, slopes: FloatArray, inputs: FloatArray) -> FloatArray:
    """Relevance by a regression on inputs."""
    return np.asarray(np.clip(constant + inputs @ slopes, *PREDICTIONS))


def _residual(seen: Examinations, prediction: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Clicks beyond those expected, and their variance if the prediction were right."""
    return seen.clicks - prediction * seen.examined, prediction * seen.examined - prediction**2 * seen.squared


def _residuals(
    seen: Examinations, prediction: FloatArray, document: IntArray, n: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Residual clicks, examinations and variance of the residual, summed over the rows of each of n documents."""
    residual, noise = _residual(seen, prediction)
    return (
        weighted_counts(document, residual, n),
        weighted_counts(document, seen.examined, n),
        weighted_counts(document, noise, n),
    )


def _explained(
    seen: Examinations, prediction: FloatArray, offsets: IntArray, inputs: FloatArray, place: IntArray
) -> tuple[float, FloatArray]:
    """Constant and slopes of a ridge regression of deviations from the prediction on the inputs; the fit sets its penalty."""
    residual, noise = _residual(seen, prediction)
    within, shared = spreads(residual, seen.examined, noise, offsets)
    # A document examined for ever would still say no more of the inputs than one document can.
    precision = _ratio(seen.examined**2, noise + (within + shared) * seen.examined**2)  # 1 / Var(residual / examined)
    evidence = precision * _ratio(residual, seen.examined)
    precision, evidence = (weighted_counts(place, of, len(inputs)) for of in (precision, evidence))
    mass = max(precision.sum(), 1e-300)
    weighted = inputs * precision[:, None]
    middle, rate_mean = weighted.sum(0) / mass, evidence.sum() / mass
    squares = weighted.T @ inputs
    varied = np.diag(squares) - mass * middle**2 > 1e-9 * np.diag(squares)  # a constant column explains nothing
    gram = (squares - mass * np.outer(middle, middle))[np.ix_(varied, varied)]
    unit = np.sqrt(np.diag(gram) / mass)  # columns count alike, whatever they are measured in
    strength, directions = np.linalg.eigh(gram / np.outer(unit, unit))
    usable = strength > 1e-9 * strength.max(initial=0.0)
    strength, directions = strength[usable], directions[:, usable]
    along = directions.T @ ((inputs.T @ evidence - mass * middle * rate_mean)[varied] / unit)
    spread = max(float((along**2 / strength - 1).sum() / max(strength.sum(), 1e-300)), 0.0)
    believed = spread / (1 + spread * strength)
    slopes = np.zeros(inputs.shape[1])
    slopes[varied] = directions @ (believed * along) / unit
    return float(rate_mean - middle @ slopes), slopes


def spreads(residual: FloatArray, examined: FloatArray, noise: FloatArray, offsets: IntArray) -> tuple[float, float]:
    """Variances of deviations per examination: of single members of a group, and of what members of a group share."""
    single, pairs = spread_sums(residual, examined, noise, offsets)
    total = _surely(*single)
    shared = min(_surely(*pairs), total)
    return total - shared, shared


def _surely(squares: float, spread: float, scale: float) -> float:
    """The sum of squares over that of their scale, less one standard error, at least 0: believed as far as it is sure."""
    return max(float(squares - np.sqrt(spread)), 0.0) / max(float(scale), 1e-300)


def nested_effects(
    residual: FloatArray, examined: FloatArray, noise: FloatArray, offsets: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Best linear prediction of each member's deviation per examination (its group's plus its own), and of each group's."""
    effects, commons = shrunken_effects(
        residual, examined, noise, offsets, *spreads(residual, examined, noise, offsets)
    )
    return effects, commons


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
