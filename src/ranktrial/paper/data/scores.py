"""Rankers from outside: columns of scores beside a data set; ``ranktrial.rankings`` turns scores into rankings."""

from __future__ import annotations

import os

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.paper.data.dataset import Dataset
from ranktrial.trec.files import FormatError, existing_file, lines, parsed


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
