"""Data sets from files or generators, and the rankers that score them."""

from __future__ import annotations

from ranktrial.data.cache import cache_folder
from ranktrial.data.dataset import Dataset
from ranktrial.data.files import FormatError
from ranktrial.data.letor import LetorError, read_letor, read_splits
from ranktrial.data.qrels import Qrels, read_qrels
from ranktrial.data.rankers import LinearRankers, read_rankers, train_rankers, write_rankers
from ranktrial.data.runs import Run, read_run, read_scores
from ranktrial.data.synthetic import mslr_like, yahoo_like

__all__ = [
    "Dataset",
    "FormatError",
    "LetorError",
    "LinearRankers",
    "Qrels",
    "Run",
    "cache_folder",
    "mslr_like",
    "read_letor",
    "read_qrels",
    "read_rankers",
    "read_run",
    "read_scores",
    "read_splits",
    "train_rankers",
    "write_rankers",
    "yahoo_like",
]
