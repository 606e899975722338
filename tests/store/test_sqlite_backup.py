"""Backup beside a running service, restore of what was backed up, and all that restore refuses."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from live_server import command, start
from ranktrial.cli import app
from ranktrial.store.base import Click, Event, ImpressionRow, StoreDamaged, StoreError
from ranktrial.store.sqlite import SQLiteStore
from ranktrial.store.sqlite_backup import Copied, backup, restore
from ranktrial.trial import Trial
from store.kinds import impression, key

A, B = ["x", "y", "z"], ["z", "y", "x"]


def filled(path: Path, numbers: range = range(30)) -> Path:
    with contextlib.closing(SQLiteStore(path, write_timeout=60)) as store:
        for number in numbers:
            store.put(impression(number))
            store.put(Click(key(number), 1, "x", False))
            store.put(Event(key(number), 1, "x", "order", "1", 7, 1, 0))
        store.flush(60)
    return path


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_a_backup_is_a_store_that_only_its_owner_reads(tmp_path: Path) -> None:
    path, copy = filled(tmp_path / "s.db"), tmp_path / "copy.db"
    assert backup(path, copy) == Copied(30, 30, 29, 30)
    assert names(tmp_path) == {"s.db", "copy.db"}
    assert copy.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(SQLiteStore(copy)) as store:
        assert [row.key for row in store.rows(ImpressionRow, 1, 0)] == [key(number) for number in range(30)]
    with pytest.raises(StoreError, match=r"copy\.db exists: a backup is written over nothing"):
        backup(path, copy)


def test_a_backup_while_rows_are_written_holds_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    path, end = tmp_path / "s.db", threading.Event()
    with contextlib.closing(SQLiteStore(path, write_timeout=60)) as store:
        acknowledged = 0

        def write() -> None:
            nonlocal acknowledged
            while not end.is_set():
                store.put(impression(acknowledged)).result(60)
                acknowledged += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(5):
                while acknowledged < 20 * number:
                    pass
                known = acknowledged
                held = backup(path, tmp_path / f"{number}.db")
                assert known <= held.impressions <= acknowledged + 1
        finally:
            end.set()
            writer.join()
        assert len(list(store.rows(ImpressionRow, 1, 0))) == acknowledged


def test_a_trial_goes_on_from_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Trial.create(path, k=3, seed=1, background=False, timeout=60) as trial:
        early = trial.rank("q", A, B, unit="early", wait=True)
        backup(path, tmp_path / "copy.db")
        late = trial.rank("q", A, B, unit="late", wait=True)
        trial.click(late.id, late.ranking[0])
    held, before = restore(tmp_path / "copy.db", path, replace=True)
    assert (held.impressions, held.clicks) == (1, 0)
    assert before is not None
    with Trial.open(path, background=False, timeout=60) as trial:
        assert trial.rank("q", A, B, unit="early", wait=True).ranking == early.ranking
        assert trial.click(early.id, early.ranking[0]).outcome == "counted"
        assert trial.click(late.id, late.ranking[0]).outcome == "waiting"  # its impression is in what was before
        assert trial.report().impressions == 1
    with Trial.open(before, background=False) as trial:
        assert trial.report().impressions == 2


def test_a_store_in_use_is_not_replaced(tmp_path: Path) -> None:
    path, copy = filled(tmp_path / "s.db"), tmp_path / "copy.db"
    backup(path, copy)
    with contextlib.closing(SQLiteStore(path)), pytest.raises(StoreError, match=r"s\.db is in use: stop the service"):
        restore(copy, path, replace=True)
    held, _ = restore(copy, path, replace=True)
    assert held.impressions == 30


@pytest.mark.slow
@pytest.mark.parametrize("damage", [False, True])
def test_a_store_that_a_service_uses_is_not_replaced(tmp_path: Path, damage: bool) -> None:
    """Use by another process; also where the file is such that SQLite cannot say so."""
    path, copy = tmp_path / "t.db", tmp_path / "copy.db"
    with command(str(path)) as (process, address):
        with httpx.Client(base_url=address, timeout=120) as client:
            start(client)
        backup(path, copy)
        if damage:
            spoil(path, 0)
        with pytest.raises(StoreError, match="is in use"):
            restore(copy, path, replace=True)
        process.kill()
        process.wait()
        restore(copy, path, replace=True)
    with Trial.open(path, background=False) as trial:
        assert trial.name == "t"


def spoil(path: Path, at: int) -> None:
    """Change the file from another process: to close it here would let go of SQLite's locks on it."""
    code = "import sys; f = open(sys.argv[1], 'r+b'); f.seek(int(sys.argv[2])); f.write(b'spoilt' * 100)"
    subprocess.run([sys.executable, "-c", code, str(path), str(at)], check=True)


def test_what_is_no_backup_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path, text, other, newer = (tmp_path / f"{name}.db" for name in ("s", "text", "other", "newer"))
    filled(path)
    text.write_text("not a database " * 100)
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    backup(path, newer)
    with contextlib.closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 1000")
    spoilt = tmp_path / "spoilt.db"
    backup(path, spoilt)
    spoil(spoilt, 4096 * 5)
    there = names(tmp_path)
    for bad, why in (
        (tmp_path / "none.db", "does not exist"),
        (text, "not a database"),
        (other, "is no store"),
        (newer, "has schema 1000"),
        (spoilt, "is damaged"),
    ):
        with pytest.raises(StoreError, match=why):
            restore(bad, path, replace=True)
        with pytest.raises(StoreError, match=why):
            backup(bad, tmp_path / "copy.db")
    assert names(tmp_path) == there
    with pytest.raises(StoreError, match="exists"):
        restore(path, path)
    assert len(list(SQLiteStore(path).rows(ImpressionRow, 1, 0))) == 30


def test_a_damaged_store_is_replaced_and_kept(tmp_path: Path) -> None:
    path, copy = filled(tmp_path / "s.db"), tmp_path / "copy.db"
    backup(path, copy)
    spoil(path, 0)
    with pytest.raises(StoreDamaged, match="ranktrial restore BACKUP"):
        SQLiteStore(path)
    broken = path.read_bytes()
    _, before = restore(copy, path, replace=True)
    assert before is not None
    assert before.read_bytes() == broken
    with contextlib.closing(SQLiteStore(path)) as store:
        assert len(list(store.rows(ImpressionRow, 1, 0))) == 30


def test_a_log_of_another_file_is_not_taken_for_that_of_a_restored_one(tmp_path: Path) -> None:
    path, copy = filled(tmp_path / "s.db"), tmp_path / "copy.db"
    backup(path, copy)
    path.unlink()
    (tmp_path / "s.db-wal").write_bytes(b"of something else")
    with pytest.raises(StoreError, match=r"s\.db-wal is there without"):
        restore(copy, path)
    (tmp_path / "s.db-wal").unlink()
    assert restore(copy, path).before is None


def test_on_the_command_line(tmp_path: Path) -> None:
    path, copy = str(filled(tmp_path / "s.db")), str(tmp_path / "copy.db")

    def told(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "holds 30 searches, the last of 1970-01-01 00:00 UTC, and 30 clicks" in told("backup", path, copy)
    assert json.loads(told("backup", path, copy + "2", "--json"))["impressions"] == 30
    assert "what was there before is " in told("restore", copy, path, "--replace")
    assert json.loads(told("restore", copy, path + "2", "--json"))["before"] is None
    for arguments in (["backup", path, copy], ["restore", copy, path], ["restore", path + "3", path + "4"]):
        assert CliRunner().invoke(app, arguments).exit_code == 2
    refused = CliRunner().invoke(app, ["backup", "postgresql://shop@db/trials", copy + "3"])
    assert "pg_dump" in refused.stderr
