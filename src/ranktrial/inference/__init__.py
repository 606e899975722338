"""How sure: estimates from logs, intervals that stay valid when people peek, plans before any click."""

from ranktrial.inference.ab import estimate_ab
from ranktrial.inference.estimators import Estimate, estimate, estimate_ips
from ranktrial.inference.intervals import (
    Band,
    UnitSums,
    asymptotic_radius,
    asymptotic_sequence,
    betting_sequence,
    difference_values,
    fixed_interval,
    refuted_after,
)
from ranktrial.inference.log import ClickLog
from ranktrial.inference.planning import ClickRate, Plan, plan
from ranktrial.inference.uncertainty import JackknifeEstimate, with_estimated_bias

__all__ = [
    "Band",
    "ClickLog",
    "ClickRate",
    "Estimate",
    "JackknifeEstimate",
    "Plan",
    "UnitSums",
    "asymptotic_radius",
    "asymptotic_sequence",
    "betting_sequence",
    "difference_values",
    "estimate",
    "estimate_ab",
    "estimate_ips",
    "fixed_interval",
    "plan",
    "refuted_after",
    "with_estimated_bias",
]
