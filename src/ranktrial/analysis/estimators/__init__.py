"""Estimators of Delta from a log: A/B traffic, the click model, trust bias; each with its error."""

from ranktrial.analysis.estimators.kinds import (
    IPS,
    Adjusted,
    ClickValues,
    Constant,
    DeltaEstimator,
    Direct,
    DoublyRobust,
    Means,
    Paper,
    RankAware,
    SelfNormalised,
    parse_estimator,
)
from ranktrial.analysis.estimators.observed import Observed

__all__ = [
    "IPS",
    "Adjusted",
    "ClickValues",
    "Constant",
    "DeltaEstimator",
    "Direct",
    "DoublyRobust",
    "Means",
    "Observed",
    "Paper",
    "RankAware",
    "SelfNormalised",
    "parse_estimator",
]
