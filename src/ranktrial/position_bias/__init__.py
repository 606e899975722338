"""Who is seen: estimators of position bias and relevance, what a log can tell of them, and how surely."""

from ranktrial.position_bias.auto import Auto
from ranktrial.position_bias.conditional import Conditional
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.em import EM
from ranktrial.position_bias.harvesting import Harvesting
from ranktrial.position_bias.identifiability import Identifiability, NotIdentifiable, identifiability
from ranktrial.position_bias.jackknife import fit_groups, jackknife
from ranktrial.position_bias.model import Estimator, PositionBias
from ranktrial.position_bias.regression_em import Regression, RegressionEM
from ranktrial.position_bias.relevance import Examinations, RelevanceFit, relevance_guess, shrunken_guess
from ranktrial.position_bias.trust import TrustBias, trust_bias_lines

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
    "RelevanceFit",
    "TrustBias",
    "fit_groups",
    "identifiability",
    "jackknife",
    "relevance_guess",
    "shrunken_guess",
    "trust_bias_lines",
]
