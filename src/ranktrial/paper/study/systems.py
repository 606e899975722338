"""Real systems in a study: what rank each gives each document, from run files or score files, and pairs of them.

A table of ranks has a row per system and a column per document of the data set: from 1, and 0 where the system does not list
the document. So lists may be of any length, and one table serves all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import FloatArray, IntArray, offsets_of
from ranktrial.paper.data import Dataset
from ranktrial.rankings import Pair, Rankings
from ranktrial.rankings.lists import rank_by_score
from ranktrial.seeds import Seed, generator
from ranktrial.trec import Qrels, Run

Ranks = NDArray[np.int32]


def ranked_by_runs(
    runs: Sequence[Run], qrels: Qrels, *, name: str, queries: int | None = None
) -> tuple[Dataset, Ranks]:
    """The data set of all documents that the runs list for judged queries, and the ranks that they have.

    Documents without a judgement have label 0. ``queries`` keeps the first so many.
    """
    judged = [query for query in dict.fromkeys(q for run in runs for q in run.query_ids) if query in qrels.grades]
    if not judged:
        raise ValueError(f"{qrels.name}: judges none of the queries of the runs of {name}")
    judged = judged[:queries]
    at = [{query: i for i, query in enumerate(run.query_ids)} for run in runs]
    ids: list[str] = []
    sizes: list[int] = []
    entries: list[tuple[int, int, int]] = []
    for query in judged:
        known: dict[str, int] = {}
        for system, (run, where) in enumerate(zip(runs, at)):
            for rank, document in enumerate(run.ranking(where[query]) if query in where else (), start=1):
                entries.append((system, known.setdefault(document, len(ids) + len(known)), rank))
        ids.extend(known)
        sizes.append(len(known))
    ranks = np.zeros((len(runs), len(ids)), np.int32)
    systems, documents, values = np.array(entries, np.int64).T
    ranks[systems, documents] = values
    offsets = offsets_of(sizes)
    dataset = Dataset(
        offsets=offsets,
        labels=np.maximum(qrels.labels(judged, offsets, ids), 0),
        features=np.empty((len(ids), 0), np.float32),
        query_ids=np.arange(len(judged)),
        feature_ids=np.empty(0, np.int32),
        name=name,
    )
    return dataset, ranks


def ranked_by_scores(scores: Sequence[FloatArray], offsets: IntArray, *, seed: Seed) -> Ranks:
    """The ranks of every document by each column of scores; ties are broken alike for all."""
    place = np.arange(1, offsets[-1] + 1) - np.repeat(offsets[:-1], np.diff(offsets))
    ranks = np.empty((len(scores), int(offsets[-1])), np.int32)
    for row, column in zip(ranks, scores):
        row[rank_by_score(column, offsets, seed=seed).documents] = place
    return ranks


def system_pairs(systems: int, *, seed: Seed) -> list[tuple[int, int]]:
    """All pairs of systems, the earlier one as A, in random order: the first of them are a fair sample of all."""
    pairs = list(combinations(range(systems), 2))
    return [pairs[i] for i in generator(seed).permutation(len(pairs))]


def pair_of_ranks(a: Ranks, b: Ranks, offsets: IntArray, k: int) -> Pair:
    """The pair of two systems over the documents that either lists; its ``ids`` are their numbers in the data set."""
    listed = np.flatnonzero((a > 0) | (b > 0))
    own = np.searchsorted(listed, offsets)
    return Pair(_lists(a[listed], own), _lists(b[listed], own), own, k, ids=listed.tolist())


def _lists(ranks: Ranks, offsets: IntArray) -> Rankings:
    documents = np.flatnonzero(ranks)
    query = np.searchsorted(offsets, documents, side="right")
    order = np.lexsort((ranks[documents], query))
    return Rankings(np.searchsorted(documents, offsets), documents[order].astype(np.int32))
