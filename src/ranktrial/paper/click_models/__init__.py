"""Click models that the paper's network is trained with: EM and regression-EM for position bias and relevance."""

from ranktrial.paper.click_models.em import EM
from ranktrial.paper.click_models.regression_em import Regression, RegressionEM

__all__ = ["EM", "Regression", "RegressionEM"]
