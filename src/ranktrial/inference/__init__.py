"""How sure: the log, estimates from it, intervals that stay valid when people peek, plans before any click."""

from ranktrial.inference.estimation import estimate, estimate_ab, fit_position_bias
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
from ranktrial.inference.log import Log
from ranktrial.inference.planning import ClickRate, Plan, plan
from ranktrial.inference.results import BiasFit, Estimate

__all__ = [
    "Band",
    "BiasFit",
    "ClickRate",
    "Estimate",
    "Log",
    "Plan",
    "UnitSums",
    "asymptotic_radius",
    "asymptotic_sequence",
    "betting_sequence",
    "difference_values",
    "estimate",
    "estimate_ab",
    "fit_position_bias",
    "fixed_interval",
    "plan",
    "refuted_after",
]
