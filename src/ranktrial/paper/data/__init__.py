"""Data sets from files or generators, and the rankers that score them."""

from __future__ import annotations

from ranktrial.paper.data.cache import cache_folder
from ranktrial.paper.data.dataset import Dataset
from ranktrial.paper.data.letor import LetorError, read_letor, read_splits
from ranktrial.paper.data.rankers import LinearRankers, read_rankers, read_scores, train_rankers, write_rankers
from ranktrial.paper.data.synthetic import mslr_like, yahoo_like

__all__ = [
    "Dataset",
    "LetorError",
    "LinearRankers",
    "cache_folder",
    "mslr_like",
    "read_letor",
    "read_rankers",
    "read_scores",
    "read_splits",
    "train_rankers",
    "write_rankers",
    "yahoo_like",
]
