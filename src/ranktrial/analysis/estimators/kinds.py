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
from ranktrial.rankings.propensity import checked_clip
from ranktrial.spelling import parsed_object, spelled_object

ONE_RELEVANCE, BY_RANK = "one relevance", "relevance by rank"  # relevance models


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
    theta_error: ClassVar[bool] = True  # has the error of a fitted theta in its own
    whole_log: ClassVar[bool] = False  # cannot be worked out chunk by chunk

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if not abstract:
            DeltaEstimator.registry[cls.__name__] = cls

    def values(self, log: Log, theta: FloatArray, lam: FloatArray) -> ClickValues:
        """Values of the impressions of a log, or of a chunk of it, by an estimator without a prediction.

        ``lam`` is, of every slot, its exposure in A's list less that in B's; 0 where it could not be seen.
        """
        raise NotImplementedError(f"{self} has no values(log, theta, lam)")

    __repr__ = spelled_object


@dataclass(frozen=True, repr=False)
class ByFormula(DeltaEstimator, abstract=True):
    """Estimator by the one formula of ``rankings.values``, which ``valuing`` computes with what the class declares."""

    predicts: ClassVar[str] = ""  # the relevance model that it needs, and that is fitted to the log unless one is given
    rank_aware: ClassVar[bool] = False  # weighs clicks by what their rank can tell


@dataclass(frozen=True, repr=False)
class ByClickModel(ByFormula, abstract=True):
    """Estimator by the click model, unbiased given theta: it also estimates the gain in clicks of what was shown.

    Attributes:
        clip: Caps weights, and widens the interval by the bias that can cost.
    """

    clip: float | None = None

    def __post_init__(self) -> None:
        checked_clip(self.clip)


@dataclass(frozen=True, repr=False)
class IPS(ByClickModel):
    """The paper's Eq. ips, inverse propensity scoring: needs nothing but clicks and theta.

    >>> IPS(clip=10.0)
    IPS(clip=10)
    """


@dataclass(frozen=True, repr=False)
class Constant(ByClickModel):
    """IPS less the clicks to be expected if all documents were equally relevant.

    >>> Constant().predicts
    'one relevance'
    """

    predicts: ClassVar[str] = ONE_RELEVANCE


@dataclass(frozen=True, repr=False)
class DoublyRobust(ByClickModel):
    """IPS less the clicks to be expected by a prediction for every document, made from other impressions of the log.

    >>> parse_estimator("doubly-robust")
    DoublyRobust()
    """

    predicts: ClassVar[str] = BY_RANK


@dataclass(frozen=True, repr=False)
class RankAware(DoublyRobust):
    """``DoublyRobust`` that weighs clicks by what their rank can tell: the least variance, hence the default.

    >>> RankAware().assumes
    "a click is the chance that its rank is looked at times the document's relevance"
    """

    rank_aware: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class Direct(ByFormula):
    """Clicks at the ranks that documents have in A's list and in B's, over how often they stood there.

    Right for clicks that depend on document and rank in any way; much more variance unless a good part of the traffic is A/B.
    Theta enters the prediction only.

    >>> Direct().assumes
    'a click depends on the document and its rank alone'
    """

    assumes: ClassVar[str] = "a click depends on the document and its rank alone"
    predicts: ClassVar[str] = BY_RANK
    theta_error: ClassVar[bool] = False


@dataclass(frozen=True, repr=False)
class SelfNormalised(ByFormula):
    """IPS over the sum of weights instead of its expectation: biased with few searches, to compare with."""

    whole_log: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class OfABTraffic(DeltaEstimator, abstract=True):
    """Estimator from A/B traffic, without click model or position bias: the check of every other estimate."""

    assumes: ClassVar[str] = "nothing about how people click"

    def arm_values(self, in_a: BoolArray, y: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """x and the weight of a click, of impressions with y clicks that showed A's list with probability ``share``.

        ``Adjusted`` has none: it also needs a prediction of the clicks (``ab``).
        """
        raise NotImplementedError(f"{self} has no arm_values(in_a, y, share)")


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

    >>> isinstance(Adjusted(), OfABTraffic), isinstance(RankAware(), OfABTraffic)
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
