"""Synthetic sets have the shape of the real ones, and rankers on them the paper's click-through rates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ranktrial.paper.data import Dataset, mslr_like, train_rankers, yahoo_like

SETS = pytest.mark.parametrize(
    ("make", "documents", "labels"),
    [
        (yahoo_like, 24, [0.26, 0.36, 0.285, 0.075, 0.02]),
        (mslr_like, 120, [0.514, 0.325, 0.134, 0.019, 0.008]),
    ],
)
Make = Callable[..., Dataset]


@SETS
def test_shape(make: Make, documents: float, labels: list[float]) -> None:
    dataset = make(1000, seed=3)
    lengths = np.diff(dataset.offsets)
    assert dataset.n_queries == 1000
    assert lengths.mean() == pytest.approx(documents, rel=0.1)
    assert lengths.min() < documents / 2 < 2 * documents < lengths.max()
    # A query shares part of its relevance, so shares vary like those of 1000 queries, not of all documents.
    shares = np.bincount(dataset.labels, minlength=5) / dataset.n_documents
    assert np.abs(shares - labels).max() < 0.05
    assert dataset.features.dtype == np.float32


@SETS
def test_features_are_scaled_per_query(make: Make, documents: float, labels: list[float]) -> None:
    dataset = make(30, seed=3)
    for start, end in zip(dataset.offsets[:-1], dataset.offsets[1:]):
        assert np.all(dataset.features[start:end].min(0) == 0)
        assert np.all(dataset.features[start:end].max(0) == 1)


@SETS
def test_same_seed_same_set_in_memory_or_on_disk(
    make: Make, documents: float, labels: list[float], tmp_path: Path
) -> None:
    a = make(600, seed=11)
    b = make(600, seed=11, features_file=tmp_path / "features.npy")
    c = make(600, seed=12)
    assert isinstance(b.features, np.memmap)
    assert np.array_equal(a.features, b.features)
    assert np.array_equal(a.labels, b.labels)
    assert not np.array_equal(a.labels[:100], c.labels[:100])
    assert np.array_equal(np.load(tmp_path / "features.npy"), a.features)


@pytest.mark.slow
def test_features_are_correlated_and_agree_with_relevance() -> None:
    dataset = mslr_like(200, seed=1)
    correlation = np.asarray(np.corrcoef(dataset.features, rowvar=False))
    assert np.median(correlation[np.triu_indices_from(correlation, 1)]) > 0.3
    with_label = [float(np.asarray(np.corrcoef(column, dataset.labels))[0, 1]) for column in dataset.features.T]
    assert np.mean(with_label) > 0.03
    assert np.std(with_label) > 0.01


def rates(dataset: Dataset, kind: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rankers = train_rankers(dataset, count, seed=1, rankers=kind)  # type: ignore[arg-type]
    zeta = dataset.zeta()
    queries = np.repeat(np.arange(dataset.n_queries), np.diff(dataset.offsets))
    found = []
    for i in range(count):
        order = np.lexsort((-rankers.scores(dataset, i), queries))
        rank = np.arange(dataset.n_documents) - dataset.offsets[queries]
        found.append(np.sum(np.where(rank < 10, zeta[order] / (rank + 1), 0)) / dataset.n_queries)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "queries", "count", "mean", "deviation", "paper_range"),
    [(yahoo_like, 1500, 60, 1.194, 0.034, (1.1, 1.3)), (mslr_like, 600, 40, 0.806, 0.069, (0.7, 0.95))],
)
def test_rankers_get_the_papers_click_through_rates(
    make: Make, queries: int, count: int, mean: float, deviation: float, paper_range: tuple[float, float]
) -> None:
    dataset = make(queries, seed=21)
    code = rates(dataset, "code", count)
    # Sets of this size differ by about .01 in mean; 40 to 60 rankers know their deviation to about 10 %.
    assert code.mean() == pytest.approx(mean, abs=0.04)
    assert code.std() == pytest.approx(deviation, rel=0.5)
    paper = rates(dataset, "paper", 10)
    assert paper_range[0] < paper.mean() < paper_range[1]
    assert paper.mean() > code.mean()


def test_progress_and_bad_arguments() -> None:
    seen: list[tuple[int, int]] = []
    yahoo_like(300, seed=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(256, 300), (300, 300)]
    with pytest.raises(ValueError, match="n_queries is 0, must be at least 1"):
        yahoo_like(0, seed=1)
