"""Statistics of a comparison: estimates, intervals that stay valid under peeking, guardrails, the decision, and plans."""

from ranktrial.analysis.answers import Answer, decide
from ranktrial.analysis.decision import Combined, Decision, combine
from ranktrial.analysis.drift import Drift, position_scores
from ranktrial.analysis.estimators.ab import estimate_ab
from ranktrial.analysis.estimators.estimation import estimate, fit_position_bias
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
from ranktrial.analysis.estimators.results import BiasFit, Estimate
from ranktrial.analysis.evidence import Gain, click_gain, evidence
from ranktrial.analysis.intervals import (
    Band,
    asymptotic_radius,
    asymptotic_sequence,
    betting_sequence,
    difference_values,
    fixed_interval,
    looks,
    refuted_after,
)
from ranktrial.analysis.ladder import EstimatorResult, Hausman, Ladder, ladder
from ranktrial.analysis.planning.metrics import KnownMetric
from ranktrial.analysis.planning.plan import plan
from ranktrial.analysis.planning.results import Plan
from ranktrial.analysis.planning.users import ClickRate
from ranktrial.analysis.verdict import Verdict, verdict

__all__ = [
    "IPS",
    "Adjusted",
    "Answer",
    "Band",
    "BiasFit",
    "ClickRate",
    "ClickValues",
    "Combined",
    "Constant",
    "Decision",
    "DeltaEstimator",
    "Direct",
    "DoublyRobust",
    "Drift",
    "Estimate",
    "EstimatorResult",
    "Gain",
    "Hausman",
    "KnownMetric",
    "Ladder",
    "Means",
    "Observed",
    "Paper",
    "Plan",
    "RankAware",
    "SelfNormalised",
    "Verdict",
    "asymptotic_radius",
    "asymptotic_sequence",
    "betting_sequence",
    "click_gain",
    "combine",
    "decide",
    "difference_values",
    "estimate",
    "estimate_ab",
    "evidence",
    "fit_position_bias",
    "fixed_interval",
    "ladder",
    "looks",
    "parse_estimator",
    "plan",
    "position_scores",
    "refuted_after",
    "verdict",
]
