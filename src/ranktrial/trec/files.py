"""Streaming readers of text files, plain or gzipped, whose errors name the file and the line.

Everything here streams: memory does not grow with the file, and a gzip file that unpacks to far more than its size is
handed out in blocks too.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

Progress = Callable[[int, int], None]
Number = TypeVar("Number", int, float)

BLOCK_BYTES = 4 << 20
MAX_LINE_BYTES = 64 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_BYTES = 64 << 10


class FormatError(ValueError):
    """A file that cannot be used: where, what is wrong and what would be right."""

    def __init__(self, path: str | os.PathLike[str], line: int | None, problem: str) -> None:
        super().__init__(str(path), line, problem)
        self.path = Path(path)
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.line is None else f"{self.path}:{self.line}: {self.problem}"


class DamagedGzipError(Exception):
    """The compressed stream breaks off; the reader knows the line reached and adds it."""


def existing_file(path: str | os.PathLike[str], error: type[FormatError] = FormatError) -> Path:
    file = Path(path).expanduser()
    if file.is_dir():
        raise error(file, None, "is a directory, must be a text file, plain or gzipped")
    if not file.exists():
        raise error(file, None, "no such file")
    return file


def blocks(path: Path, *, size: int = BLOCK_BYTES, progress: Progress | None = None) -> Iterator[bytes]:
    """The text of a file in blocks of at most ``size`` bytes; progress counts bytes on disk."""
    total = path.stat().st_size
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        if path.suffix == ".gz" and not zipped and total > 0:
            raise DamagedGzipError("is named .gz but does not start like a gzip file; rename it or compress it")
        unzipped = gzip.GzipFile(fileobj=file)
        # What one call unpacks before it meets damage is lost: with small blocks the line reached is all but exact.
        read = partial(unzipped.read1, min(size, _GZIP_BYTES)) if zipped else partial(file.read, size)
        try:
            while block := read():
                yield block
                if progress is not None:
                    progress(min(file.tell(), total), total)
        except EOFError:
            raise DamagedGzipError("the gzip file ends too early; it was cut off, fetch it again") from None
        except (zlib.error, gzip.BadGzipFile) as damage:
            raise DamagedGzipError(f"the gzip data is corrupt ({damage}); fetch the file again") from None


def lines(
    path: Path, error: type[FormatError] = FormatError, *, progress: Progress | None = None
) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1, without line ends; the last may lack its newline."""
    number = 0
    rest = b""
    try:
        for block in blocks(path, progress=progress):
            *whole, rest = (rest + block).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                raise error(path, number + len(whole) + 1, f"line longer than {MAX_LINE_BYTES >> 20} MB")
            for line in whole:
                number += 1
                yield number, _text(path, number, line, error)
    except DamagedGzipError as damage:
        raise error(path, number + 1, str(damage)) from None
    if rest:
        yield number + 1, _text(path, number + 1, rest, error)


def table(
    path: Path, columns: str, example: str, *, progress: Progress | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Rows of a file with their line numbers, without empty lines: fields between tabs, or else between spaces.

    Args:
        columns: Names of the columns, for messages.
        example: A line as it should be.
    """
    count, number = len(columns.split()), 0
    for at, line in lines(path, progress=progress):
        fields = [field.strip() for field in line.split("\t")] if line.count("\t") == count - 1 else line.split()
        if not fields:
            continue
        number += 1
        if len(fields) != count:
            raise FormatError(
                path,
                at,
                f"{len(fields)} columns, must be {count}: {columns}, {example}, with tabs between them where one has spaces",
            )
        yield at, fields
    if not number:
        raise FormatError(path, 1, f"nothing in the file; expected lines like {example}")


def parsed(path: Path, line: int, name: str, text: str, kind: type[Number]) -> Number:
    """A whole number (int) or a finite one (float) that a field of a line says."""
    wanted = "an integer" if kind is int else "a number"
    try:
        number = kind(text)
    except ValueError:
        raise FormatError(path, line, f"{name} {text[:40]!r} is not {wanted}") from None
    if not math.isfinite(number):
        raise FormatError(path, line, f"{name} {text[:40]!r} is not a finite number")
    return number


def _text(path: Path, number: int, line: bytes, error: type[FormatError]) -> str:
    try:
        return line.rstrip(b"\r").decode("utf-8-sig" if number == 1 else "utf-8")  # a byte order mark is no text
    except UnicodeDecodeError as problem:
        raise error(path, number, f"not UTF-8 text ({problem.reason} at byte {problem.start + 1})") from None
