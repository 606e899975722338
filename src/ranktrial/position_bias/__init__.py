"""Click models: estimators of position bias and relevance, their identifiability in a log, and jackknife errors."""

from ranktrial.position_bias.auto import Auto
from ranktrial.position_bias.conditional import Conditional
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import Identifiability, NotIdentifiable, identifiability
from ranktrial.position_bias.jackknife import fit_groups
from ranktrial.position_bias.model import Estimator, PositionBias
from ranktrial.position_bias.relevance import Examinations, RelevanceFit, relevance_prediction

__all__ = [
    "Auto",
    "Conditional",
    "Counts",
    "Estimator",
    "Examinations",
    "Identifiability",
    "NotIdentifiable",
    "PositionBias",
    "RelevanceFit",
    "fit_groups",
    "identifiability",
    "relevance_prediction",
]
