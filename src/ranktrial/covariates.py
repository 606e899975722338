"""Covariates: numbers known of a unit before the trial, such as its clicks of last month, declared with a trial by name.

They are given with every search and stored with its impression, four bytes each; nan where one is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.segments import LONGEST
from ranktrial.texts import label

MOST = 5
STORED = np.dtype("<f4")
LARGEST = 1e30  # so that squares of what is stored stay finite


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names as they are declared; an error says what is wrong with one."""
    for name in names:
        label("covariates: a name is", name, LONGEST)
    if len(names) > MOST or len(set(names)) < len(names):
        raise ValueError(f"covariates: the names are {list(names)}, must be at most {MOST}, each once")
    return tuple(names)


def is_number(value: object) -> bool:
    """True for a number that can be stored."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return real and bool(abs(value) <= LARGEST)  # type: ignore[arg-type]


def packed(names: Sequence[str], given: object) -> tuple[bytes, tuple[str, ...]]:
    """A search's values as they are stored, empty if it has none, and what was wrong with those given; never raises.

    >>> packed(["age", "clicks"], {"clicks": 3}), packed(["age"], {"age": "old", "income": 1})
    ((b'\\x00\\x00\\xc0\\x7f\\x00\\x00@@', ()), (b'', ('age is not a number', 'what is given is not declared')))
    """
    values = given if isinstance(given, Mapping) else {}
    usable = {name: float(values[name]) for name in names if is_number(values.get(name))}
    problems = [f"{name} is not a number" for name in names if values.get(name) is not None and name not in usable]
    if given is not None and (not isinstance(given, Mapping) or set(values) - set(names)):
        problems.append("what is given is not declared")
    stored = np.array([usable.get(name, np.nan) for name in names], STORED).tobytes() if usable else b""
    return stored, tuple(problems)


def unpacked(stored: Iterable[bytes | None], m: int) -> FloatArray:
    """Values of searches, ``(searches, m)``, from how they are stored.

    >>> unpacked([None, packed(["age", "clicks"], {"clicks": 3})[0]], 2)
    array([[nan, nan],
           [nan,  3.]])
    """
    none, size = np.full(m, np.nan, STORED).tobytes(), m * STORED.itemsize
    joined = b"".join(one if one and len(one) == size else none for one in stored)
    return np.frombuffer(joined, STORED).reshape(-1, m).astype(np.float64)


def as_json(names: Sequence[str], values: FloatArray) -> list[str | None]:
    """Values of searches as JSON objects, without those that are missing; None where all are.

    >>> as_json(["age", "clicks"], np.array([[np.nan, 3.5], [np.nan, np.nan]]))
    ['{"clicks": 3.5}', None]
    """
    rows = ({name: value for name, value in zip(names, row) if value == value} for row in values.tolist())
    return [json.dumps(row) if row else None for row in rows]
