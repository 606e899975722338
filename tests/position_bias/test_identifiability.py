"""Ranks that a log can compare, and refusals where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktrial.paper.click_models.em import EM
from ranktrial.position_bias.auto import Auto
from ranktrial.position_bias.conditional import Conditional
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import NotIdentifiable, identifiability
from ranktrial.position_bias.model import Estimator

ESTIMATORS: list[Estimator] = [Conditional(), EM(), Auto()]


def test_effective_pairs_by_hand() -> None:
    # Document 0 links ranks 1 and 2 (4 and 12 shows: worth 6 even pairs), document 1 ranks 2 and 3; 2 has no click.
    counts = Counts.from_dense([[4, 12, 0], [0, 5, 5], [9, 9, 9]], [[2, 3, 0], [0, 2, 1], [0, 0, 0]])
    report = identifiability(counts)
    assert report.pairs.tolist() == [[0, 6, 0], [6, 0, 5], [0, 5, 0]]
    assert report.components == ((0, 1, 2),)
    assert report.weakest == (1, 2, 5.0)
    assert str(report) == "identified: all ranks are compared, most weakly 2 and 3 (5 effective pairs)"


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
@pytest.mark.parametrize(
    ("shown", "clicked", "message"),
    [
        # Nobody ever moves between ranks 1-2 and 3-4.
        (
            [[5, 5, 0, 0], [0, 0, 5, 5]],
            [[3, 2, 0, 0], [0, 0, 2, 1]],
            "no clicked document connects rank 3 and 4 with rank 1",
        ),
        # A document moves, but nobody clicks it.
        ([[5, 0], [0, 5], [5, 5]], [[3, 0], [0, 2], [0, 0]], "no clicked document connects rank 2 with rank 1"),
        ([[5, 0, 5], [5, 0, 5]], [[3, 0, 1], [2, 0, 1]], "no document that was ever clicked stood at rank 2"),
        # Documents were shown at ranks 2 and 3, but nobody ever clicked them.
        (
            [[5, 0, 0], [0, 5, 0], [0, 0, 5]],
            [[3, 0, 0], [0, 0, 0], [0, 0, 0]],
            "no document that was ever clicked stood at rank 2 and 3: no comparison with rank 1",
        ),
        ([[5, 5]], [[0, 2]], "nothing was clicked at rank 1"),
        # All clicks on what moved fell on rank 1: theta_2 could be anything from 0 up.
        ([[5, 5], [0, 5]], [[3, 0], [0, 2]], "no click leads from rank 2 to rank 1"),
        ([[5, 5], [5, 0]], [[0, 3], [2, 0]], "no click leads from rank 1 to rank 2"),
    ],
)
def test_logs_that_cannot_tell_are_refused(
    estimator: Estimator, shown: list[list[int]], clicked: list[list[int]], message: str
) -> None:
    with pytest.raises(NotIdentifiable, match=message):
        estimator.fit(Counts.from_dense(shown, clicked))


@given(st.integers(0, 10_000))
def test_the_same_is_said_when_documents_never_clicked_are_not_counted(seed: int) -> None:
    """Live trials leave them out: the ranks where they stood must not be called empty, nor the refusal differ."""
    rng = np.random.default_rng(seed)
    shown = rng.poisson(1.0, (5, 4)) * (rng.random((5, 4)) < 0.6)
    clicked = rng.binomial(shown, [0.5, 0.4, 0.3, 0.2]) * (rng.random((5, 1)) < 0.6)
    ever = clicked.sum(1) > 0
    every, some = Counts.from_dense(shown, clicked), Counts.from_dense(shown[ever], clicked[ever])
    full, fewer = identifiability(every), identifiability(some)
    assert full.problem == fewer.problem
    absent = [str(r + 1) for r in range(4) if shown[ever, r].sum() == 0]
    said = "" if full.problem is None else full.problem
    if absent and clicked[:, 0].any():
        assert f"ever clicked stood at rank {' and '.join(filter(None, (', '.join(absent[:-1]), absent[-1])))}:" in said
    else:
        assert "stood" not in said


def test_a_chain_of_ranks_and_a_star_are_both_enough() -> None:
    chain = Counts.from_dense([[4, 4, 0], [0, 4, 4]], [[2, 1, 0], [0, 2, 1]])
    np.testing.assert_allclose(Conditional().fit(chain).theta, [1, 0.5, 0.25])
    star = Counts.from_dense([[4, 4, 0], [4, 0, 4]], [[2, 1, 0], [2, 0, 1]])
    np.testing.assert_allclose(Conditional().fit(star).theta, [1, 0.5, 0.5])


def test_a_known_design_identifies_what_single_shows_do_not() -> None:
    # Two documents per query, each query shown once: nothing is seen at two ranks, but the design was a fair coin.
    shown = [[1, 0], [0, 1], [0, 1], [1, 0]]
    clicked = [[1, 0], [0, 1], [0, 0], [1, 0]]
    counts = Counts.from_dense(shown, clicked, offsets=[0, 2, 4], expected=np.full((4, 2), 0.5))
    with pytest.raises(NotIdentifiable):
        Conditional().fit(counts)
    estimate = Auto().fit(counts)
    np.testing.assert_allclose(estimate.theta, [1, 0.5])
    assert estimate.method == "Conditional(given='design')"
    assert "the other is not identified" in estimate.note


def test_a_rank_never_clicked_has_theta_zero_and_the_error_of_one_click() -> None:
    counts = Counts.from_dense([[10, 10, 10], [10, 10, 10]], [[4, 2, 0], [4, 2, 0]])
    for estimator in (Conditional(), EM()):
        estimate = estimator.fit(counts)
        np.testing.assert_allclose(estimate.theta, [1, 0.5, 0], atol=1e-8)
        assert estimate.identifiability.unclicked == (2,)
    # 12 clicks fell on an exposure of 10 (1 + 0.5) per document: one click at rank 3 would have meant 1/8.
    assert Conditional().fit(counts).standard_error[2] == pytest.approx(1 / 8)


def test_design_without_placement_is_refused() -> None:
    with pytest.raises(ValueError, match="these counts do not know their placement"):
        Conditional(given="design").fit(Counts.from_dense([[1, 1]], [[1, 1]]))
