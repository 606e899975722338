"""A bound on the memory of the process, and what DuckDB may have of it. What the process takes is for benchmarks to measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranktrial.formats.memory import open_bounded, resident, size_of


@pytest.mark.parametrize(
    ("told", "size"), [("2GB", 2 * 10**9), ("1500MB", 1_500_000_000), (" 1.5 gib ", 3 << 29), ("900000kB", 900_000_000)]
)
def test_sizes(told: str, size: int) -> None:
    assert size_of(told) == size


@pytest.mark.parametrize("told", ["2", "GB", "80%", "-1GB", "2 GB and more"])
def test_what_is_no_size_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match="must be a size such as 2GB"):
        size_of(told)


def test_duckdb_may_have_part_of_what_python_leaves(tmp_path: Path) -> None:
    with open_bounded(memory="20GB", spill=tmp_path) as roomy, open_bounded(memory="10GB", spill=tmp_path) as tight:
        told = [
            db.execute("SELECT CAST(current_setting('memory_limit') AS VARCHAR)").fetchall()[0][0]
            for db in (roomy, tight)
        ]
    more, less = (size_of(text.replace(" ", "")) for text in told)
    assert less < 0.7 * 10e9
    assert more - less == pytest.approx(0.7 * 10e9, rel=0.05)  # it is told to one digit after the point


def test_threads_are_fewer_where_memory_is_short(tmp_path: Path) -> None:
    with open_bounded(memory=f"{resident() / 1e6 + 250:.0f}MB", spill=tmp_path) as db:
        assert db.execute("SELECT CAST(current_setting('threads') AS INTEGER)").fetchall() == [(1,)]


def test_too_little_is_refused_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"memory is '50MB', of which Python has \d+ MB: must be \d+MB or more"):
        open_bounded(memory="50MB", spill=tmp_path)
