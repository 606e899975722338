"""Rankers from TREC run files and score columns."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ranktrial.paper.data import read_scores, yahoo_like
from ranktrial.trec import FormatError, read_run

RUN = """\
q2 Q0 d1 1 0.5 bm25
q1 Q0 d9 1 3 bm25
q2 Q0 d2 2 7e-1 bm25
q1 Q0 d8 3 2.5 bm25
q1\tQ0\td7\t2\t2.5\tbm25
"""


@pytest.mark.parametrize("name", ["run.txt", "run.txt.gz"])
def test_by_score_with_ties_by_rank(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(RUN.encode()) if name.endswith(".gz") else RUN.encode())
    run = read_run(file)
    assert run.query_ids == ("q2", "q1")
    assert run.offsets.tolist() == [0, 2, 5]
    assert run.ranking(0) == ("d2", "d1")
    assert run.ranking(1) == ("d9", "d7", "d8")
    assert run.scores.tolist() == [0.7, 0.5, 3, 2.5, 2.5]
    assert repr(run) == "Run bm25: 2 queries, 5 documents"


def test_a_byte_order_mark_is_no_part_of_the_first_query(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_bytes(b"\xef\xbb\xbf" + RUN.encode())
    assert read_run(tmp_path / "run.txt").query_ids == ("q2", "q1")


def test_queries_and_documents_have_spaces_where_tabs_are_between_columns(tmp_path: Path) -> None:
    """As in a log of searches, whose queries are texts."""
    (tmp_path / "run.txt").write_text("red shoes\tQ0\tsku 7\t1\t2.5\tmy tag\nred shoes \t Q0\tsku 8\t2\t 1 \tmy tag\n")
    run = read_run(tmp_path / "run.txt")
    assert (run.query_ids, run.ranking(0), run.tag) == (("red shoes",), ("sku 7", "sku 8"), "my tag")
    (tmp_path / "run.txt").write_text("red shoes Q0 sku-7 1 2.5 tag\n")
    with pytest.raises(FormatError, match=r"7 columns, must be 6: .*with tabs between them where one has spaces"):
        read_run(tmp_path / "run.txt")


def test_some_queries_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(RUN)
    run = read_run(tmp_path / "run.txt")
    one = run.only({"q1", "q7"})
    assert (one.query_ids, one.ranking(0), one.tag) == (("q1",), ("d9", "d7", "d8"), "bm25")
    assert one.offsets.tolist() == [0, 3]
    assert one.scores.tolist() == [3, 2.5, 2.5]
    assert run.only([]).n_documents == 0


def test_empty_run_and_foreign_bytes(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("\n")
    with pytest.raises(FormatError, match="nothing in the file"):
        read_run(tmp_path / "run.txt")
    (tmp_path / "run.txt").write_bytes(b"q1 Q0 d\xff 1 2 r\n")
    with pytest.raises(FormatError, match=":1: not UTF-8 text"):
        read_run(tmp_path / "run.txt")


def test_score_column(tmp_path: Path) -> None:
    dataset = yahoo_like(2, seed=1)
    file = tmp_path / "scores.txt"
    values = [i / 7 for i in range(dataset.n_documents)]
    file.write_text("\n".join(map(repr, values)))
    assert read_scores(file, dataset).tolist() == values
    zipped = tmp_path / "scores.txt.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes() + b"\r\n"))
    assert read_scores(zipped, dataset).tolist() == values


def test_bad_score_columns(tmp_path: Path) -> None:
    dataset = yahoo_like(2, seed=1)
    n = dataset.n_documents
    file = tmp_path / "scores.txt"
    for count in (0, n - 1, n + 1):
        file.write_text("1\n" * count)
        with pytest.raises(FormatError, match=f"{count} scores, but yahoo-like has {n} documents"):
            read_scores(file, dataset)
    for bad, message in (("nan", "not a finite number"), ("x", "not a number"), ("", "an empty line")):
        file.write_text("1\n" * 4 + bad + "\n" + "1\n" * (n - 5))
        with pytest.raises(FormatError, match=message) as caught:
            read_scores(file, dataset)
        assert caught.value.line == 5
