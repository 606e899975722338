"""Metrics as they are known before a trial, and what they add to the variance of clicks.

A click brings a value V of mean m and mean square m^2 (1 + noise). The value of an impression in two parts
(``estimators.metric_values``) then varies by

    Var = m^2 (Var(x) + noise E[sum over clicks of (lambda_d / rho_d)^2]),

where Var(x) is that of clicks: orders are noise on top, at the squared weights of clicks. That the values of documents differ
counts as noise too; a trial learns these on the way, and needs a little less. In an A/B test a click has the weight 2.

A page metric, which only A/B traffic can tell, has 4 times its own variance, over the share of A/B traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial import checks
from ranktrial.analysis.estimators.metric_values import metric_values
from ranktrial.arrays import FloatArray
from ranktrial.log.log import Log
from ranktrial.metrics import Clicks, Metric, parse_metric

OF_RESULTS = "the share of clicks with a value, and the mean and standard deviation of these values"
OF_PAGES = "its mean, and its standard deviation unless it is a share of searches"


@dataclass(frozen=True)
class KnownMetric:
    """A metric and what is known of it before a trial.

    Attributes:
        metric: The metric.
        mean: Mean value, of a click for values of results, of a search for page metrics.
        sd: Standard deviation of that value.
        occasions: Share of clicks, or of searches, with a value.

    >>> orders = KnownMetric.given("Orders()", 0.05)
    >>> orders.metric, orders.mean, round(orders.noise, 6)  # of clicks: 0.95 / 0.05
    (Orders(window="7d"), 0.05, 19.0)
    """

    metric: Metric
    mean: float
    sd: float
    occasions: float

    def __post_init__(self) -> None:
        if not (self.mean > 0 and self.occasions > 0 and np.isfinite(self.sd)):
            raise ValueError(
                f"{self.metric} is {self.mean:g} on average: it must be above 0 for a difference to be found"
            )

    @classmethod
    def given(cls, metric: Metric | str, *numbers: float) -> KnownMetric:
        """Take numbers that somebody knows.

        Of a value of results: the share of clicks that have one, and its mean (1) and standard deviation (0) where it has, both
        once capped. Of a page metric: its mean and standard deviation; of a share of searches the mean will do.
        """
        kind = parse_metric(metric) if isinstance(metric, str) else metric
        if isinstance(kind, Clicks):
            return cls(kind, 1.0, 0.0, 1.0)
        if not 1 + kind.of_mean <= len(numbers) <= 2 + kind.of_results:
            wanted = OF_RESULTS if kind.of_results else OF_PAGES
            raise ValueError(f"{kind} has {len(numbers)} numbers, must have {wanted}")
        if len(numbers) == 2 and not kind.of_results:
            return cls(kind, numbers[0], numbers[1], 1.0)
        share = checks.between(f"share of {kind}", numbers[0], 0, 1)
        amount, spread = (*numbers[1:], *(1.0, 0.0)[len(numbers) - 1 :])
        return cls.of_sums(kind, share * amount, share * (amount**2 + spread**2), share)

    @classmethod
    def of_log(cls, log: Log, metric: Metric | str) -> KnownMetric:
        """Take the searches of a log that count for the metric."""
        kind = parse_metric(metric) if isinstance(metric, str) else metric
        values = metric_values(log, kind)
        each, number = values.each, len(values.each)
        if values.of_results is not None:
            number = len(values.of_results.of_clicks)
            each = np.concatenate([values.of_results.of_clicks, values.of_results.value])
        means: FloatArray = np.array([each.sum(), (each**2).sum(), np.count_nonzero(each)]) / max(number, 1)
        return cls.of_sums(kind, *means.tolist())

    @classmethod
    def of_sums(cls, metric: Metric, mean: float, mean_square: float, occasions: float) -> KnownMetric:
        """Take the mean and the mean square of its value, and how often it has one."""
        return cls(metric, mean, float(np.sqrt(max(mean_square - mean**2, 0.0))), occasions)

    @property
    def noise(self) -> float:
        """Squared standard deviation of its value, in units of the squared mean."""
        return (self.sd / self.mean) ** 2
