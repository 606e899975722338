"""Counts per (document, rank): what they hold, how they add up, what they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktrial.position_bias.counts import Counts

RANKINGS = [[0, 2, -1], [2, 0, 1], [0, 2, 1]]
CLICKS = [[True, True, False], [False, False, True], [True, False, False]]


def test_impressions_are_counted_by_document_and_rank() -> None:
    counts = Counts.from_impressions(RANKINGS, CLICKS, n_documents=4)
    assert counts.documents.tolist() == [0, 1, 2]  # document 3 was never shown
    assert counts.shown.tolist() == [[2, 1, 0], [0, 0, 2], [1, 2, 0]]
    assert counts.clicked.tolist() == [[2, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert counts.click_rate.tolist() == [2 / 3, 1 / 3, 1 / 2]


def test_a_design_expects_placement_times_impressions_of_the_query() -> None:
    # Query 0 holds documents 0 and 1 and is shown three times, query 1 holds document 2 and is shown once.
    placement = [[0.25, 0.75], [0.75, 0.25], [1.0, 0.0]]
    rankings = [[0, 1], [1, 0], [1, 0], [2, -1]]
    counts = Counts.from_impressions(
        rankings, np.zeros((4, 2), bool), n_documents=3, offsets=[0, 2, 3], placement=placement
    )
    assert counts.expected is not None
    assert counts.expected.tolist() == [[0.75, 2.25], [2.25, 0.75], [1, 0]]
    assert counts.queries is not None
    assert counts.queries.tolist() == [0, 0, 1]


def impressions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rankings = np.array([rng.permutation(5)[:3] for _ in range(n)])
    rankings[rng.random(n) < 0.3, 2] = -1
    return rankings, (rng.random((n, 3)) < 0.5) & (rankings >= 0)


@given(st.composite(impressions)(), st.data())
def test_merging_parts_is_counting_the_whole(log: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    rankings, clicks = log
    cut = data.draw(st.integers(1, len(rankings) - 1))
    offsets = [0, 2, 5]

    def count(rows: slice) -> Counts:
        return Counts.from_impressions(rankings[rows], clicks[rows], n_documents=5, offsets=offsets)

    whole, first, second = count(slice(None)), count(slice(0, cut)), count(slice(cut, None))
    both = first + second
    for name in ("documents", "shown", "clicked", "queries"):
        np.testing.assert_array_equal(getattr(both, name), getattr(whole, name))
    left = whole - first
    np.testing.assert_array_equal(left.shown[left.seen], second.shown)
    np.testing.assert_array_equal(left.clicked[left.seen], second.clicked)


def test_merging_adds_what_each_design_expected() -> None:
    part = Counts.from_dense([[1, 0], [0, 1]], [[0, 0], [0, 0]], expected=[[0.5, 0.5], [0.5, 0.5]])
    other = Counts.from_dense([[1, 0], [0, 1]], [[1, 0], [0, 0]], expected=[[0.9, 0.1], [0.1, 0.9]])
    np.testing.assert_allclose((part + other).expected, [[1.4, 0.6], [0.6, 1.4]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "clicked", "message"),
    [
        ([[1, 1], [2, 1]], [[0, 0], [0, 2]], "document 1 at rank 2 is clicked more often than shown (2 against 1)"),
        ([[1, -1]], [[0, 0]], "shown of document 0 at rank 2 is -1, must be a finite number, not negative"),
        ([[1, 1]], [[0, np.nan]], "clicked of document 0 at rank 2 is nan"),
        ([[np.inf, 1]], [[0, 0]], "shown of document 0 at rank 1 is inf"),
        ([1, 2], [0, 0], "shown has shape (2,), must be (documents, ranks)"),
        ([[1, 2]], [[0], [0]], "shown is (1, 2), clicked is (2, 1)"),
    ],
)
def test_tables_that_cannot_be_counts_are_refused(shown: object, clicked: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Counts.from_dense(shown, clicked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rankings", "clicks", "message"),
    [
        ([[0, 3]], [[False, False]], "impression 0, rank 2: document 3 must be -1 or 0 to 2"),
        ([[0, -2]], [[False, False]], "impression 0, rank 2: document -2 must be -1 or 0 to 2"),
        ([[0, -1]], [[False, True]], "impression 0, rank 2: document -1 is clicked although nothing is shown there"),
        ([[0.5, 1]], [[False, True]], "must hold document ids"),
        ([[0, 1]], [[False]], "must be the same (impressions, k)"),
    ],
)
def test_impressions_that_cannot_be_are_refused(rankings: object, clicks: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Counts.from_impressions(rankings, clicks, n_documents=3)  # type: ignore[arg-type]


def test_what_the_design_never_shows_must_not_have_been_shown() -> None:
    with pytest.raises(ValueError, match="document 0 at rank 2 is shown although the design never puts it there"):
        Counts.from_dense([[1, 1]], [[0, 0]], expected=[[1, 0]])


def test_counts_of_different_logs_do_not_mix() -> None:
    plain = Counts.from_dense([[1, 1]], [[0, 0]])
    with pytest.raises(ValueError, match="counts that know their expected"):
        plain + Counts.from_dense([[1, 1]], [[0, 0]], expected=[[1, 1]])
    with pytest.raises(ValueError, match="1 documents x 2 ranks cannot be combined with 1 x 3"):
        plain + Counts.from_dense([[1, 1, 1]], [[0, 0, 0]])
    with pytest.raises(ValueError, match="document 0 at rank 1: the part holds more"):
        plain - Counts.from_dense([[2, 1]], [[0, 0]])
