"""File of a SQLite store: its permissions, checks that it still is the one that was opened, its errors, copies of it.

SQLite goes on writing to a file that was moved, removed or overwritten, and what it writes to the log beside it then belongs to
no file. So a store looks before and after every commit whether the names still lead to the files that it has open.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import time
from pathlib import Path

from ranktrial.store.base import StoreDamaged, StoreFull, StoreGone, StoreLost, StoreUnavailable, log

OWNER_ONLY = 0o600
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
SAYS = {
    sqlite3.SQLITE_BUSY: "another process keeps it locked",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: is its folder there, and may this user write to it?",
    sqlite3.SQLITE_READONLY: "it cannot be written to: is the disk mounted read-only, and may this user write to the file?",
    sqlite3.SQLITE_IOERR: "the disk fails",
}


def beside(path: Path) -> tuple[Path, Path]:
    """The write-ahead log of a file, and the index of that."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def make_private(path: Path) -> None:
    """Make the file, readable by its owner only, if it does not exist. SQLite gives the files beside it the same mode."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))


def tighten(path: Path) -> None:
    """Let only the owner read what every user of the machine can. What only a group may read is left: somebody wanted that."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & stat.S_IRWXO:
        return
    try:
        for one in (path, *beside(path)):
            if one.exists():
                one.chmod(OWNER_ONLY)
        log.warning("%s could be read by every user of this machine (mode %o): now by its owner only", path, mode)
    except PermissionError:
        log.warning("%s can be read by every user of this machine (mode %o): `chmod 600` it", path, mode)


def explained(problem: sqlite3.Error | OSError, path: Path) -> StoreUnavailable:
    """Turn an error of SQLite or the system into one that says what to do."""
    code = getattr(problem, "sqlite_errorcode", 0)
    kind = code & 0xFF
    if kind == sqlite3.SQLITE_FULL:
        free = shutil.disk_usage(path.absolute().parent).free
        return StoreFull(f"{path}: the disk is full ({free:,} bytes free). Make room: it then goes on by itself")
    if kind in DAMAGED or str(problem).startswith("Could not decode"):
        return damaged(path, str(problem))
    name = getattr(problem, "sqlite_errorname", None)
    told = f"{problem} ({name})" if name else str(problem)
    return StoreUnavailable(f"{path}: {SAYS[kind]}: {told}" if kind in SAYS else f"{path}: {told}")


def damaged(path: Path, what: str) -> StoreDamaged:
    """The error of a file that is not as SQLite left it."""
    return StoreDamaged(
        f"{path} is damaged: {what}. Stop what uses it, keep the file, and put a sound one in its place: "
        f"`ranktrial restore BACKUP {path} --replace`"
    )


class OpenedFile:
    """The file that a store has opened: its place on the disk, and that of the log beside it.

    Files are told apart by device and inode. A store's file never gets smaller while it is open, so one that did was written
    over, for instance by ``cp``.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._wal = os.fspath(path), os.fspath(beside(path)[0])
        self._file, self._size = self._found(self._path)
        self._log: tuple[int, int] | None = None

    def _found(self, path: str) -> tuple[tuple[int, int], int]:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise StoreGone(f"{path} is gone: it was removed or moved while it was in use") from None
        except OSError as problem:
            raise StoreUnavailable(f"{path} cannot be looked at: {problem.strerror}") from problem
        return (found.st_dev, found.st_ino), found.st_size

    def note_log(self) -> None:
        """Remember the log beside the file, which stays the same while a connection is open."""
        self._log = self._found(self._wal)[0]

    def forget_log(self) -> None:
        """Expect no log: there may be no connection that keeps it."""
        self._log = None

    def is_back(self) -> bool:
        """True if the name leads to the file that was opened, after it was gone."""
        try:
            file, size = self._found(self._path)
        except StoreUnavailable:
            return False
        return file == self._file and size >= self._size

    def check(self) -> None:
        """Raise StoreLost where the names lead to other files now."""
        log_file = self._log  # which the writing thread may forget meanwhile
        try:  # what every commit does twice
            found = os.stat(self._path)
            same = (found.st_dev, found.st_ino) == self._file and found.st_size >= self._size
            if same and (log_file is None or os.stat(self._wal).st_ino == log_file[1]):
                self._size = found.st_size
                return
        except OSError:
            pass
        file, size = self._found(self._path)
        if file != self._file:
            raise StoreLost(f"{self._path} is another file now: it was replaced while it was in use")
        if size < self._size:
            raise StoreLost(
                f"{self._path} was {self._size:,} bytes long and is {size:,} now: it was written over while in use"
            )
        if log_file is not None and self._found(self._wal)[0] != log_file:
            raise StoreLost(f"{self._wal} is another file now: it was replaced while it was in use")


def save_lost(connection: sqlite3.Connection, path: Path) -> tuple[str, bool]:
    """Copy what an open connection still sees of a file that is lost, and say where that is.

    The log is emptied: it must not be taken for that of the file which has the name now. Returns whether it could be, so that
    all that was acknowledged is in the file itself, wherever that is.
    """
    target = path.with_name(f"{path.name}.saved-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}")
    try:
        copy(connection, target)
    except (sqlite3.Error, OSError) as problem:
        saved = f"What it held could not be saved ({problem})"
    else:
        saved = f"All that was acknowledged has been saved as {target}"
    emptied = False
    with contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 5000")  # readers end soon
        emptied = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    return saved, emptied


def copy(source: sqlite3.Connection, target: Path) -> None:
    """Copy what a connection sees into a new file, which is complete in itself and on the disk when this returns."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    try:
        with contextlib.closing(sqlite3.connect(target)) as made:
            source.backup(made)
            made.execute("PRAGMA journal_mode=DELETE")  # no files beside it
        synced(target)
        synced(target.absolute().parent)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def synced(path: Path) -> None:
    """Wait until a file, or what a folder says of its files, is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
