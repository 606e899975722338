"""Particulars of the store in a SQLite file: durability, schema versions, other people's files, connections."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ranktrial.store import sqlite as module
from ranktrial.store.base import (
    Click,
    ClickRow,
    Event,
    EventRow,
    ImpressionRow,
    MarkRow,
    ShownRow,
    StoreError,
    Void,
    VoidRow,
)
from ranktrial.store.migrations import FIRST, migrate
from ranktrial.store.sqlite import SQLiteStore
from ranktrial.store.sqlite_backup import backup
from ranktrial.store.sqlite_database import MIGRATIONS, SQLiteSchema
from ranktrial.store.stored import Stored
from store.kinds import impression, key


def test_a_commit_is_on_the_disk(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        store.put(impression(1)).result()
        other = sqlite3.connect(tmp_path / "s.db")
        assert other.execute("SELECT count(*) FROM impressions").fetchone() == (1,)
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        other.close()
        assert store._file.connect(1).execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_what_comes_while_another_process_holds_the_lock_goes_into_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, looked, commits = list[float](), threading.Event(), list[int]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        looked.set()
        time.sleep(0)

    def write(self: SQLiteStore, rows: list[Stored], *more: Any) -> None:
        written(self, rows, *more)
        commits.append(len(rows))

    written = SQLiteStore._transaction
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    monkeypatch.setattr(SQLiteStore, "_transaction", write)
    with (
        contextlib.closing(SQLiteStore(tmp_path / "s.db", write_timeout=600)) as store,
        contextlib.closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        first = store.put(impression(1))
        assert looked.wait(60)
        store.tally(1, "seen", soon=False)
        rest = [store.put(impression(number)) for number in range(2, 6)]
        assert rest[0].cancel()
        other.execute("ROLLBACK")
        for stored in (first, *rest[1:]):
            stored.result(60)
        assert commits == [4]
        assert other.execute("SELECT name, count FROM tallies").fetchall() == [("seen", 1)]
        assert store.waiting == 0
    assert pauses[0] == module.LOOK_AGAIN
    assert max(pauses) <= module.LONGEST_LOOK


def test_what_is_committed_is_brought_into_the_file_beside_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_EVERY", 0.001)
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        store.put(impression(1)).result()
        while impressions_without_log(tmp_path / "s.db", tmp_path / "copy.db") != 1:
            threading.Event().wait(0.01)


def impressions_without_log(path: Path, copy: Path) -> int:
    """Number that the file has by itself."""
    shutil.copy(path, copy)
    with contextlib.closing(sqlite3.connect(copy)) as alone:
        try:
            return int(alone.execute("SELECT count(*) FROM impressions").fetchone()[0])
        except sqlite3.DatabaseError:  # nothing has been brought into it yet, or not all
            return 0


def test_no_checkpoint_is_made_of_a_file_that_is_lost(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        store.put(impression(1)).result()
        (tmp_path / "s.db").rename(tmp_path / "moved.db")
        (tmp_path / "s.db").write_bytes(b"another")
        with pytest.raises(StoreError, match="another file now"):
            store._file.checkpoint()
        assert (tmp_path / "s.db").read_bytes() == b"another"


def test_the_schema_is_brought_up_to_date_in_steps(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with contextlib.closing(SQLiteStore(path)) as store:
        store.put(impression(1)).result()
    connection = sqlite3.connect(path, isolation_level=None)
    steps, newest = (*MIGRATIONS, "CREATE TABLE more (x); INSERT INTO more VALUES (1)"), FIRST + len(MIGRATIONS)
    begin = SQLiteSchema(connection).transaction
    assert migrate("s.db", begin, steps) == (newest - 1, newest)
    assert migrate("s.db", begin, steps) == (newest, newest)
    assert connection.execute("SELECT * FROM more").fetchall() == [(1,)]
    assert connection.execute("PRAGMA user_version").fetchone() == (newest,)
    assert connection.execute("SELECT count(*) FROM impressions").fetchone() == (1,)
    with pytest.raises(sqlite3.OperationalError):
        migrate("s.db", begin, (*steps, "CREATE TABLE good (x); CREATE TABLE more (x)"))
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'good'").fetchone() == (0,)
    connection.close()
    with pytest.raises(StoreError, match=f"schema {newest}, this ranktrial knows up to {newest - 1}"):
        SQLiteStore(path)


def test_a_store_of_development_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    SQLiteStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.execute(f"PRAGMA user_version = {FIRST - 1}")
    with pytest.raises(StoreError, match="of before its first release"):
        SQLiteStore(path)
    with pytest.raises(StoreError, match="of before its first release"):
        backup(path, tmp_path / "copy.db")


def test_columns_may_be_in_any_order(tmp_path: Path) -> None:
    """As in a store whose schema has grown step by step."""
    path = tmp_path / "s.db"
    SQLiteStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as old:
        for table in ("impressions", "clicks", "events", "designs", "marks", "voids", "tallies"):
            columns = old.execute(f"SELECT name, type FROM pragma_table_info('{table}') ORDER BY cid DESC").fetchall()
            indexes = old.execute(f"SELECT name FROM pragma_index_list('{table}') WHERE [unique]").fetchall()
            keys = {
                tuple(row[0] for row in old.execute(f"SELECT name FROM pragma_index_info('{name}')"))
                for (name,) in indexes
            }
            old.execute(f"DROP TABLE {table}")
            kinds = [f"{name} {'INTEGER PRIMARY KEY' if name == 'id' else kind}" for name, kind in columns]
            kinds += [f"UNIQUE ({', '.join(one)})" for one in keys]
            old.execute(f"CREATE TABLE {table} ({', '.join(kinds)})")
    with contextlib.closing(SQLiteStore(path)) as store:
        store.put(impression(1))
        store.put(Click(key(1), 1, "x", False, time=9, marks=(3,)))
        store.put(Event(key(1), 1, "x", "order", "1", 7, 6, 5))
        store.put(Void(key(2), 1, "why", 2)).result()
        store.tally(1, "seen", 2)
        store.flush()
        assert [(row.key, row.unit) for row in store.rows(ImpressionRow, 1, 0)] == [(key(1), 1)]
        assert [row[1:] for row in store.rows(ClickRow, 1, 0)] == [(key(1), "x", 0, 9)]
        assert [row[1:] for row in store.rows(EventRow, 1, 0)] == [(key(1), "x", "order", 7, 6)]
        assert [row.reason for row in store.rows(VoidRow, 1, 0)] == ["why"]
        assert [row.kind for row in store.rows(MarkRow, 1, 0)] == [3]
        assert store.tallies(1) == {"seen": 2}


def test_a_store_of_before_the_first_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript("CREATE TABLE trials (x); CREATE TABLE impressions (x); CREATE TABLE clicks (x)")
        old.execute("PRAGMA user_version = 1")
        old.execute("PRAGMA journal_mode = WAL")
    before = path.read_bytes()
    advice = "of before its first release.*with the version that made it, and begin new trials in a new store"
    with pytest.raises(StoreError, match=f"s.db was made by a ranktrial {advice}"):
        SQLiteStore(path)
    with pytest.raises(StoreError, match=advice):
        backup(path, tmp_path / "copy.db")
    assert path.read_bytes() == before


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


def test_reading_from_many_threads_needs_few_connections(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as store:
        store.put(impression(1)).result()
        found: list[ShownRow | None] = []
        for _ in range(30):
            thread = threading.Thread(target=lambda: found.append(store.impression(key(1))))
            thread.start()
            thread.join()
        assert [one is not None for one in found] == [True] * 30
        assert len(store._file._idle) == 1


@pytest.mark.parametrize("name", ["read_timeout", "write_timeout"])
@pytest.mark.parametrize("value", ["x", None, -1, float("nan"), float("inf")])
def test_timeouts_are_checked_before_a_file_is_made(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value!r}, must be"):
        SQLiteStore(tmp_path / "s.db", **{name: value})  # type: ignore[arg-type]
    assert not (tmp_path / "s.db").exists()
