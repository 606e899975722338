"""The store: acknowledged means on the disk, every row once, bounded queue, schema versions."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

from ranktrial.live.designs import make_design
from ranktrial.live.stores import sqlite as module
from ranktrial.live.stores.base import Click, Impression, Nothing, Overloaded, Row, Stored, StoreError, Void
from ranktrial.live.stores.sqlite import SQLiteStore

DESIGN = make_design("q", ["x", "y"], ["y", "x"], np.array([1, 0.5]), bias=1, floor=0, plain=(0.1, 0.1))


def impression(number: int, place: int = 0) -> Impression:
    return Impression(b"%010d" % number, 1, DESIGN, place, number, number)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process that holds the write lock."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_what_is_acknowledged_is_there_for_others(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        store.put(impression(1)).result()
        other = sqlite3.connect(tmp_path / "s.db")
        assert other.execute("SELECT count(*) FROM impressions").fetchone() == (1,)
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        other.close()
        found = store.impression(b"%010d" % 1)
        assert found is not None
        assert found.design.digest == DESIGN.digest
        assert store.impression(b"%010d" % 2) is None
        assert store._connect(1).execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_rows_are_stored_once(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        for _ in range(3):
            store.put(impression(1))
            store.put(Click(b"%010d" % 1, 1, "x", False))
            store.put(Void(b"%010d" % 2, 1, "why", 2))
        store.flush()
        assert [len(list(store.rows(table, 1, 0))) for table in ("impressions", "clicks", "voids")] == [1, 1, 1]
        assert store.tallies(1) == {"duplicate clicks": 2}
        assert store.void(b"%010d" % 2) == "why"
        assert len(list(store.designs([1]))) == 1


def test_one_key_shown_in_two_ways_is_void(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        store.put(impression(1, place=0))
        store.put(impression(1, place=0))
        store.put(impression(2, place=0))
        store.put(impression(2, place=1))
        store.flush()
        assert store.void(b"%010d" % 1) is None
        assert store.void(b"%010d" % 2) == "shown in two ways"


def test_only_one_s_own_impression_is_voided(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        store.put(impression(1))  # at time 1
        store.put(Void(b"%010d" % 1, 1, "another of that key", 7))
        store.put(impression(2))
        store.put(Void(b"%010d" % 2, 1, "its own", 2))
        store.flush()
        assert [store.void(b"%010d" % number) for number in (1, 2)] == [None, "its own"]


def test_many_rows_in_one_commit(tmp_path: Path) -> None:
    """More than fit in a statement; some twice, one in two ways; the designs of a commit that failed are not relied on."""
    path = tmp_path / "s.db"
    with contextlib.closing(SQLiteStore(path, write_timeout=60)) as store:
        with locked(path):
            rows: list[Row] = [impression(number) for number in (*range(130), *range(20))]
            rows += [Click(b"%010d" % number, 1, "x", False) for number in (*range(130), *range(30))]
            futures = [store.put(row) for row in (*rows, impression(77, place=1))]
            bad = store.put(Click(b"%010d" % 0, 1, "\ud800", False))
        for future in futures:
            future.result(60)
        assert isinstance(bad.exception(60), UnicodeEncodeError)
        assert sorted(row[1] for row in list(store.rows("impressions", 1, 0))) == [
            b"%010d" % number for number in range(130)
        ]
        assert {row[3] for row in list(store.rows("impressions", 1, 0))} == {1}
        assert store.impression(b"%010d" % 129) is not None  # with its design
        assert len(list(store.rows("clicks", 1, 0))) == 130
        assert [row[2] for row in list(store.rows("voids", 1, 0))] == [b"%010d" % 77]
        assert store.tallies(1)["duplicate clicks"] == 30


def test_a_full_queue_refuses_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with contextlib.closing(SQLiteStore(path, queue_size=5, write_timeout=60)) as store:
        with locked(path):
            taken = [store.put(impression(0))]
            while not taken[0].running():  # it is this one that waits for the lock, outside the queue
                threading.Event().wait(0.001)
            taken += [store.put(impression(number)) for number in range(1, 6)]
            with pytest.raises(Overloaded, match="5 rows wait"):
                store.put(impression(6))
            void = store.put(Void(b"%010d" % 0, 1, "always possible", 0))
        for future in (*taken, void):
            future.result(60)
        assert len(list(store.rows("impressions", 1, 0))) == len(taken)
        store.put(impression(99)).result(60)


def test_what_is_taken_back_in_time_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with contextlib.closing(SQLiteStore(path, write_timeout=60)) as store:
        with locked(path):
            first = store.put(impression(0))
            while not first.running():  # it is this one that waits for the lock
                threading.Event().wait(0.001)
            second = store.put(impression(1))
            assert second.cancel()
            assert not first.cancel()
        first.result(60)
        with pytest.raises(CancelledError):
            second.result(60)
        store.flush()
        assert [row[1] for row in list(store.rows("impressions", 1, 0))] == [b"%010d" % 0]


def test_a_bad_row_does_not_take_others_with_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with contextlib.closing(SQLiteStore(path, write_timeout=60)) as store:
        with locked(path):
            rows: list[Row] = [impression(0), Click(b"%010d" % 0, 1, "\ud800", False), impression(1)]
            futures = [store.put(row) for row in rows]
        futures[0].result(60)
        futures[2].result(60)
        assert isinstance(futures[1].exception(60), UnicodeEncodeError)
        assert store.tallies(1) == {"failed writes": 1}


def test_tallies_survive_a_store_that_is_down(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with contextlib.closing(SQLiteStore(path, write_timeout=0.01)) as store:
        with locked(path):
            store.tally(1, "trouble", 2)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                store.put(impression(1)).result(60)
            assert store.tallies(1) == {"trouble": 2, "failed writes": 1}
        store.put(Nothing()).result(60)
    with contextlib.closing(SQLiteStore(path)) as again:
        assert again.tallies(1) == {"trouble": 2, "failed writes": 1}


WRITE = """
import sys
sys.path.insert(0, sys.argv[3])
from test_store import SQLiteStore, impression
store = SQLiteStore(sys.argv[1], write_timeout=120)
futures = [store.put(impression(number)) for number in range(int(sys.argv[2]), int(sys.argv[2]) + 300)]
for future in futures:
    future.result()
store.close()
"""


def test_several_processes_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    here = str(Path(__file__).parent)
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(path), str(s), here]) for s in (0, 150)]
    assert [writer.wait() for writer in writers] == [0, 0]
    with contextlib.closing(SQLiteStore(path)) as store:
        rows = list(store.rows("impressions", 1, 0))
        assert sorted(row[1] for row in rows) == [b"%010d" % number for number in range(450)]
        assert store.count(1, 0) == (450, rows[-1][0])
        assert len(list(store.rows("impressions", 1, rows[99][0]))) == 350
        assert list(store.rows("voids", 1, 0)) == []


def test_the_schema_is_brought_up_to_date_in_steps(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with contextlib.closing(SQLiteStore(path)) as store:
        store.put(impression(1)).result()
    connection = sqlite3.connect(path, isolation_level=None)
    steps = (*module.MIGRATIONS, "CREATE TABLE more (x); INSERT INTO more VALUES (1)")
    module._migrate(connection, path, steps)
    module._migrate(connection, path, steps)
    assert connection.execute("SELECT * FROM more").fetchall() == [(1,)]
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert connection.execute("SELECT count(*) FROM impressions").fetchone() == (1,)
    with pytest.raises(sqlite3.OperationalError):
        module._migrate(connection, path, (*steps, "CREATE TABLE good (x); CREATE TABLE more (x)"))
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'good'").fetchone() == (0,)
    connection.close()
    with pytest.raises(StoreError, match="schema 2, this ranktrial knows up to 1"):
        SQLiteStore(path)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database " * 100)
    with pytest.raises(StoreError, match="cannot be opened"):
        SQLiteStore(text)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(StoreError, match="something else"):
        SQLiteStore(tmp_path / "other.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        SQLiteStore(tmp_path / "no" / "such" / "folder.db")


def test_closed_is_closed(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    last = store.put(impression(1))
    store.close()
    store.close()
    assert last.exception(0) is None
    with pytest.raises(StoreError, match="closed"):
        store.put(impression(2))


def test_reading_from_many_threads_needs_few_connections(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        store.put(impression(1)).result()
        found: list[Impression | None] = []
        for _ in range(30):
            thread = threading.Thread(target=lambda: found.append(store.impression(b"%010d" % 1)))
            thread.start()
            thread.join()
        assert [one is not None for one in found] == [True] * 30
        assert len(store._idle) == 1
    with pytest.raises(StoreError, match="closed"):
        store.impression(b"%010d" % 1)


def test_a_callback_that_fails_reaches_nobody(tmp_path: Path) -> None:
    def fail(_: Stored) -> None:
        raise SystemExit

    path = tmp_path / "s.db"
    with contextlib.closing(SQLiteStore(path, write_timeout=60)) as store:
        with locked(path):
            futures = [store.put(Click(b"%010d" % number, 1, "x", False)) for number in range(3)]
            futures[1].add_done_callback(fail)
            assert store.put(Nothing()).cancel()
        for future in futures:
            future.result(60)
        futures[0].add_done_callback(fail)
        store.flush(60)
        assert store.tallies(1) == {}


def test_rows_are_refused_or_stored_while_the_store_is_closed(tmp_path: Path) -> None:
    for attempt in range(20):
        store = SQLiteStore(tmp_path / f"{attempt}.db")
        accepted: list[Stored] = []

        def put_forever(store: SQLiteStore = store, accepted: list[Stored] = accepted) -> None:
            with contextlib.suppress(StoreError, Overloaded):
                while True:
                    accepted.append(store.put(Nothing()))

        thread = threading.Thread(target=put_forever)
        thread.start()
        store.close()
        thread.join()
        for stored in accepted:
            stored.result(0)
