"""Judgements from TREC qrels, and the click probabilities of their grades."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ranktrial.trec import FormatError, read_qrels
from ranktrial.trec.qrels import UNJUDGED, zeta_by_grade

QRELS = """\
q1 0 d1 3
q2 0 d1 0

q1\t0\td2\t-2
q1 Q0 d3 1
"""


@pytest.mark.parametrize("name", ["q.qrels", "q.qrels.gz"])
def test_grades_by_query_and_document(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(QRELS.encode()) if name.endswith(".gz") else QRELS.encode())
    qrels = read_qrels(file)
    assert qrels.grades == {"q1": {"d1": 3, "d2": 0, "d3": 1}, "q2": {"d1": 0}}
    assert qrels.top == 3
    assert repr(qrels) == f"Qrels {name}: 2 queries, 4 judged documents, grades 0 to 3"
    labels = qrels.labels(["q2", "q1", "q9"], np.array([0, 2, 5, 6]), ["d1", "d3", "d3", "d9", "d2", "d1"])
    assert labels.tolist() == [0, UNJUDGED, 1, UNJUDGED, 0, UNJUDGED]


def test_grades_share_the_papers_range_of_clicks(tmp_path: Path) -> None:
    np.testing.assert_allclose(zeta_by_grade(4), 0.1 + 0.225 * np.arange(5))
    np.testing.assert_allclose(zeta_by_grade(3), [0.1, 0.4, 0.7, 1.0])
    np.testing.assert_allclose(zeta_by_grade(2, [0.2, 0.3, 0.9]), [0.2, 0.3, 0.9])
    np.testing.assert_allclose(zeta_by_grade(2, [0.0, 0.2, 0.3, 0.9, 1.0]), [0.0, 0.3, 1.0])
    (tmp_path / "none").write_text("q1 0 d1 0\n")
    assert read_qrels(tmp_path / "none").top == 1  # nothing relevant was found: that is no reason to click everything


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "q.qrels").write_text("\n")
    with pytest.raises(FormatError, match="nothing in the file; expected lines like '301 0 "):
        read_qrels(tmp_path / "q.qrels")
    with pytest.raises(FormatError, match="no such file"):
        read_qrels(tmp_path / "other.qrels")
