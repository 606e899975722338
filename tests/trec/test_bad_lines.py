"""Errors of TREC files name the file and the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ranktrial.trec import FormatError, read_qrels, read_run
from trec.test_qrels import QRELS
from trec.test_runs import RUN


@pytest.mark.parametrize(
    ("read", "good", "line", "message"),
    [
        (read_qrels, QRELS, "q1 d4 1", "3 columns, must be 4: query iteration document grade"),
        (read_qrels, QRELS, "q1 0 d4 1 extra", "5 columns, must be 4"),
        (read_qrels, QRELS, "q1 0 d4 high", "grade 'high' is not an integer"),
        (read_qrels, QRELS, "q1 0 d4 0.5", "grade '0.5' is not an integer"),
        (read_qrels, QRELS, "q1 0 d4 40000", "grade is 40000, must be at most 32,767"),
        (read_qrels, QRELS, "q1 0 d3 1", "document 'd3' of query 'q1' is already on line 5"),
        (read_run, RUN, "q1 Q0 d3 1 0.5", "5 columns, must be 6: query Q0 document rank score tag"),
        (read_run, RUN, "q1 Q0 d3 1 0.5 my run", "7 columns, must be 6"),
        (read_run, RUN, "q1 Q0 d3 first 0.5 r", "rank 'first' is not an integer"),
        (read_run, RUN, "q1 Q0 d3 1 high r", "score 'high' is not a number"),
        (read_run, RUN, "q1 Q0 d3 1 nan r", "score 'nan' is not a finite number"),
        (read_run, RUN, "q1 Q0 d9 4 0.5 r", "document 'd9' of query 'q1' is already on line 2"),
    ],
)
def test_bad_lines_are_named(
    tmp_path: Path, read: Callable[[Path], object], good: str, line: str, message: str
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text(good + line)
    with pytest.raises(FormatError, match=message) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}:6: ")
