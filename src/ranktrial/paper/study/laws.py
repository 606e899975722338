"""Expected runs as rows of a table, a row per run and stretch between fits: a few numbers from which every curve follows.

``x`` to ``clicks`` are what each impression of a stretch adds to the sums, NULL where that is not known; ``x_before`` to
``clicks_before`` the sums where it begins, NULL where they go on from the stretch before, or from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods import ExpectedRun, Trajectory

SUMS = ("x", "variance", "third", "fourth", "square", "clicks")
LAW_COLUMNS = ("run", "begin", *(column for name in SUMS for column in (name, f"{name}_before")))
RUN_COLUMNS = (
    *("data", "pair", "method", "ctr_a", "ctr_b", "step", "standard_error"),
    *LAW_COLUMNS,
    *("seconds", "cpu_seconds", "peak_memory"),
)
CURVE_COLUMNS = ("estimate", "binary_error", "absolute_error", "mean_squared_error", "ctr")


def law_columns(run: ExpectedRun) -> dict[str, Any]:
    """The columns of a run: of each impression of a stretch, and the sums before it, masked where they go on from the last."""
    goes_on = np.zeros_like(run.before)
    goes_on[:, 1:] = _at_ends(run.begins, run.before, run.each)
    before = np.ma.masked_where(run.before == goes_on, run.before)
    columns: dict[str, Any] = {
        "run": np.repeat(np.arange(len(run.each)), len(run.begins)),
        "begin": np.tile(run.begins, len(run.each)),
    }
    for i, name in enumerate(SUMS):
        columns |= {name: run.each[:, :, i].ravel(), f"{name}_before": before[:, :, i].ravel()}
    return columns


def read_law(points: IntArray, columns: Mapping[str, Any], *, step: float) -> ExpectedRun:
    """The run that columns hold, rows by run and stretch, at any checkpoints; to the last bit as it was."""
    shape = (-1, int(np.sum(columns["run"] == 0)))
    begins = np.asarray(columns["begin"]).reshape(shape)[0]
    each = np.stack([np.ma.filled(columns[name], np.nan).reshape(shape) for name in SUMS], axis=2)
    given = np.ma.stack([columns[f"{name}_before"].reshape(shape) for name in SUMS], axis=2)
    missing = np.ma.getmaskarray(given)
    before = given.filled(0.0)
    for i in range(1, len(begins)):
        goes_on = _at_ends(begins[i - 1 : i + 1], before[:, i - 1 : i + 1], each[:, i - 1 : i + 1])[:, 0]
        before[:, i] = np.where(missing[:, i], goes_on, before[:, i])
    return ExpectedRun(points, begins, before, each, step)


def _at_ends(begins: IntArray, before: FloatArray, each: FloatArray) -> FloatArray:
    """The sums at the end of every stretch but the last."""
    return np.asarray(before[:, :-1] + np.diff(begins)[:, None] * each[:, :-1])


def curve_columns(run: Trajectory | ExpectedRun, delta: float) -> dict[str, Any]:
    """The columns of a run's curves, a row per checkpoint."""
    errors = run.binary_error(delta), run.absolute_error(delta), run.squared_error(delta)
    return {"impressions": run.impressions, **dict(zip(CURVE_COLUMNS, (run.estimate, *errors, run.ctr)))}
