"""Checks of arguments at the border: each error names the value, the limit and the argument."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import FloatArray, IntArray


def one_of(name: str, value: Any, allowed: Collection[Any]) -> Any:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, must be one of {', '.join(repr(a) for a in allowed)}")
    return value


def number(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise ValueError(f"{name} is {value!r}, must be a number")
    return value


def whole(name: str, value: Any, low: int, high: int = sys.maxsize) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} is {value!r}, must be a whole number")
    if high == sys.maxsize:
        at_least(name, int(value), low)
    return int(between(name, int(value), low, high))


def between(name: str, value: float, low: float, high: float, *, open_ends: bool = False) -> float:
    number(name, value)
    inside = low < value < high if open_ends else low <= value <= high
    if not inside:
        ends = "strictly between" if open_ends else "between"
        raise ValueError(f"{name} is {value!r}, must be {ends} {low:g} and {high:g}")
    return value


def at_least(name: str, value: float, low: float) -> float:
    number(name, value)
    if not value >= low:
        raise ValueError(f"{name} is {value!r}, must be at least {low:g}")
    return value


def _flat(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} dimensions, must be a flat list of numbers")
    return np.ascontiguousarray(array)


def finite(name: str, values: ArrayLike) -> FloatArray:
    """A one-dimensional array of finite numbers."""
    array = _flat(name, values)
    if not np.all(np.isfinite(array)):
        bad = int(np.argmin(np.isfinite(array)))
        raise ValueError(f"{name}[{bad}] is {array[bad]}, must be finite")
    return array


def probabilities(name: str, values: ArrayLike) -> FloatArray:
    """A one-dimensional array of numbers from 0 to 1."""
    array = _flat(name, values)
    bad = np.flatnonzero(~((array >= 0) & (array <= 1)))
    if len(bad):
        raise ValueError(f"{name}[{bad[0]}] is {array[bad[0]]:g}, must be between 0 and 1")
    return array


def checkpoints(values: ArrayLike) -> IntArray:
    """Increasing counts of impressions at which a simulation reports."""
    given = np.asarray(values)
    array = given.astype(np.int64)
    if np.any(array != given):
        raise ValueError(f"checkpoints must be whole numbers, got {given.tolist()[:10]}")
    if array.ndim != 1 or len(array) == 0:
        raise ValueError("checkpoints must be a non-empty flat list of impression counts")
    if array[0] < 1 or np.any(np.diff(array) <= 0):
        raise ValueError(f"checkpoints must increase from at least 1, got {array.tolist()[:10]}")
    return array


def schedule(values: ArrayLike) -> tuple[int, ...]:
    """Increasing counts of impressions at which something is done; none is fine."""
    return tuple(checkpoints(values).tolist()) if np.size(values) else ()
