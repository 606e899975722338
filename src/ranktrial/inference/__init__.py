"""How sure: the log, estimates from it, intervals that stay valid when people peek, plans before any click."""

from ranktrial.inference.drift import Drift, position_scores
from ranktrial.inference.estimation import estimate, estimate_ab, fit_position_bias
from ranktrial.inference.evidence import Gain, click_gain, evidence
from ranktrial.inference.intervals import (
    Band,
    asymptotic_radius,
    asymptotic_sequence,
    betting_sequence,
    difference_values,
    fixed_interval,
    looks,
    refuted_after,
)
from ranktrial.inference.ladder import Hausman, Ladder, Rung, ladder
from ranktrial.inference.log import Log
from ranktrial.inference.plan_results import Plan
from ranktrial.inference.planning import plan
from ranktrial.inference.plausible_users import ClickRate
from ranktrial.inference.results import BiasFit, Estimate
from ranktrial.inference.rules import LeftOut, Rules, apply_rules, heaviest_unit
from ranktrial.inference.units import UnitSums

__all__ = [
    "Band",
    "BiasFit",
    "ClickRate",
    "Drift",
    "Estimate",
    "Gain",
    "Hausman",
    "Ladder",
    "LeftOut",
    "Log",
    "Plan",
    "Rules",
    "Rung",
    "UnitSums",
    "apply_rules",
    "asymptotic_radius",
    "asymptotic_sequence",
    "betting_sequence",
    "click_gain",
    "difference_values",
    "estimate",
    "estimate_ab",
    "evidence",
    "fit_position_bias",
    "fixed_interval",
    "heaviest_unit",
    "ladder",
    "looks",
    "plan",
    "position_scores",
    "refuted_after",
]
