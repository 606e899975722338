"""LambdaLoss against its formula, training from one seed, and the paper's ranker file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ranktrial.arrays import FloatArray, offsets_of
from ranktrial.paper.data import (
    Dataset,
    LinearRankers,
    _kernels,
    read_letor,
    read_rankers,
    train_rankers,
    write_rankers,
    yahoo_like,
)
from ranktrial.trec import FormatError
from realdata import real_data


def loss_twin(scores: FloatArray, ranks: list[int], labels: list[int]) -> float:
    """NDCG-Loss2 of Wang et al. 2018 with the ranks (from 1) given."""

    def discount(rank: float) -> float:
        return float(np.log2(1 + rank))

    ideal = sum((2**y - 1) / discount(i + 1) for i, y in enumerate(sorted(labels, reverse=True)[:10]))
    total = 0.0
    for i, y_i in enumerate(labels):
        for j, y_j in enumerate(labels):
            if y_i > y_j:
                distance = abs(ranks[i] - ranks[j])
                delta = abs(1 / discount(distance) - 1 / discount(distance + 1))
                gain = abs(2**y_i - 2**y_j) / ideal
                total += delta * gain * float(np.log2(1 + np.exp(-(scores[i] - scores[j]))))
    return total


@pytest.mark.parametrize("size", [1, 2, 5, 14])
def test_gradient_is_that_of_the_loss_with_ranks_fixed(size: int) -> None:
    random = np.random.default_rng(size)
    labels = random.integers(0, 5, size)
    scores = random.normal(0, 2, size)
    ranks = (np.argsort(np.argsort(-scores)) + 1).tolist()
    gradient = np.empty(size)
    loss = _kernels.lambda_gradient(scores, labels.astype(np.int16), 10, _kernels.pair_weights(size), gradient)
    assert loss == pytest.approx(loss_twin(scores, ranks, labels.tolist()), rel=1e-12)
    step = 1e-6
    for d in range(size):
        up, down = scores.copy(), scores.copy()
        up[d] += step
        down[d] -= step
        slope = (loss_twin(up, ranks, labels.tolist()) - loss_twin(down, ranks, labels.tolist())) / (2 * step)
        assert gradient[d] == pytest.approx(slope, abs=1e-8)


def test_gradient_of_far_apart_scores_is_finite() -> None:
    gradient = np.empty(2)
    loss = _kernels.lambda_gradient(
        np.array([1e4, -1e4]), np.array([0, 4], np.int16), 10, _kernels.pair_weights(2), gradient
    )
    assert np.isfinite(loss)
    assert gradient[0] == -gradient[1] > 0


def test_ndcg_by_hand() -> None:
    # Labels in ranked order 1, 0, 2: DCG = 1 + 3/2, ideal 3 + 1/log2(3). The second query has no relevant document.
    features = np.array([[3], [2], [1], [5]], np.float32)
    labels = np.array([1, 0, 2, 0], np.int16)
    ndcg = _kernels.mean_ndcg(np.ones(1), offsets_of([3, 1]), labels, features, 10)
    assert ndcg == pytest.approx(2.5 / (3 + 1 / np.log2(3)))
    assert _kernels.mean_ndcg(np.ones(1), offsets_of([3, 1]), labels, features, 1) == pytest.approx(1 / 3)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return yahoo_like(300, seed=4)


def test_same_seed_same_bytes_for_any_number_of_workers(dataset: Dataset) -> None:
    one, two, three = (train_rankers(dataset, 7, seed=9, workers=workers) for workers in (1, 2, 3))
    assert one.weights.tobytes() == two.weights.tobytes() == three.weights.tobytes()
    # A longer list begins with the shorter one; another seed gives other rankers.
    assert train_rankers(dataset, 3, seed=9).weights.tobytes() == one.weights[:3].tobytes()
    assert not np.array_equal(train_rankers(dataset, 3, seed=10).weights, one.weights[:3])


def test_paper_rankers_use_half_of_the_features(dataset: Dataset) -> None:
    rankers = train_rankers(dataset, 4, seed=1, rankers="paper")
    assert np.count_nonzero(rankers.weights, axis=1).tolist() == [dataset.n_features // 2] * 4


def test_code_rankers_use_all_features_and_stay_near_their_start(dataset: Dataset) -> None:
    weights = train_rankers(dataset, 40, seed=1, rankers="code").weights
    assert np.all(weights != 0)
    # 3,200 weights near N(0, 1): the standard deviation within 5 standard errors, and learning moves it little.
    assert weights.std() == pytest.approx(1, abs=5 / np.sqrt(2 * weights.size) + 0.02)


def test_training_raises_ndcg(dataset: Dataset) -> None:
    trained = train_rankers(dataset, 5, seed=1).weights
    for weights in trained:
        ndcg = [
            _kernels.mean_ndcg(w, dataset.offsets, dataset.labels, dataset.features, 10)
            for w in (weights, np.zeros(dataset.n_features))
        ]
        assert ndcg[0] > ndcg[1]


def test_validation_from_another_set(dataset: Dataset) -> None:
    other = yahoo_like(50, seed=5)
    assert len(train_rankers(dataset, 2, seed=1, validation=other)) == 2
    wrong = Dataset(other.offsets, other.labels, other.features[:, 1:], other.query_ids, other.feature_ids[1:])
    with pytest.raises(ValueError, match="must have the same features"):
        train_rankers(dataset, 2, seed=1, validation=wrong)


def test_few_queries_are_halved() -> None:
    assert len(train_rankers(yahoo_like(3, seed=1), 2, seed=1)) == 2
    with pytest.raises(ValueError, match="number of queries of yahoo-like is 1, must be at least 2"):
        train_rankers(yahoo_like(1, seed=1), 2, seed=1)


def test_bad_arguments_and_progress(dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="rankers is 'best', must be one of 'paper', 'code'"):
        train_rankers(dataset, 1, seed=1, rankers="best")  # type: ignore[arg-type]
    seen: list[tuple[int, int]] = []
    train_rankers(dataset, 3, seed=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_scores_are_features_times_weights(dataset: Dataset) -> None:
    for width in (1, 3, 4, 7, 80):
        narrow = Dataset(
            dataset.offsets, dataset.labels, dataset.features[:, :width], dataset.query_ids, dataset.feature_ids[:width]
        )
        rankers = LinearRankers(np.random.default_rng(1).normal(size=(2, width)), narrow.feature_ids)
        expected = narrow.features.astype(np.float64) @ rankers.weights[1]
        np.testing.assert_allclose(rankers.scores(narrow, 1), expected, rtol=1e-12, atol=1e-12)


def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def tiny(*feature_ids: int) -> Dataset:
    features = np.arange(2 * len(feature_ids), dtype=np.float32).reshape(2, -1)
    return Dataset(offsets_of([2]), np.zeros(2, np.int16), features, np.array([1]), ids(*feature_ids), "tiny")


@pytest.mark.parametrize("name", ["rankers.txt", "rankers.txt.gz"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    weights = np.random.default_rng(3).normal(size=(5, 4)).round(6)
    weights[1, 2] = weights[4] = 0
    rankers = LinearRankers(weights, ids(1, 2, 15, 21))
    write_rankers(tmp_path / name, rankers)
    again = read_rankers(tmp_path / name)
    assert again.feature_ids.tolist() == [1, 2, 15, 21]
    np.testing.assert_array_equal(again.weights, weights)
    write_rankers(tmp_path / "again.txt", again)
    raw = (tmp_path / name).read_bytes()
    assert (tmp_path / "again.txt").read_bytes() == (gzip.decompress(raw) if name.endswith(".gz") else raw)


def test_format_of_a_line(tmp_path: Path) -> None:
    write_rankers(tmp_path / "r.txt", LinearRankers(np.array([[-0.4382661, 0, 2]]), ids(1, 2, 136)))
    assert (tmp_path / "r.txt").read_text() == " 1:-0.438266 136:2.000000\n"


def test_alignment_to_a_data_set(tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    file.write_text(" 1:0.5 3:-1\n 3:2\n")
    rankers = read_rankers(file, tiny(3, 2, 1))
    assert rankers.weights.tolist() == [[-1, 0, 0.5], [2, 0, 0]]
    assert rankers.scores(tiny(3, 2, 1), 0).tolist() == [1.0, -0.5]
    with pytest.raises(
        FormatError, match=r"r.txt: tiny has no feature 1 that the rankers use; pass allow_dropped=True"
    ):
        read_rankers(file, tiny(2, 3))
    assert read_rankers(file, tiny(2, 3), allow_dropped=True).weights.tolist() == [[0, -1], [0, 2]]
    with pytest.raises(ValueError, match=r"use rankers.align\(dataset\) first"):
        rankers.scores(tiny(1, 2, 3), 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1:0.5 x:1", "'x:1' must be feature:weight"),
        ("1:0.5 2", "'2' must be feature:weight"),
        ("0:0.5", "'0:0.5' must be feature:weight with a feature from 1"),
        ("-2:0.5", "'-2:0.5' must be feature:weight"),
        ("99999999999:1", "must be feature:weight"),
        ("1:0.5 1:2", "feature 1 appears twice"),
        ("1:high", "weight of feature 1, 'high' is not a number"),
        ("1:nan", "weight of feature 1, 'nan' is not a finite number"),
        ("", "an empty line"),
    ],
)
def test_bad_ranker_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "rankers.txt"
    file.write_text(f" 1:0.1\n{line}\n 1:0.2\n")
    with pytest.raises(FormatError, match=message) as caught:
        read_rankers(file)
    assert str(caught.value).startswith(f"{file}:2: ")


def test_bad_ranker_files(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file"):
        read_rankers(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(FormatError, match="no ranker in the file"):
        read_rankers(tmp_path / "empty.txt")
    whole = gzip.compress(b" 1:0.5 2:0.25\n" * 100)
    (tmp_path / "cut.txt.gz").write_bytes(whole[:-12])
    with pytest.raises(FormatError, match="ends too early"):
        read_rankers(tmp_path / "cut.txt.gz")


def click_through_rate(dataset: Dataset, scores: FloatArray, k: int = 10) -> float:
    """Expected clicks a query with theta_r = 1/r, by plain NumPy."""
    zeta = dataset.zeta()
    total = 0.0
    for start, end in zip(dataset.offsets[:-1], dataset.offsets[1:]):
        top = np.argsort(-scores[start:end], kind="stable")[:k]
        total += float((zeta[start:end][top] / np.arange(1, len(top) + 1)).sum())
    return total / dataset.n_queries


def test_the_papers_rankers_on_genuine_mslr_rows() -> None:
    dataset = read_letor(real_data("mslr_sample") / "mslr_sample_all.txt.gz")
    rankers = read_rankers(real_data("ictir2020_rankers") / "mslr_web30k_1000rankers.txt.gz", dataset)
    assert rankers.weights.shape == (1000, 131)
    rates = [click_through_rate(dataset, rankers.scores(dataset, i)) for i in range(0, 1000, 20)]
    # On all of MSLR-WEB30k the same rankers have mean .806, standard deviation .069 and range .51-1.00.
    assert min(rates) > 0.4
    assert max(rates) < 1.1
    assert np.mean(rates) == pytest.approx(0.806, abs=0.05)
