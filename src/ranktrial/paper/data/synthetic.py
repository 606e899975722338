"""Synthetic data sets with the shape of Yahoo and MSLR, free to make at any size where the licensed sets are not at hand.

Each document has a hidden relevance, part of it shared by its query; cutting it at fixed points gives labels with the
skew of the real set. Features are correlated as real ones are: all share one factor (how well the document matches at
all), which agrees with relevance; groups of them (BM25 of title, body, anchor ...) share another, which agrees or
disagrees a little. Relevant documents also stand out more, in whichever direction, as they do in MSLR, where even random
weights beat a random order. Features are more or less skewed and scaled per query to [0, 1] like features from a file.

How features agree with relevance belongs to the kind of set, not to the seed, so rankers trained on one seed work on
another. Strengths are set so that rankers trained on 100 queries (``rankers="code"``) get the click-through rates of the
paper's shipped rankers.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import FloatArray, IntArray, offsets_of
from ranktrial.checks import at_least
from ranktrial.distributions import normal_quantiles
from ranktrial.paper.data.dataset import Dataset
from ranktrial.seeds import Seed, children, generator
from ranktrial.trec.files import Progress

_BLOCK_QUERIES = 256
GROUP = 2
GROUP_LOADING = 0.5  # correlation of a feature with its group's factor


@dataclass(frozen=True)
class _Kind:
    """Shape of a data set, and how strongly its features agree with relevance.

    Attributes:
        labels: share of each label, from 0.
        documents: mean documents a query; ``fewest`` and ``most`` bound it.
        query_share: share of the variance of relevance that all documents of a query have in common.
        features: number of features, in groups of ``GROUP``.
        agreement: correlation of the common factor with relevance within a query.
        group_agreement: scale over groups of the same correlation of their factors; the mean is 0.
        loading: correlation of a feature with the common factor.
        prominence: how much more relevant documents stand out: features spread as exp(prominence * relevance).
        skew: greatest skew of a feature; the larger, the more documents of a query sit near 0.
    """

    name: str
    labels: tuple[float, ...]
    documents: float
    fewest: int
    most: int
    query_share: float
    features: int
    agreement: float
    group_agreement: float
    loading: float
    prominence: float
    skew: float
    structure_seed: int


_YAHOO = _Kind(
    name="yahoo-like",
    labels=(0.26, 0.36, 0.285, 0.075, 0.02),
    documents=24,
    fewest=8,
    most=80,
    query_share=0.45,
    features=80,
    agreement=0.07,
    group_agreement=0.018,
    loading=0.7,
    prominence=0.165,
    skew=1.0,
    structure_seed=14,
)
_MSLR = _Kind(
    name="mslr-like",
    labels=(0.514, 0.325, 0.134, 0.019, 0.008),
    documents=120,
    fewest=30,
    most=300,
    query_share=0.30,
    features=60,
    agreement=0.16,
    group_agreement=0.016,
    loading=0.73,
    prominence=0.0,
    skew=1.1,
    structure_seed=30,
)


def yahoo_like(
    n_queries: int, *, seed: Seed, features_file: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> Dataset:
    """A set shaped like Yahoo Webscope C14 set 1: 24 documents a query, labels 0-4, mostly 0-2.

    Args:
        n_queries: How many queries.
        seed: An integer or a SeedSequence; the same seed gives the same set.
        features_file: A .npy file to hold the features memory-mapped instead of in memory.
        progress: Called with queries done and ``n_queries``.
    """
    return _generate(_YAHOO, n_queries, seed, features_file, progress)


def mslr_like(
    n_queries: int, *, seed: Seed, features_file: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> Dataset:
    """A set shaped like MSLR-WEB30k: 120 documents a query, labels 0-4, half of them 0. Options as ``yahoo_like``."""
    return _generate(_MSLR, n_queries, seed, features_file, progress)


def _generate(
    kind: _Kind, n_queries: int, seed: Seed, features_file: str | os.PathLike[str] | None, progress: Progress | None
) -> Dataset:
    at_least("n_queries", n_queries, 1)
    block_starts = range(0, n_queries, _BLOCK_QUERIES)
    # Blocks have their own seeds, so memory beyond the result is that of one block.
    length_seed, *block_seeds = children(seed, 1 + len(block_starts))
    offsets = offsets_of(_lengths(kind, n_queries, generator(length_seed)))
    shape = (int(offsets[-1]), kind.features)
    features: NDArray[np.float32] = (
        np.empty(shape, np.float32)
        if features_file is None
        else np.lib.format.open_memmap(Path(features_file), "w+", np.float32, shape)
    )
    labels = np.empty(shape[0], np.int16)
    structure = _structure(kind)
    for start, block_seed in zip(block_starts, block_seeds):
        end = min(start + _BLOCK_QUERIES, n_queries)
        rows = slice(int(offsets[start]), int(offsets[end]))
        lengths = np.diff(offsets[start : end + 1])
        labels[rows], features[rows] = _documents(kind, structure, lengths, generator(block_seed))
        if progress is not None:
            progress(end, n_queries)
    return Dataset(
        offsets=offsets,
        labels=labels,
        features=features,
        query_ids=np.arange(1, n_queries + 1, dtype=np.int64),
        feature_ids=np.arange(1, kind.features + 1, dtype=np.int32),
        name=kind.name,
    )


def _lengths(kind: _Kind, n_queries: int, random: np.random.Generator) -> IntArray:
    spread = 0.45
    lengths = kind.documents * np.exp(random.normal(0, spread, n_queries) - spread**2 / 2)
    return np.clip(np.round(lengths), kind.fewest, kind.most).astype(np.int64)


def _structure(kind: _Kind) -> tuple[FloatArray, FloatArray]:
    """Agreement of each group with relevance, and skew of each feature: properties of the kind, not of the seed."""
    random = np.random.default_rng(kind.structure_seed)
    groups = kind.features // GROUP
    # Evenly spaced quantiles in random order, cubed: most groups say next to nothing, a few say a lot, as in real sets,
    # and which of those a ranker's half of the features includes makes rankers differ.
    agreement = kind.group_agreement * normal_quantiles((np.arange(groups) + 0.5) / groups) ** 3
    skew = random.uniform(0, kind.skew, kind.features)
    return random.permutation(agreement), skew


def _documents(
    kind: _Kind, structure: tuple[FloatArray, FloatArray], lengths: IntArray, random: np.random.Generator
) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    agreement, skew = structure
    documents = int(lengths.sum())
    query = np.repeat(random.standard_normal(len(lengths)), lengths)
    own = random.standard_normal(documents)
    relevance = np.sqrt(kind.query_share) * query + np.sqrt(1 - kind.query_share) * own
    labels = np.searchsorted(normal_quantiles(np.cumsum(kind.labels)[:-1]), relevance).astype(np.int16)

    common = np.sqrt(1 - kind.agreement**2) * random.standard_normal(documents) + kind.agreement * own
    groups = random.standard_normal((documents, len(agreement)), np.float32) * np.sqrt(1 - agreement**2)
    groups += agreement * own[:, None]
    shared = kind.loading * common[:, None] + GROUP_LOADING * groups
    features = random.standard_normal((documents, kind.features), np.float32)
    features *= np.float32(np.sqrt(1 - kind.loading**2 - GROUP_LOADING**2))
    features += np.repeat(shared.astype(np.float32), GROUP, axis=1)
    features *= np.exp(kind.prominence * own).astype(np.float32)[:, None]
    np.exp(features * skew.astype(np.float32), out=features)
    for start, end in itertools.pairwise(offsets_of(lengths).tolist()):
        part = features[start:end]
        low = part.min(0)
        part -= low
        part /= np.maximum(part.max(0), np.finfo(np.float32).tiny)
    return labels, features
