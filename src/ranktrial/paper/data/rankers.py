"""Linear rankers, trained as in the paper's experiments or read from its file, and scores of rankers from outside.

Training follows Wang et al. 2018 (LambdaLoss, NDCG-Loss2, sigma = 1). For one query with scores s, labels y and the
current ranks r,

    loss = sum over y_i > y_j of  delta_ij |G_i - G_j| log2(1 + exp(-(s_i - s_j)))
    delta_ij = |1/D(|r_i - r_j|) - 1/D(|r_i - r_j| + 1)|,  D(x) = log2(1 + x),  G_i = (2^y_i - 1) / max DCG@10

and its gradient holds the ranks fixed. One step is one query; the learning rate starts at 0.01 and shrinks by 0.99 a
step. After each pass over the training queries NDCG@10 is measured on the validation queries; training stops after
``PATIENCE`` passes without a new best, or ``MAX_PASSES`` in all, and the best weights are kept, the start included.
"""

from __future__ import annotations

import gzip
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import FloatArray
from ranktrial.checks import at_least, one_of
from ranktrial.paper.data import _kernels
from ranktrial.paper.data.dataset import Dataset
from ranktrial.seeds import Seed, children, generator
from ranktrial.trec.files import FormatError, Progress, existing_file, lines, parsed

LEARNING_RATE = 0.01
DECAY = 0.99
PATIENCE = 2
MAX_PASSES = 10
NDCG_CUTOFF = 10

Kind = Literal["paper", "code"]
_WEIGHT = re.compile(r"(0*[1-9][0-9]{0,18}):(.*)", re.ASCII)


@dataclass(frozen=True, eq=False, repr=False)
class LinearRankers:
    """Set of linear rankers over the same features.

    Attributes:
        weights: one row per ranker, one column per feature; float64.
        feature_ids: the ids of the columns in the data files, counted from 1; int32.
    """

    weights: FloatArray
    feature_ids: NDArray[np.int32]

    def __post_init__(self) -> None:
        if self.weights.ndim != 2 or self.weights.shape[1] != len(self.feature_ids):
            raise ValueError(
                f"weights have shape {self.weights.shape}, must be rankers x {len(self.feature_ids)} features"
            )

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        used = np.count_nonzero(self.weights, axis=1)
        spread = f", {used.min()} to {used.max()} used by each" if len(used) else ""
        return f"LinearRankers: {len(self):,} rankers over {len(self.feature_ids)} features{spread}"

    def scores(self, dataset: Dataset, ranker: int) -> FloatArray:
        """Score of every document of the data set by one ranker; higher is better."""
        if not np.array_equal(self.feature_ids, dataset.feature_ids):
            raise ValueError(f"the rankers' features are not those of {dataset.name}; use rankers.align(dataset) first")
        scores = np.empty(dataset.n_documents)
        _kernels.linear_scores(dataset.features, np.ascontiguousarray(self.weights[ranker]), scores)
        return scores

    def align(self, dataset: Dataset, *, allow_dropped: bool = False) -> LinearRankers:
        """Return these rankers with exactly the features of the data set.

        A weight for a feature that the data set does not have is an error, unless ``allow_dropped``: then such weights
        are left out, which changes no ranking if the reader dropped the feature because it was constant.
        """
        used = self.feature_ids[np.any(self.weights != 0, axis=0)]
        missing = np.setdiff1d(used, dataset.feature_ids)
        if len(missing) and not allow_dropped:
            raise ValueError(
                f"{dataset.name} has no feature {', '.join(map(str, missing[:10].tolist()))}"
                f"{' ...' if len(missing) > 10 else ''} that the rankers use; pass allow_dropped=True if the reader left "
                "it out because it is constant"
            )
        weights = np.zeros((len(self), dataset.n_features))
        _, here, there = np.intersect1d(self.feature_ids, dataset.feature_ids, return_indices=True)
        weights[:, there] = self.weights[:, here]
        return LinearRankers(weights, dataset.feature_ids)


def train_rankers(
    dataset: Dataset,
    count: int,
    *,
    seed: Seed,
    validation: Dataset | None = None,
    rankers: Kind = "paper",
    queries: int = 100,
    workers: int = 1,
    progress: Progress | None = None,
) -> LinearRankers:
    """Train ``count`` linear rankers, each on its own sample of queries and half of the features.

    Args:
        seed: An integer or a SeedSequence; the same seed gives the same rankers.
        validation: where the early-stopping queries come from; without it from the queries of ``dataset`` that the
            ranker is not trained on (if there are fewer than twice ``queries``, half of them train and half validate).
        rankers: ``"paper"``, as the text says: weights off the random half are zero, the others start at N(0, 0.01^2),
            just enough to break the ties of the first ranking. ``"code"``, as the authors' code does and their ranker
            file shows: all weights start at N(0, 1) and the half only limits which of them learn.
        queries: training queries per ranker, and validation queries per ranker.
        workers: threads (the compiled loop runs outside the interpreter lock, and threads share a memory-mapped data
            set). The same seed gives the same bytes for any number.
        progress: called with rankers done and ``count``.
    """
    one_of("rankers", rankers, ("paper", "code"))
    at_least("count", count, 0)
    at_least("queries", queries, 1)
    at_least("workers", workers, 1)
    at_least(f"number of queries of {dataset.name}", dataset.n_queries, 2)
    if validation is not None and not np.array_equal(validation.feature_ids, dataset.feature_ids):
        raise ValueError(
            f"{validation.name} and {dataset.name} must have the same features; see read_letor(feature_ids=)"
        )
    weights = np.empty((count, dataset.n_features))

    def train(task: tuple[int, np.random.SeedSequence]) -> None:
        i, child = task
        weights[i] = _train_one(dataset, validation, rankers, queries, child)

    with ThreadPoolExecutor(workers) as pool:
        for done, _ in enumerate(pool.map(train, enumerate(children(seed, count))), start=1):
            if progress is not None:
                progress(done, count)
    return LinearRankers(weights, dataset.feature_ids)


def _train_one(
    dataset: Dataset, validation: Dataset | None, kind: Kind, queries: int, seed: np.random.SeedSequence
) -> FloatArray:
    random = generator(seed)
    order = random.permutation(dataset.n_queries)
    if validation is None:
        queries = min(queries, dataset.n_queries // 2)
        check = dataset.take(order[queries : 2 * queries])
    else:
        check = validation.take(random.permutation(validation.n_queries)[:queries])
    sample = dataset.take(order[:queries])
    trainable = np.zeros(dataset.n_features, np.bool_)
    trainable[random.permutation(dataset.n_features)[: (dataset.n_features + 1) // 2]] = True
    if kind == "code":
        start = random.standard_normal(dataset.n_features)
    else:
        start = np.where(trainable, 0.01 * random.standard_normal(dataset.n_features), 0.0)
    schedule = np.stack([random.permutation(sample.n_queries) for _ in range(MAX_PASSES)])
    best, _ = _kernels.train_linear(
        start, trainable, schedule, LEARNING_RATE, DECAY, PATIENCE, NDCG_CUTOFF,
        sample.offsets, sample.labels, sample.features, check.offsets, check.labels, check.features,
    )  # fmt: skip
    return np.asarray(best)


def read_rankers(
    path: str | os.PathLike[str], dataset: Dataset | None = None, *, allow_dropped: bool = False
) -> LinearRankers:
    """Read the paper's ranker file: a ranker a line, ``feature:weight`` pairs with original feature ids, plain or gzipped.

    With a data set the weights are aligned to its features (see ``LinearRankers.align``); without, the columns are all
    features of the file in increasing order.
    """
    file = existing_file(path)
    found = [_parse_weights(file, number, line) for number, line in lines(file)]
    if not found:
        raise FormatError(file, 1, "no ranker in the file; expected lines like '1:-0.43 2:0.91'")
    feature_ids = np.array(sorted(set().union(*found)), np.int32)
    weights = np.zeros((len(found), len(feature_ids)))
    for row, ranker in zip(weights, found):
        row[np.searchsorted(feature_ids, np.array(list(ranker), np.int32))] = list(ranker.values())
    rankers = LinearRankers(weights, feature_ids)
    if dataset is None:
        return rankers
    try:
        return rankers.align(dataset, allow_dropped=allow_dropped)
    except ValueError as problem:
        raise FormatError(file, None, str(problem)) from None


def _parse_weights(file: Path, number: int, line: str) -> dict[int, float]:
    ranker: dict[int, float] = {}
    for token in line.split():
        match = _WEIGHT.fullmatch(token)
        if match is None or int(match[1]) > _kernels.MAX_FEATURE_ID:
            most = f"{_kernels.MAX_FEATURE_ID:,}"
            raise FormatError(file, number, f"{token[:40]!r} must be feature:weight with a feature from 1 to {most}")
        feature = int(match[1])
        if feature in ranker:
            raise FormatError(file, number, f"feature {feature} appears twice in this ranker")
        ranker[feature] = parsed(file, number, f"weight of feature {feature},", match[2], float)
    if not ranker:
        raise FormatError(file, number, "an empty line; each line is a ranker such as '1:-0.43 2:0.91'")
    return ranker


def write_rankers(path: str | os.PathLike[str], rankers: LinearRankers) -> None:
    """Write the paper's ranker file, gzipped if the name ends in .gz; weights of zero are left out."""
    file = Path(path)
    at_least("number of features", len(rankers.feature_ids), 1)
    part = file.with_name(f".{file.name}.part")  # a file of that name is complete or as it was
    with gzip.open(part, "wt") if file.suffix == ".gz" else part.open("w") as out:
        for weights in rankers.weights:
            used = np.flatnonzero(weights)
            if len(used) == 0:
                # A line must name a feature to be a ranker.
                used = np.array([0])
            pairs = zip(rankers.feature_ids[used].tolist(), weights[used].tolist())
            out.write("".join(f" {feature}:{weight:.6f}" for feature, weight in pairs) + "\n")
    part.replace(file)


def read_scores(path: str | os.PathLike[str], dataset: Dataset) -> FloatArray:
    """Read one score per line, plain or gzipped: line i scores document i of the data set."""
    file = existing_file(path)
    scores = np.empty(dataset.n_documents)
    number = 0
    for number, line in lines(file):
        text = line.strip()
        if not text:
            raise FormatError(file, number, "an empty line; each line is the score of one document")
        if number <= dataset.n_documents:
            scores[number - 1] = parsed(file, number, "score", text, float)
    if number != dataset.n_documents:
        raise FormatError(file, None, f"{number:,} scores, but {dataset.name} has {dataset.n_documents:,} documents")
    return scores
