"""Interval between two ends: the type of every confidence interval."""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval; it unpacks as ``low, high``, and an end may be infinite.

    Attributes:
        low: Lower end.
        high: Upper end.

    >>> interval = Interval(-0.0123, 0.0456)
    >>> print(interval)
    -0.0123 to +0.0456
    >>> 0 in interval, 0.05 in interval
    (True, False)
    >>> low, high = interval
    >>> round(high - low, 4), round(2 * interval.half_width, 4), round(interval.middle, 5)
    (0.0579, 0.0579, 0.01665)
    >>> f"from {interval:.1%}"
    'from -1.2% to 4.6%'
    """

    low: float
    high: float

    @classmethod
    def around(cls, middle: float, reach: float) -> Interval:
        """The interval ``middle - reach`` to ``middle + reach``.

        >>> Interval.around(2, 0.5)
        Interval(low=1.5, high=2.5)
        """
        return cls(middle - reach, middle + reach)

    @property
    def middle(self) -> float:
        """Half-way between the ends."""
        return (self.low + self.high) / 2

    @property
    def half_width(self) -> float:
        """Distance from the middle to either end."""
        return (self.high - self.low) / 2

    def __contains__(self, value: object) -> bool:
        """True if a number lies between the ends, both included."""
        return isinstance(value, Real) and self.low <= float(value) <= self.high

    def __format__(self, spec: str) -> str:
        return f"{self.low:{spec or '+.4f'}} to {self.high:{spec or '+.4f'}}"

    def __str__(self) -> str:
        return format(self)
