"""Relevance judgements of documents from a TREC qrels file, and the click probabilities of their grades."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.trec.files import FormatError, existing_file, parsed, table

UNJUDGED = -1
MOST_GRADE = int(np.iinfo(np.int16).max)
_EXAMPLE = "'301 0 FR940202-2-00150 1'"


@dataclass(frozen=True, eq=False, repr=False)
class Qrels:
    """Judgements of documents, by query.

    Attributes:
        grades: Of each judged document of each query, from 0.
        name: Of the file.
    """

    grades: Mapping[str, Mapping[str, int]]
    name: str = "qrels"

    @property
    def top(self) -> int:
        """The highest grade that was given; at least 1, so that there is a scale."""
        return max([1, *(grade for judged in self.grades.values() for grade in judged.values())])

    def labels(self, queries: Sequence[Any], offsets: IntArray, documents: Sequence[Any]) -> NDArray[np.int16]:
        """The grade of each document, UNJUDGED for those without one.

        Args:
            queries: Ids of queries.
            offsets: Query q has documents ``offsets[q]:offsets[q + 1]``.
            documents: Their ids, query after query.
        """
        found = np.full(len(documents), UNJUDGED, np.int16)
        for query, begin, end in zip(queries, offsets[:-1].tolist(), offsets[1:].tolist()):
            judged = self.grades.get(query, {})
            found[begin:end] = [judged.get(document, UNJUDGED) for document in documents[begin:end]]
        return found

    def __repr__(self) -> str:
        judged = sum(map(len, self.grades.values()))
        return f"Qrels {self.name}: {len(self.grades):,} queries, {judged:,} judged documents, grades 0 to {self.top}"


def read_qrels(path: str | os.PathLike[str]) -> Qrels:
    """Read TREC judgements, plain or gzipped: ``query iteration document grade`` a line, in any order.

    As in trec_eval a negative grade means not relevant, like 0. A document judged twice for a query is an error.

    >>> from pathlib import Path
    >>> _ = Path("judged.qrels").write_text("q1 0 doc-3 2\\nq1 0 doc-5 0\\n")
    >>> qrels = read_qrels("judged.qrels")
    >>> qrels, qrels.grades["q1"]["doc-3"]
    (Qrels judged.qrels: 1 queries, 2 judged documents, grades 0 to 2, 2)
    """
    file = existing_file(path)
    queries: dict[str, dict[str, tuple[int, int]]] = {}
    for number, (query, _, document, text) in table(file, "query iteration document grade", _EXAMPLE):
        judged = queries.setdefault(query, {})
        if document in judged:
            first = judged[document][1]
            raise FormatError(file, number, f"document {document!r} of query {query!r} is already on line {first}")
        grade = parsed(file, number, "grade", text, int)
        if grade > MOST_GRADE:
            raise FormatError(file, number, f"grade is {grade}, must be at most {MOST_GRADE:,}")
        judged[document] = max(0, grade), number
    return Qrels(
        {query: {document: grade for document, (grade, _) in judged.items()} for query, judged in queries.items()},
        file.name,
    )


def zeta_by_grade(top: int, zeta: Sequence[float] = (0.1, 1.0)) -> FloatArray:
    """P(click | examined) of grades 0 to ``top``: the values of ``zeta`` spread evenly over them.

    The default is the paper's 0.1 + 0.225 label where grades go to 4.

    >>> zeta_by_grade(4), zeta_by_grade(1)
    (array([0.1  , 0.325, 0.55 , 0.775, 1.   ]), array([0.1, 1. ]))
    """
    return np.interp(np.linspace(0, 1, top + 1), np.linspace(0, 1, len(zeta)), zeta)
