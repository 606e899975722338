"""How sure: the log, estimates from it, intervals that stay valid when people peek, plans before any click."""

from ranktrial.inference.drift import Drift, position_scores
from ranktrial.inference.estimation import estimate, estimate_ab, fit_position_bias
from ranktrial.inference.intervals import (
    Band,
    UnitSums,
    asymptotic_radius,
    asymptotic_sequence,
    betting_sequence,
    difference_values,
    fixed_interval,
    looks,
    refuted_after,
)
from ranktrial.inference.log import Log
from ranktrial.inference.planning import ClickRate, Plan, plan
from ranktrial.inference.results import BiasFit, Estimate

__all__ = [
    "Band",
    "BiasFit",
    "ClickRate",
    "Drift",
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
    "looks",
    "plan",
    "position_scores",
    "refuted_after",
]
