"""LogOpt in closed form: counterfactual evaluation with the logging policy of least variance, kept up to date on the way.

The loop is the paper's Algorithm 1 (Oosterhuis and de Rijke 2020), without its training. Before the first impression and at
each point of a schedule: estimate position bias from the log where it is not known, and relevance where the estimate or the
design uses it; compute the design of least variance; show its rankings from then on, with some A/B traffic among them. Each
impression is valued with the placement of the design that showed it and with a relevance model fitted before it, so estimates
stay unbiased given position bias however good the model is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ranktrial import checks
from ranktrial.arrays import DocumentArray, FloatArray
from ranktrial.design.budget import ClickForecast, CrossForecast, price_for
from ranktrial.design.closed_form import closed_form, closed_form_query
from ranktrial.methods._kernels.predictions import list_prediction
from ranktrial.methods.base import Traits
from ranktrial.methods.beliefs import FIRST_PRICE, NOTHING, Beliefs, Evidence, expected_beliefs
from ranktrial.methods.click_model import ESTIMATES, SCHEDULE, ClickModelMethod
from ranktrial.methods.displays import Displays
from ranktrial.methods.searches import FIRST_LISTS, Searches, expected_searches
from ranktrial.rankings import Mixture, Pair
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.users import User

RELEVANCE = ("constant", "estimated", "true")
MISTAKE = 0.01  # share of an A/B test's clicks by which forecasts are off: what was measured more surely is asked for
MARGIN = 0.004  # share asked for beyond the budget: the lowest price that seems enough is on average a little too low
LEAST_PRICE = 0.1  # gives visitors what costs next to no impressions
MOST_SPENT = 0.02  # share of an A/B test's clicks: the most that is allowed ahead, or asked back, for what was measured


@dataclass(frozen=True, repr=False)
class LogOpt(ClickModelMethod):
    """Counterfactual evaluation with the logging policy of least variance, in closed form: no training, no features.

    Attributes:
        bias: Position bias "estimated" from the clicks on the way, or "known" (the pair's theta, or the trial's).
        relevance: Relevance that the design is made for: "estimated" on the way, from what places in the lists tell over all
            queries and from what is known of single documents; "constant", the same for all documents; or "true", for
            simulations only.
        estimate: Value of an impression: "ips" as the paper has it; "constant" subtracts the clicks to be expected if
            all documents were equally relevant; "doubly-robust" those expected from earlier clicks; "rank-aware" also weighs
            clicks by what their rank tells. All unbiased, each with less variance than the last.
        loss: The share of an A/B test's clicks that visitors may lose; negative asks for a gain. None: whatever it takes. A
            design with constant relevance cannot tell what it costs, and has no budget.
        keep: A result that both rankers put first is on every page, within the first so many: visitors would miss it. 0 lets it
            be anywhere, or nowhere.
        floor: The share of its lesser exposure under A and B that every document keeps, from 0 to 1.
        holdback: The share of impressions that show A's own list or B's own, half each: what a click model can be checked with.
            Two shares are the first and the least: at each point of the schedule it is halved if little bias can hide in the
            estimate, against its interval, and everything is A/B while the click model is refuted, or where A/B traffic is
            likely to decide first. One share stays as it is.
        schedule: After how many impressions beliefs are fitted anew, and the design with them.

    >>> from ranktrial.methods import AB
    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists([["a", "b", "c"]], [["b", "c", "a"]], k=2).knowing(theta=[1.0, 0.6])
    >>> user = position_based(zeta=[0.5, 0.3, 0.2], theta=[1.0, 0.6])
    >>> for method in (AB(), LogOpt(), LogOpt(relevance="constant", loss=None, keep=0, holdback=0)):
    ...     moments = method.moments(pair, user)  # half the variance is half the impressions
    ...     print(method, round(moments.mean, 3), round(moments.variance, 3))
    AB() 0.26 1.426
    LogOpt() 0.26 0.774
    LogOpt(relevance="constant", loss=None, keep=0, holdback=0) 0.26 0.578
    """

    bias: str = "estimated"
    schedule: tuple[int, ...] = SCHEDULE
    relevance: str = "estimated"
    estimate: str = "rank-aware"
    loss: float | None = 0.0
    keep: int = 3
    floor: float = 0.0
    holdback: float | tuple[float, float] = (0.5, 0.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("relevance", self.relevance, RELEVANCE)
        checks.one_of("estimate", self.estimate, ESTIMATES)
        checks.between("floor", self.floor, 0, 1)
        checks.whole("keep", self.keep, 0, MOST_RANKS)
        if self.loss is not None:
            checks.between("loss", self.loss, -1, 1)
        self._check_holdback()
        if self.relevance == "true" and self.bias == "estimated":
            raise ValueError('relevance="true" is the Oracle, which knows the bias: bias="known"')

    # --- what it shows, and what that is worth ------------------------------------------------------------------------

    def query_policy(
        self, a: DocumentArray, b: DocumentArray, beliefs: Beliefs, effects: FloatArray | None = None
    ) -> tuple[DocumentArray, FloatArray]:
        zeta = None
        if self._tells_documents_apart(beliefs):
            known = NOTHING if effects is None else effects
            zeta = list_prediction(a, b, len(beliefs.theta), beliefs.coefficients, known)
        return closed_form_query(a, b, beliefs.theta, zeta=zeta, **self._options(beliefs))

    def policy(self, pair: Pair, beliefs: Beliefs | None = None, *, zeta: FloatArray | None = None) -> Mixture:
        """Design for the given beliefs, by default that the pair's theta is right; ``zeta`` is relevance per document."""
        known = Beliefs(pair.known_theta) if beliefs is None else beliefs
        if zeta is None and self._tells_documents_apart(known):
            zeta = known.prediction(*pair.ranks)
        return closed_form(pair, known.theta, zeta=zeta, **self._options(known))

    def _tells_documents_apart(self, beliefs: Beliefs) -> bool:
        """True if the design uses a relevance of each document: fitted to clicks, or with a click budget also the prior."""
        return self.relevance == "estimated" and (self.loss is not None or beliefs.lists is not FIRST_LISTS)

    def _options(self, beliefs: Beliefs) -> dict[str, Any]:
        return {
            "floor": self.floor,
            "keep": min(self.keep, len(beliefs.theta)),
            "zeta0": beliefs.relevance if self.estimate == "rank-aware" else None,
            "plain": self.traits.ab_shares if beliefs.plain is None else (beliefs.plain / 2, beliefs.plain / 2),
            "price": 0.0 if self.loss is None else beliefs.price,
        }

    def displays(self, pair: Pair, beliefs: Beliefs | None = None) -> Displays:
        """Displays before any click, as if position bias were known, unless beliefs are given."""
        if self.relevance == "true":
            raise ValueError('relevance="true" needs a user to know it from: use simulate')
        return super().displays(pair, beliefs)

    def planned_beliefs(self, pair: Pair, user: User) -> Beliefs:
        known = replace(expected_beliefs(pair, user), plain=self.first_and_least[bool(self.schedule)])
        if not self.schedule:
            return replace(known, lists=FIRST_LISTS, price=FIRST_PRICE)
        return replace(known, price=self.price(expected_searches(pair, user), known))

    def with_loss(self, loss: float) -> LogOpt | None:
        """Return the method with another click budget; None if it has none."""
        return None if self.loss is None or self.relevance != "estimated" else replace(self, loss=loss)

    def learn(self, evidence: Evidence, beliefs: Beliefs) -> Beliefs:
        found = super().learn(evidence, beliefs)
        found = replace(found, plain=self.next_share(found, evidence.agree))
        if evidence.searches is None or self.loss is None:
            return found
        allowed = self.allowed_loss(evidence.gained, evidence.impressions)
        return replace(found, price=self.price(evidence.searches, found, allowed))

    def price(self, searches: Searches, beliefs: Beliefs, loss: float | None = None) -> float:
        """The lowest price of a click that keeps a loss, by default the method's own: by what each fold of the log says of
        designs made from the others."""
        if self.loss is None or self.relevance != "estimated" or not len(searches.unit):
            return beliefs.price
        options = self._options(beliefs)
        theta = beliefs.theta
        del options["price"]
        forecast = CrossForecast(
            [
                ClickForecast.of(tables, theta, prediction, judged_by=(theta, judged), **options)
                for tables, prediction, judged in searches.cross_fitted(theta, effects=beliefs.effects is not None)
            ]
        )
        if not forecast.ab > 0:  # so few clicks that nothing can be forecast
            return beliefs.price
        allowed = (self.loss if loss is None else loss) - MARGIN
        return price_for(forecast, allowed, least=LEAST_PRICE, most=FIRST_PRICE).price

    def allowed_loss(self, gained: tuple[float, float] | None, impressions: int) -> float:
        """Share of an A/B test's clicks that visitors may lose until the schedule's next point, to keep the budget then.

        Clicks gained beyond the budget so far may be spent, and clicks lost are asked back. A gain that was measured with an
        error counts less, in proportion to the squared error of a forecast.
        """
        assert self.loss is not None
        if gained is None or not impressions:
            return self.loss
        gain, error = gained
        beyond = MISTAKE**2 / (MISTAKE**2 + error**2) * (gain + self.loss)
        ahead = next((point - impressions for point in self.schedule if point > impressions), impressions)
        spent = beyond * min(impressions / ahead, 1.0)
        return self.loss + min(max(spent, -MOST_SPENT), MOST_SPENT)

    def next_share(self, beliefs: Beliefs, agree: bool | None) -> float:
        """Share of A/B traffic from now on: half of it if estimates agree and theta is fitted, 1 if ``agree`` is False."""
        first, least = self.first_and_least
        now = first if beliefs.plain is None else beliefs.plain
        if first == least or agree is None or (agree and self.traits.learns_position_bias and not beliefs.fitted):
            return now
        return max(now / 2, least) if agree else 1.0

    # --- what is known of it ------------------------------------------------------------------------------------------

    @property
    def first_and_least(self) -> tuple[float, float]:
        """Shares of A/B traffic at the start, and the least once little bias can hide."""
        return self.holdback if isinstance(self.holdback, tuple) else (self.holdback, self.holdback)

    @cached_property
    def traits(self) -> Traits:
        share = self.first_and_least[0] / 2
        estimator = "" if self.relevance == "true" else self.estimate
        return replace(super().traits, ab_shares=(share, share), estimator=estimator)

    def _check_holdback(self) -> None:
        if isinstance(self.holdback, tuple | list):
            if len(self.holdback) != 2 or not 0 <= self.holdback[1] <= self.holdback[0] <= 1:
                raise ValueError(
                    f"holdback is {self.holdback}, must be one share, or the first and the least from 1 to 0"
                )
            object.__setattr__(self, "holdback", tuple(self.holdback))
        else:
            checks.between("holdback", self.holdback, 0, 1)
