from __future__ import annotations

import numpy as np
import pytest

from ranktrial.analysis import estimate_ab
from ranktrial.analysis.estimators.cross_fitting import CrossFit
from ranktrial.log.units import Units

ALONE = Units.of(np.arange(5))


def test_units_share_a_fold_and_are_dealt_out_in_order() -> None:
    groups = CrossFit(folds=2).groups(Units.of(["b", "a", "b", "c", "a", "c"]))
    assert groups.tolist() == [0, 1, 0, 0, 1, 0]
    assert CrossFit(folds=3).groups(ALONE).tolist() == [0, 1, 2, 0, 1]


def test_stretches_of_the_past_begin_at_refits() -> None:
    assert CrossFit("past", refits=(1, 3)).groups(ALONE).tolist() == [0, 1, 1, 2, 2]
    default = CrossFit("past").groups(Units.of(np.arange(1000)))
    assert np.flatnonzero(np.diff(default)).tolist() == [99, 199, 399, 799]


def test_a_unit_keeps_the_prediction_of_its_first_impression_but_tells_later_ones() -> None:
    past, units = CrossFit("past", refits=(1, 3)), Units.of(["b", "a", "b", "c", "a"])
    assert past.groups(units).tolist() == [0, 1, 0, 2, 1]
    assert past.counted(np.arange(5), units).tolist() == [0, 1, 1, 2, 2]
    folds = CrossFit(folds=2)
    assert folds.counted(np.arange(2), units).tolist() == folds.groups(units)[:2].tolist() == [0, 1]


def test_no_group_is_used_for_itself() -> None:
    groups = np.arange(3)
    for fitting, usable in ((CrossFit(folds=3), [[1, 2], [0, 2], [0, 1]]), (CrossFit("past"), [[], [0], [0, 1]])):
        assert [np.flatnonzero(fitting.usable(groups, one)).tolist() for one in range(3)] == usable


def test_units_must_be_one_each() -> None:
    with pytest.raises(ValueError, match="must be one each"):
        estimate_ab([True, False, True], [1, 0, 1], queries=["q"] * 3, units=[1])
