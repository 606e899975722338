"""Estimators of Delta as value objects, which print as written and parse back: ``RankAware()``, or "rank-aware" for short.

Each says what it assumes and needs. An estimator of one's own is one class, with ``values`` (``observed.py`` is a model).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ranktrial.analysis.intervals import difference_values
from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.log.log import Log
from ranktrial.rankings.values import checked_clip
from ranktrial.spelling import parsed_object, spelled_object


class ClickValues(NamedTuple):
    """Values x of impressions: a number for each, plus the weights of its clicks.

    Attributes:
        weights: Weight of each click of ``log.clicked``.
        base: Value of every impression before its clicks.
        largest: Largest absolute weight that a click can have; by default of those that there were.
        lost: Bound on the change of the sum of x by a bias that the estimator allows.
    """

    weights: FloatArray
    base: FloatArray | float = 0.0
    largest: float | None = None
    lost: float = 0.0


@dataclass(frozen=True, repr=False)
class DeltaEstimator:
    """Estimator of Delta = CTR(A) - CTR(B), the mean of a value x of every search.

    >>> RankAware(), IPS(clip=2.0), parse_estimator("doubly-robust"), parse_estimator("IPS(clip=2)") == IPS(clip=2)
    (RankAware(), IPS(clip=2), DoublyRobust(), True)
    """

    registry: ClassVar[dict[str, type[DeltaEstimator]]] = {}
    assumes: ClassVar[str] = "a click is the chance that its rank is looked at times the document's relevance"
    of_ab_traffic: ClassVar[bool] = False  # needs A/B traffic, and nothing else: no theta, no click model
    by_click_model: ClassVar[bool] = (
        False  # unbiased given theta: it also estimates the gain in clicks of what was shown
    )
    has_prediction: ClassVar[bool] = False  # needs a prediction of relevance, which is made from the log unless given
    one_relevance: ClassVar[bool] = False  # the same prediction for all documents
    rank_aware: ClassVar[bool] = False  # weighs clicks by what their rank can tell
    at_list_ranks: ClassVar[bool] = (
        False  # counts clicks at the ranks in A's list and in B's: theta enters the prediction only
    )
    theta_error: ClassVar[bool] = True  # has the error of a fitted theta in its own
    whole_log: ClassVar[bool] = False  # cannot be worked out chunk by chunk
    clicks_only: ClassVar[bool] = True  # of no other metric
    adds_up: ClassVar[bool] = False  # can be computed by sums where the log is (``formats.estimating``)

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if not abstract:
            DeltaEstimator.registry[cls.__name__] = cls

    @property
    def weight_cap(self) -> float | None:
        """Largest absolute weight allowed; None for no limit."""
        return None

    def values(self, log: Log, theta: FloatArray, lam: FloatArray) -> ClickValues:
        """Values of the impressions of a log, or of a chunk of it, by an estimator without a prediction.

        ``lam`` is, of every slot, its exposure in A's list less that in B's; 0 where it could not be seen.
        """
        raise NotImplementedError(f"{self} has no values(log, theta, lam)")

    __repr__ = spelled_object


@dataclass(frozen=True, repr=False)
class ByFormula(DeltaEstimator, abstract=True):
    """Estimator by the one formula of ``rankings.values``, which ``valuing`` computes with what the class declares."""


@dataclass(frozen=True, repr=False)
class ByClickModel(ByFormula, abstract=True):
    """Estimator by the click model, unbiased given theta.

    Attributes:
        clip: Caps weights, and widens the interval by the bias that can cost.
    """

    by_click_model: ClassVar[bool] = True
    clicks_only: ClassVar[bool] = False
    clip: float | None = None

    def __post_init__(self) -> None:
        checked_clip(self.clip)

    @property
    def weight_cap(self) -> float | None:
        return self.clip


@dataclass(frozen=True, repr=False)
class IPS(ByClickModel):
    """The paper's Eq. ips, inverse propensity scoring: needs nothing but clicks and theta.

    >>> IPS(clip=10.0)
    IPS(clip=10)
    """

    adds_up: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class Constant(ByClickModel):
    """IPS less the clicks to be expected if all documents were equally relevant.

    >>> Constant().one_relevance
    True
    """

    has_prediction: ClassVar[bool] = True
    one_relevance: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class DoublyRobust(ByClickModel):
    """IPS less the clicks to be expected by a prediction for every document, made from other impressions of the log.

    >>> parse_estimator("doubly-robust")
    DoublyRobust()
    """

    has_prediction: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class RankAware(DoublyRobust):
    """``DoublyRobust`` that weighs clicks by what their rank can tell: the least variance, hence the default.

    >>> RankAware().assumes
    "a click is the chance that its rank is looked at times the document's relevance"
    """

    rank_aware: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class Direct(ByFormula):
    """Clicks at the ranks that documents have in A's list and in B's, over how often they stood there.

    Right for clicks that depend on document and rank in any way; much more variance unless a good part of the traffic is A/B.

    >>> Direct().assumes
    'a click depends on the document and its rank alone'
    """

    assumes: ClassVar[str] = "a click depends on the document and its rank alone"
    has_prediction: ClassVar[bool] = True
    at_list_ranks: ClassVar[bool] = True
    theta_error: ClassVar[bool] = False
    clicks_only: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class SelfNormalised(ByFormula):
    """IPS over the sum of weights instead of its expectation: biased with few searches, to compare with."""

    whole_log: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class OfABTraffic(DeltaEstimator, abstract=True):
    """Estimator from A/B traffic, without click model or position bias: the check of every other estimate."""

    assumes: ClassVar[str] = "nothing about how people click"
    of_ab_traffic: ClassVar[bool] = True
    clicks_only: ClassVar[bool] = False

    def arm_values(self, in_a: BoolArray, y: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """x and the weight of a click, of impressions with y clicks that showed A's list with probability ``share``.

        None for an estimator that needs a prediction of the clicks.
        """
        return None


@dataclass(frozen=True, repr=False)
class Paper(OfABTraffic):
    """The paper's x = (1[A]/P(A) - 1[B]/P(B)) clicks."""

    def arm_values(self, in_a: BoolArray, y: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        sign_over_share = np.where(in_a, 1 / share, -1 / (1 - share))
        return sign_over_share * y, sign_over_share


@dataclass(frozen=True, repr=False)
class Means(OfABTraffic):
    """Difference of the mean clicks of both arms: 2-3 times less variance than ``Paper``.

    >>> Means().assumes
    'nothing about how people click'
    """

    def arm_values(self, in_a: BoolArray, y: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        return difference_values(y, in_a), np.where(in_a, 1 / in_a.mean(), -1 / (~in_a).mean())


@dataclass(frozen=True, repr=False)
class Adjusted(OfABTraffic):
    """Difference adjusted by query, with a prediction m of the clicks of each arm from other impressions:

        x = m_A - m_B + 1[A]/P(A) (clicks - m_A) - 1[B]/P(B) (clicks - m_B).

    Unbiased whatever the predictions; the better they are the less variance. They are means per query and arm, shrunk
    towards those of the arms as much as their spread tells. Where both rankers have the same list x is 0.

    >>> Adjusted().of_ab_traffic, RankAware().of_ab_traffic
    (True, False)
    """


def parse_estimator(given: str | DeltaEstimator, **options: Any) -> DeltaEstimator:
    """The estimator that a text names, with more options if any are given.

    >>> parse_estimator("rank-aware"), parse_estimator("SelfNormalised"), parse_estimator("ips", clip=2)
    (RankAware(), SelfNormalised(), IPS(clip=2))
    """
    registry = DeltaEstimator.registry
    if isinstance(given, DeltaEstimator):
        if options:
            raise ValueError(f"{', '.join(options)} cannot be given beside {given}: write it inside the brackets")
        return given
    short = {re.sub("(?<=[a-z])(?=[A-Z])", "-", name).lower(): name for name in registry}
    example = 'RankAware(), or "rank-aware" for short'
    return parsed_object(short.get(given, given), registry.get, short, what="an estimator", example=example, **options)
