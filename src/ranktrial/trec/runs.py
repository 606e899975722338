"""Rankers from outside: TREC run files."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import FloatArray, IntArray, offsets_of
from ranktrial.trec.files import FormatError, Progress, existing_file, parsed, table

_RUN_EXAMPLE = "'301 Q0 FR940202-2-00150 1 2.73 my-run'"


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The lists of one ranker, best document first.

    Attributes:
        query_ids: in the order in which the file first names them.
        offsets: the list of query q is ``document_ids[offsets[q]:offsets[q + 1]]``; int64.
        document_ids: all lists one after another.
        scores: of the documents, decreasing within a query; float64.
        tag: the name of the run in the last column of the first line.
    """

    query_ids: tuple[str, ...]
    offsets: IntArray
    document_ids: tuple[str, ...]
    scores: FloatArray
    tag: str

    @property
    def n_queries(self) -> int:
        return len(self.query_ids)

    @property
    def n_documents(self) -> int:
        return len(self.document_ids)

    def ranking(self, query: int) -> tuple[str, ...]:
        """Document ids of the query at this position (from 0), best first."""
        return self.document_ids[self.offsets[query] : self.offsets[query + 1]]

    def only(self, queries: Collection[str]) -> Run:
        """The run of those of its queries that are among these."""
        kept = [q for q, query in enumerate(self.query_ids) if query in queries]
        lists = [self.ranking(q) for q in kept]
        rows = [np.arange(self.offsets[q], self.offsets[q + 1]) for q in kept]
        return Run(
            query_ids=tuple(self.query_ids[q] for q in kept),
            offsets=offsets_of([len(ranked) for ranked in lists]),
            document_ids=tuple(document for ranked in lists for document in ranked),
            scores=self.scores[np.concatenate(rows)] if rows else self.scores[:0],
            tag=self.tag,
        )

    def __repr__(self) -> str:
        return f"Run {self.tag}: {self.n_queries:,} queries, {self.n_documents:,} documents"


def read_run(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Run:
    """Read a TREC run, plain or gzipped: ``query Q0 document rank score tag`` a line, in any order.

    Where all columns are apart by tabs, queries and documents may have spaces.
    As trec_eval does, documents are ranked by decreasing score and not by the rank column, which only breaks ties (the
    lower rank first). A document that appears twice for a query is an error. ``progress`` counts bytes of the file.

    >>> from pathlib import Path
    >>> _ = Path("bm25.run").write_text("q1 Q0 doc-3 1 7.5 bm25\\nq1 Q0 doc-8 2 6.1 bm25\\n")
    >>> run = read_run("bm25.run")
    >>> run, run.ranking(0)
    (Run bm25: 1 queries, 2 documents, ('doc-3', 'doc-8'))
    """
    file = existing_file(path)
    queries: dict[str, dict[str, tuple[float, int, int]]] = {}
    tag = ""
    columns = "query Q0 document rank score tag"
    for number, (query, _, document, rank, score, last) in table(file, columns, _RUN_EXAMPLE, progress=progress):
        # They sort by decreasing score, then rank, then line.
        entry = -parsed(file, number, "score", score, float), parsed(file, number, "rank", rank, int), number
        tag = tag or last
        entries = queries.setdefault(query, {})
        if document in entries:
            first = entries[document][-1]
            raise FormatError(file, number, f"document {document!r} of query {query!r} is already on line {first}")
        entries[document] = entry
    ranked = [
        (document, -entries[document][0])
        for entries in queries.values()
        for document in sorted(entries, key=entries.__getitem__)
    ]
    return Run(
        query_ids=tuple(queries),
        offsets=offsets_of([len(entries) for entries in queries.values()]),
        document_ids=tuple(document for document, _ in ranked),
        scores=np.array([score for _, score in ranked], np.float64),
        tag=tag,
    )
