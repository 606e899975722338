from __future__ import annotations

import numpy as np
import pytest

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods import Trajectory


def test_errors_by_hand() -> None:
    run = Trajectory(
        np.array([1, 2, 3, 4]), np.array([0.5, 0.0, -0.2, 0.1]), np.array([1.0, 0.5, 0.4, 0.3]), np.ones(4)
    )
    assert run.absolute_error(0.3) == pytest.approx([0.2, 0.3, 0.5, 0.2])
    assert run.binary_error(0.3).tolist() == [0, 1, 1, 0]  # an estimate of exactly 0 is wrong
    assert run.binary_error(-0.3).tolist() == [1, 1, 0, 1]
    assert run.squared_error(0.3) == pytest.approx([0.09 - 0.3 + 1, 0.09 + 0.5, 0.09 + 0.12 + 0.4, 0.09 - 0.06 + 0.3])


def test_a_run_merges_its_parts() -> None:
    """Sums up to a checkpoint, divided by it: two parts of a log give what the whole gives."""
    x = np.array([1.0, -2, 0, 3, 1])

    def sums(points: IntArray) -> FloatArray:
        return np.array([[x[:n].sum(), (x[:n] ** 2).sum(), (x[:n] != 0).sum()] for n in points])

    run = Trajectory.of_sums([2, 5], sums)
    assert run.estimate == pytest.approx([-0.5, 0.6])
    assert run.mean_square == pytest.approx([2.5, 3.0])
    assert run.ctr == pytest.approx([1.0, 0.8])


@pytest.mark.parametrize("points", [[1.5], [0], [3, 2], []])
def test_checkpoints_must_be_increasing_whole_numbers(points: list[float]) -> None:
    with pytest.raises(ValueError, match="checkpoints"):
        Trajectory.of_sums(points, lambda points: np.zeros((len(points), 3)))
