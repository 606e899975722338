"""Methods to compare two rankers, one file each: a distribution over displays plus a value for click patterns."""

from ranktrial.methods.ab import AB
from ranktrial.methods.adaptive import AdaptiveRun
from ranktrial.methods.balanced import Balanced
from ranktrial.methods.base import LiveMethod, Method, Traits, known_methods, parse_method
from ranktrial.methods.beliefs import Beliefs
from ranktrial.methods.counterfactual import Counterfactual
from ranktrial.methods.debiased_balanced import DebiasedBalanced
from ranktrial.methods.displays import Display, Displays, Linear, Majority, TooManyDisplaysError
from ranktrial.methods.expected import ExpectedRun
from ranktrial.methods.logopt import LogOpt
from ranktrial.methods.optimized import Optimized
from ranktrial.methods.probabilistic import Probabilistic
from ranktrial.methods.team_draft import TeamDraft
from ranktrial.methods.trajectory import Trajectory

__all__ = [
    "AB",
    "AdaptiveRun",
    "Balanced",
    "Beliefs",
    "Counterfactual",
    "DebiasedBalanced",
    "Display",
    "Displays",
    "ExpectedRun",
    "Linear",
    "LiveMethod",
    "LogOpt",
    "Majority",
    "Method",
    "Optimized",
    "Probabilistic",
    "TeamDraft",
    "TooManyDisplaysError",
    "Traits",
    "Trajectory",
    "known_methods",
    "parse_method",
]
