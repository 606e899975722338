"""The data set object, and the counts of the real sets."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from ranktrial.arrays import offsets_of
from ranktrial.paper.data import Dataset, LetorError, read_letor, read_splits
from realdata import real_data


def small() -> Dataset:
    return Dataset(
        offsets=offsets_of([2, 0, 3]),
        labels=np.array([0, 4, 1, 2, 3], np.int16),
        features=np.arange(10, dtype=np.float32).reshape(5, 2),
        query_ids=np.array([7, 8, 9]),
        feature_ids=np.array([1, 4], np.int32),
        name="small",
    )


def test_counts_and_repr() -> None:
    dataset = small()
    assert (dataset.n_queries, dataset.n_documents, dataset.n_features) == (3, 5, 2)
    assert repr(dataset).splitlines() == [
        "Dataset small",
        "  queries             3",
        "  documents           5  0 to 3 a query, median 2",
        "  features            2  float32, in memory",
        "  labels    0: 20.0%  1: 20.0%  2: 20.0%  3: 20.0%  4: 20.0%",
    ]


def test_take_keeps_the_order_asked_for() -> None:
    part = small().take([2, 0])
    assert part.query_ids.tolist() == [9, 7]
    assert part.offsets.tolist() == [0, 3, 5]
    assert part.labels.tolist() == [1, 2, 3, 0, 4]
    assert part.features[:, 0].tolist() == [4, 6, 8, 0, 2]
    assert small().take([]).n_documents == 0
    with pytest.raises(ValueError, match="query 3 does not exist, small has queries 0 to 2"):
        small().take([0, 3])
    with pytest.raises(ValueError, match="query -1 does not exist"):
        small().take([-1])


def test_zeta_is_the_papers_click_probability() -> None:
    np.testing.assert_allclose(small().zeta(), [0.1, 1.0, 0.325, 0.55, 0.775])
    assert small().zeta().max() <= 1
    with pytest.raises(ValueError, match=r"label 5 would be clicked with probability 1\.225, labels must be at most 4"):
        replace(small(), labels=small().labels + 1).zeta()


def test_arrays_must_fit_together() -> None:
    d = small()
    with pytest.raises(ValueError, match="4 labels, but the offsets count 5 documents"):
        Dataset(d.offsets, d.labels[:4], d.features, d.query_ids, d.feature_ids)
    with pytest.raises(ValueError, match=r"features have shape \(5, 1\), must be 5 documents x 2 feature ids"):
        Dataset(d.offsets, d.labels, d.features[:, :1], d.query_ids, d.feature_ids)
    with pytest.raises(ValueError, match="2 query ids, but the offsets count 3 queries"):
        Dataset(d.offsets, d.labels, d.features, d.query_ids[:2], d.feature_ids)
    with pytest.raises(ValueError, match="offsets must start at 0"):
        Dataset(d.offsets[::-1], d.labels, d.features, d.query_ids, d.feature_ids)


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(LetorError("a.txt", 3, "no qid")))
    assert (type(error), str(error), error.line) == (LetorError, "a.txt:3: no qid", 3)


def test_mailru_longtail() -> None:
    splits = read_splits(real_data("mailru_longtail"))
    assert [splits[name].n_queries for name in ("train", "vali", "test")] == [1267, 422, 422]
    assert sum(split.n_documents for split in splits.values()) == 202_079
    assert all(np.array_equal(split.feature_ids, splits["train"].feature_ids) for split in splits.values())
    lengths = np.concatenate([np.diff(split.offsets) for split in splits.values()])
    assert np.median(lengths) == 104


def test_mslr_sample() -> None:
    dataset = read_letor(real_data("mslr_sample") / "mslr_sample_all.txt.gz")
    assert (dataset.n_queries, dataset.n_documents) == (163, 17_869)
    # Features 16-20 describe the query alone and are dropped, as they are from the paper's ranker file.
    assert dataset.feature_ids.tolist() == [*range(1, 16), *range(21, 137)]


def test_mq2008() -> None:
    parts = [read_letor(real_data("mq2008") / f"S{i}.txt.gz") for i in range(1, 6)]
    assert sum(part.n_queries for part in parts) == 784
    assert sum(part.n_documents for part in parts) == 15_211
    assert {int(part.labels.max()) for part in parts} == {2}
