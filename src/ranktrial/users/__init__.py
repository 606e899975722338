"""How people click: behaviours to simulate, and position-bias models to fit."""

from ranktrial.users.auto import Auto
from ranktrial.users.behaviour import User, cascade, position_based, position_bias, trust_bias
from ranktrial.users.conditional import Conditional
from ranktrial.users.counts import Counts
from ranktrial.users.em import EM
from ranktrial.users.harvesting import Harvesting
from ranktrial.users.identifiability import Identifiability, NotIdentifiable, identifiability
from ranktrial.users.jackknife import jackknife
from ranktrial.users.position_model import Estimator, PositionBias
from ranktrial.users.regression_em import Regression, RegressionEM
from ranktrial.users.relevance import Examinations, relevance_guess, shrunken_guess
from ranktrial.users.trust import TrustBias, trust_bias_lines

__all__ = [
    "EM",
    "Auto",
    "Conditional",
    "Counts",
    "Estimator",
    "Examinations",
    "Harvesting",
    "Identifiability",
    "NotIdentifiable",
    "PositionBias",
    "Regression",
    "RegressionEM",
    "TrustBias",
    "User",
    "cascade",
    "identifiability",
    "jackknife",
    "position_based",
    "position_bias",
    "relevance_guess",
    "shrunken_guess",
    "trust_bias",
    "trust_bias_lines",
]
