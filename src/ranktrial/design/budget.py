"""Click budgets: the price per click at which a design loses visitors no more clicks than the budget allows.

A budget is the share of an A/B test's clicks that visitors may lose. Its price is found numerically over the traffic that the
budget is for: the queries of a pair, or a sample of recent searches. By a design's own relevance model, clicks on it never fall
as their price rises. By another model they may: a high price follows the design's model, also where that ranks documents worse
than both rankers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import DocumentArray, FloatArray
from ranktrial.design import _closed_form_kernels as kernels
from ranktrial.design.closed_form import NONE, DesignProblem, Shares, checked_problem

LOWEST_PRICE = 1e-6  # next to nothing in variance: documents that tell nothing stand in the order of their relevance
HIGHEST_SENSIBLE = 100.0
CLOSE_ENOUGH = 1.01  # ratio of two prices
BETWEEN = 5  # prices tried between the lowest and the highest where the highest does not keep a budget


def expected_clicks(rankings: DocumentArray, theta: FloatArray, zeta: FloatArray) -> FloatArray:
    """Clicks to be expected on each ranking of a table, with relevance as predicted.

    >>> expected_clicks(np.array([[0, 1], [1, -1]]), np.array([1.0, 0.5]), np.array([0.2, 0.4]))
    array([0.4, 0.4])
    """
    clicks: FloatArray = np.append(zeta, 0.0)[rankings] @ theta
    return clicks


@dataclass(frozen=True, eq=False)
class ClickForecast:
    """Clicks to be expected on a sample of searches, of A's list, B's list, and the design at any price.

    Attributes:
        problem: Problem that the design solves.
        theta: Position bias by which clicks are forecast.
        zeta: Relevance of each candidate of the problem, by which clicks are forecast.
        a: Clicks on A's list, per query.
        b: Clicks on B's.
        shares: Share of the traffic of each query.
        plain: Shares of plain A/B traffic beside the design.
    """

    problem: DesignProblem
    theta: FloatArray
    zeta: FloatArray
    a: FloatArray
    b: FloatArray
    shares: FloatArray
    plain: Shares

    @classmethod
    def of(
        cls,
        tables: DocumentArray,
        theta: ArrayLike,
        zeta: ArrayLike,
        *,
        floor: float = 0.0,
        keep: int = 0,
        zeta0: float | None = None,
        plain: Shares = NONE,
        judged_by: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> ClickForecast:
        """Build the forecast for the designs of ``closed_form`` with the same options.

        Args:
            tables: Documents of A's top k and of B's, a row for each search, NO_DOCUMENT past the end (``Pair.tables``).
            theta: Position bias.
            zeta: Predicted relevance per document.
            floor: Agreement floor of the design.
            keep: Ranks within which a document that both put first is kept.
            zeta0: Click rate for which the design is made, if any.
            plain: Shares of A/B traffic: A's own list and B's own.
            judged_by: Another theta and zeta by which the clicks on the design are forecast; by default its own.
        """
        if tables.max(initial=-1) >= np.size(zeta):
            raise ValueError(
                f"{np.size(zeta)} zeta, but the lists have a document {tables.max()}: there must be one each"
            )
        problem = checked_problem(tables, np.size(zeta), theta, zeta=zeta, floor=floor, keep=keep, zeta0=zeta0)
        bias, prediction = (np.asarray(one, np.float64) for one in judged_by or (theta, zeta))
        by_list = expected_clicks(tables, bias, prediction)
        shares = np.full(tables.shape[1], 1 / tables.shape[1])
        return cls(problem, bias, prediction[problem.documents], by_list[0], by_list[1], shares, plain)

    def designed(self, price: float) -> FloatArray:
        """Expected clicks on the design at this price, per query, without A/B traffic."""
        p = self.problem
        clicks: FloatArray = kernels.predicted_clicks(
            p.offsets, p.documents, p.need, p.least, p.zeta, price, p.bias, p.first, self.theta, self.zeta
        )
        return clicks

    def shown(self, price: float) -> float:
        """Expected clicks per impression at this price, with A/B traffic."""
        to_a, to_b = self.plain
        return float(self.shares @ ((1 - to_a - to_b) * self.designed(price) + to_a * self.a + to_b * self.b))

    @property
    def ab(self) -> float:
        """Clicks per impression of an A/B test."""
        return float(self.shares @ (self.a + self.b)) / 2


@dataclass(frozen=True, eq=False)
class CrossForecast:
    """Mean of forecasts, of designs made without a fold of a log and judged by that fold (``Searches.cross_fitted``).

    A design made from predicted relevance shows most of what is overrated by chance, so the same prediction forecasts too many
    clicks.
    """

    folds: Sequence[ClickForecast]

    def shown(self, price: float) -> float:
        """Clicks per impression at this price, A/B traffic included."""
        return float(np.average([fold.shown(price) for fold in self.folds], weights=self._searches))

    @property
    def ab(self) -> float:
        """Clicks per impression of an A/B test."""
        return float(np.average([fold.ab for fold in self.folds], weights=self._searches))

    @property
    def _searches(self) -> list[int]:
        return [len(fold.shares) for fold in self.folds]


@dataclass(frozen=True)
class BudgetPrice:
    """The price of clicks that a budget asks for.

    Attributes:
        price: For ``closed_form``.
        kept: Whether the budget is kept at that price. If not, no sensible price keeps it.
        clicks: To be expected per impression at that price, A/B traffic included.
        ab: To be expected of an A/B test.
    """

    price: float
    kept: bool
    clicks: float
    ab: float

    @property
    def loss(self) -> float:
        """Share of an A/B test's clicks that is lost; negative if there are more."""
        return 1 - self.clicks / self.ab if self.ab else 0.0


def price_for(
    forecast: ClickForecast | CrossForecast, loss: float = 0.0, *, least: float = 0.0, most: float = HIGHEST_SENSIBLE
) -> BudgetPrice:
    """The lowest price at which visitors lose at most this share of an A/B test's clicks, to one per cent.

    Args:
        loss: Share of an A/B test's clicks that visitors may lose; negative asks for a gain.
        least: The lowest price to consider.
        most: The highest price to consider. Where no price keeps the budget, the one with the most clicks is the answer, with
            ``kept`` false.

    >>> from ranktrial.rankings import Pair
    >>> pair = Pair.from_lists([["x", "y", "z"]], [["x", "z", "y"]], k=3)
    >>> forecast = ClickForecast.of(pair.tables, [1, 0.5, 0.25], zeta=[0.4, 0.3, 0.3])
    >>> round(forecast.ab, 4), round(forecast.shown(0), 4)  # the design demotes x, which both put first
    (0.625, 0.55)
    >>> found = price_for(forecast, loss=0.05)
    >>> round(found.price, 2), round(found.loss, 3), found.kept
    (0.67, 0.05, True)
    """
    checks.between("loss", loss, -10, 1)
    checks.between("most", most, LOWEST_PRICE, 1e12)
    ab = forecast.ab
    enough = (1 - loss) * ab * (1 - 1e-12)
    low = max(least, LOWEST_PRICE)
    tried = dict[float, float]()
    for price in sorted({least, low, most}):
        tried[price] = clicks = forecast.shown(price)
        if clicks >= enough:
            break
    if clicks < enough:
        for between in np.geomspace(low, most, BETWEEN + 2)[1:-1].tolist():
            tried[between] = forecast.shown(between)
        price = min((one for one in tried if tried[one] >= enough), default=max(tried, key=tried.__getitem__))
    if price <= low or tried[price] < enough:
        return BudgetPrice(price, tried[price] >= enough, tried[price], ab)
    below = max(one for one in tried if one < price)
    price, clicks = _first_enough(forecast, enough, (below, tried[below]), (price, tried[price]))
    return BudgetPrice(price, True, clicks, ab)


def _first_enough(
    forecast: ClickForecast | CrossForecast, enough: float, below: tuple[float, float], above: tuple[float, float]
) -> tuple[float, float]:
    """A price that has enough clicks where one per cent less has not, and its clicks, between two prices with their clicks.

    By false position on the logarithm of the price, a little beyond the zero each time so that both ends close in; by
    bisection where the last step did not halve the distance.
    """
    low, short = log(below[0]), below[1] - enough
    high, beyond, clicks = log(above[0]), above[1] - enough, above[1]
    close = log(CLOSE_ENOUGH)
    past = 0.0
    before = np.inf
    while (distance := high - low) > close:
        middle = low + distance / 2
        if distance <= before / 2:
            zero = low + distance * short / (short - beyond)
            middle = min(max(zero + past, low + close / 3), high - close / 3)
        before = distance
        there = forecast.shown(exp(middle))
        if there >= enough:
            high, beyond, clicks, past = middle, there - enough, there, -close / 3
        else:
            low, short, past = middle, there - enough, close / 3
    return exp(high), clicks
