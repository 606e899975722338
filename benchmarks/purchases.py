"""Simulated orders after clicks, for benchmarks and tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import FloatArray
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.metrics import MILLIONTHS
from ranktrial.seeds import Seed


@dataclass(frozen=True, eq=False)
class Purchases:
    """Visitors who order some of what they click on.

    Attributes:
        rate: Probability of an order after a click, one or by document.
        amount: Mean amount of an order, one or by document.
        spread: Standard deviation of the logarithm of amounts (log-normal); 0 for amounts that are always the mean.
        amounts: Amounts to draw from instead, relative to their mean: real ones.
        delay: Mean seconds from impression to order (exponential), one or by document.
    """

    rate: ArrayLike
    amount: ArrayLike = 1.0
    spread: float = 0.0
    amounts: FloatArray | None = None
    delay: ArrayLike = 0.0

    def after(self, log: Log, *, seed: Seed) -> Log:
        """Return the log with orders after its clicks."""
        rng = np.random.default_rng(seed)
        impression, rank, slot = log.clicked
        document = log.document[slot]
        rate, mean, delay = (
            np.broadcast_to(of, len(log.documents))[document] for of in (self.rate, self.amount, self.delay)
        )
        ordered = np.flatnonzero(rng.random(len(document)) < rate)
        factor = np.exp(self.spread * rng.standard_normal(len(ordered)) - self.spread**2 / 2)
        if self.amounts is not None:
            factor = rng.choice(self.amounts / self.amounts.mean(), len(ordered))
        events = LoggedEvents.of(
            impression[ordered],
            rank=rank[ordered],
            action=np.zeros(len(ordered), np.int8),
            amount=np.rint(mean[ordered] * factor * MILLIONTHS),
            delay=np.rint(rng.exponential(1.0, len(ordered)) * delay[ordered] * 1e6),
        )
        return replace(log, events=events, actions=("order",))
