"""Backup and restore of a store in a SQLite file: copies that are complete, checked, and never written over anything."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ranktrial.store.base import StoreError
from ranktrial.store.migrations import check_known
from ranktrial.store.sqlite_database import MIGRATIONS, SQLiteSchema
from ranktrial.store.sqlite_file import beside, copy, damaged, explained, synced

SHARED_LOCK = 0x40000002, 510  # the bytes of a file that every connection of SQLite locks: first, and how many


class Copied(NamedTuple):
    """Contents of a copy: impressions, clicks, the time of its last impression (microseconds since 1970; 0 if none), events."""

    impressions: int
    clicks: int
    last: int
    events: int


def backup(store: Path, to: Path) -> Copied:
    """Copy a store into a new file, also while services are using it: all that was committed when this began.

    Args:
        store: A SQLite file.
        to: The copy; must not exist. Only its owner can read it.
    """
    if to.exists():
        raise StoreError(f"{to} exists: a backup is written over nothing")
    part = to.with_name(f"{to.name}.part-{os.getpid()}")
    with _removed(part):
        with _own_errors(store), contextlib.closing(_opened(store)) as source:
            copy(source, part)
        found = inspected(part)
        _publish(part, to)
    return found


class Restored(NamedTuple):
    """Contents of a restored store, and the new path of the store that it replaced, if there was one."""

    held: Copied
    before: Path | None


def restore(backup: Path, store: Path, *, replace: bool = False) -> Restored:
    """Put the copy of a store in its place. Nothing may be using it.

    Args:
        backup: As ``backup`` made it.
        store: Where it is put.
        replace: Even where there is a store, which is kept under another name.
    """
    if store.exists() and not replace:
        raise StoreError(
            f"{store} exists: to put {backup} in its place, say so (--replace); it is kept under another name"
        )
    inspected(backup)
    part = store.with_name(f"{store.name}.part-{os.getpid()}")
    with _removed(part), contextlib.ExitStack() as stack:
        with _own_errors(backup), contextlib.closing(_opened(backup)) as source:
            copy(source, part)
        found = inspected(part)
        if not store.exists():
            _refuse_log(store)
            _publish(part, store)
            return Restored(found, None)
        stack.enter_context(_unused(store))
        before = store.with_name(f"{store.name}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        os.link(store, before)
        for old, kept in zip(beside(store), beside(before)):  # only where SQLite could not read the file
            if old.exists():
                old.rename(kept)
        part.replace(store)
        synced(store.absolute().parent)
    return Restored(found, before)


def inspected(path: Path) -> Copied:
    """Check a file and return its contents. Raises StoreError if it is no store, or damaged."""
    with _own_errors(path), contextlib.closing(_opened(path)) as connection:
        version = SQLiteSchema(connection).version()
        if version == 0:
            raise StoreError(f"{path} is no store")
        check_known(str(path), version, MIGRATIONS)
        whole = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if whole != "ok":
            raise damaged(path, whole)
        impressions, last = connection.execute("SELECT count(*), coalesce(max(time), 0) FROM impressions").fetchone()
        clicks, events = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("clicks", "events")
        )
        return Copied(impressions, clicks, last, events)


def _opened(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    return sqlite3.connect(f"file:{quote(os.fspath(path.absolute()))}?mode=rw", uri=True, timeout=5)


@contextlib.contextmanager
def _own_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as problem:
        raise explained(problem, path) from problem


@contextlib.contextmanager
def _removed(part: Path) -> Iterator[None]:
    """Context in which a copy is made under a temporary name, which is removed at the end."""
    try:
        yield
    finally:
        for one in (part, *beside(part)):
            one.unlink(missing_ok=True)


def _publish(part: Path, to: Path) -> None:
    """Give a complete file its name, unless somebody else took it meanwhile."""
    try:
        os.link(part, to)
    except FileExistsError:
        raise StoreError(f"{to} exists: it is written over nothing") from None
    synced(to.absolute().parent)


def _refuse_log(store: Path) -> None:
    """A log beside a file that is not there belongs to another, and would be taken for that of the new one."""
    for one in beside(store):
        if one.exists() and one.stat().st_size:
            raise StoreError(f"{one} is there without {store}: move it away, it does not belong to what is restored")


@contextlib.contextmanager
def _unused(store: Path) -> Iterator[None]:
    """Context in which nobody else can use a store: its log is brought into the file, which is locked.

    Raises StoreError if it is in use.
    """
    in_use = StoreError(f"{store} is in use: stop the service, and all else that uses it, first")
    try:
        with contextlib.closing(_opened(store)) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA journal_mode=DELETE")  # for which one must be alone
    except sqlite3.DatabaseError as problem:
        if problem.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise in_use from problem
        # Anything else: it is damaged. Its log is kept with it.
    with store.open("r+b") as file:
        first, length = SHARED_LOCK
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, first)
        except BlockingIOError as problem:
            raise in_use from problem
        yield
