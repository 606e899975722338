from __future__ import annotations

import numpy as np
import pytest

from ranktrial.analysis.estimators.cross_fitting import contributions, groups_of, training_sums


def test_units_share_a_fold_and_are_dealt_out_in_order() -> None:
    groups = groups_of(6, "folds", folds=2, refits=None, units=["b", "a", "b", "c", "a", "c"])
    assert groups.tolist() == [0, 1, 0, 0, 1, 0]
    assert groups_of(5, "folds", folds=3, refits=None, units=None).tolist() == [0, 1, 2, 0, 1]


def test_stretches_of_the_past_begin_at_refits() -> None:
    assert groups_of(5, "past", folds=5, refits=[1, 3], units=None).tolist() == [0, 1, 1, 2, 2]
    default = groups_of(1000, "past", folds=5, refits=None, units=None)
    assert np.flatnonzero(np.diff(default)).tolist() == [99, 199, 399, 799]


def test_a_unit_keeps_the_prediction_of_its_first_impression_but_tells_later_ones() -> None:
    valued = groups_of(5, "past", folds=5, refits=[1, 3], units=["b", "a", "b", "c", "a"])
    assert valued.tolist() == [0, 1, 0, 2, 1]
    assert contributions(valued, "past", refits=[1, 3]).tolist() == [0, 1, 1, 2, 2]
    assert contributions(np.array([1, 0]), "folds", refits=None).tolist() == [1, 0]


def test_no_group_is_used_for_itself() -> None:
    parts = [np.array([1.0]), np.array([10.0]), np.array([100.0])]
    assert [float(t[0]) for t in training_sums(parts.__getitem__, 3, "folds")] == [110, 101, 11]
    assert [float(t[0]) for t in training_sums(parts.__getitem__, 3, "past")] == [0, 1, 11]


def test_units_must_be_one_each() -> None:
    with pytest.raises(ValueError, match="must be one each"):
        groups_of(3, "folds", folds=2, refits=None, units=[1])
