"""Reader of learning-to-rank files as they come (MSLR, Yahoo, Istella, LETOR 4.0).

A line is a document: ``label qid:id feature:value feature:value ... # comment``. Features that a line leaves out, or whose
value is NULL (LETOR's rank aggregation sets), are 0. Lines without qid, as LightGBM and XGBoost read them, need a file of the
same name and ``.query`` or ``.group`` beside them, with the number of documents of each query.
The text is parsed once, in blocks, by a compiled loop. Since normalisation needs whole queries and the width of the
table is known only at the end, each block leaves its scaled non-zero entries in a scratch file, from which the dense
table is filled last: memory stays the same for 1 MB and for 10 GB.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial.arrays import IntArray, offsets_of
from ranktrial.paper.data import _kernels
from ranktrial.paper.data.cache import cached
from ranktrial.paper.data.dataset import Dataset, load_dataset
from ranktrial.trec.files import (
    BLOCK_BYTES,
    MAX_LINE_BYTES,
    DamagedGzipError,
    FormatError,
    Progress,
    blocks,
    existing_file,
    lines,
)

_EXAMPLE = "'2 qid:10 1:0.5 2:3'"
_NULL = re.compile(rb"[ \t]+\d+:NULL(?=[ \t\r\n]|$)")
_SCRATCH = (np.int32, np.float32)  # types of the scratch files of columns and values
_LABEL = re.compile(rb"^[ \t]*[^ \t\r\n#]+", re.MULTILINE)


class LetorError(FormatError):
    """A learning-to-rank file that cannot be read, with its line."""


def read_letor(
    path: str | os.PathLike[str],
    *,
    normalise: bool = True,
    drop_constant: bool = True,
    feature_ids: ArrayLike | None = None,
    cache: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Read a LETOR/SVMlight file, plain or gzipped; queries of lines without qid are numbered from 1 by the group file.

    Args:
        normalise: scale each feature of each query to [0, 1] (minimum 0, maximum 1, constant within the query 0), as in
            the paper. Without it values are kept as they are, within the range of float32.
        drop_constant: leave out features that are constant within every query: they cannot change a ranking. On MSLR
            these are features 16-20, which describe only the query. Without it every feature that occurs is kept.
        feature_ids: keep exactly these columns instead, as when a test file must match its training file.
        cache: keep the parsed arrays on disk, memory-mapped from the second load on (see ``ranktrial.paper.data.cache``).
        progress: called with bytes read and bytes in all.

    Raises:
        LetorError: with file and line, when the file is not what it should be.
    """
    source = existing_file(path, LetorError)
    name = source.name.removesuffix(".gz").removesuffix(".txt")
    wanted = None if feature_ids is None else _checked_feature_ids(feature_ids)
    groups = _group_file(source)

    def build(folder: Path) -> None:
        _build(source, folder, normalise, drop_constant, wanted, BLOCK_BYTES, progress, groups)

    if not cache:
        with tempfile.TemporaryDirectory(prefix="ranktrial-") as folder:
            build(Path(folder))
            return load_dataset(Path(folder), name, np.load)
    options: dict[str, Any] = {
        "normalise": normalise,
        "drop_constant": drop_constant and wanted is None,
        "feature_ids": None if wanted is None else wanted.tolist(),
    }
    if groups is not None:
        options["groups"] = [groups.name, groups.stat().st_size, groups.stat().st_mtime_ns]
    return cached(source, name, options, build)


# train.txt (MSLR, Istella, LETOR 4.0), set1.train.txt (Yahoo), trainingset.txt (LETOR 3.0), each plain or gzipped.
_SPLIT_FILE = re.compile(
    r"(?:(?P<prefix>.+)[._-])?(?P<split>train|training|vali|valid|validation|test)(?:set)?"
    r"(?:\.(?:txt|dat|svm|svmlight|letor))?(?P<gz>\.gz)?",
    re.IGNORECASE,
)
_SPLIT_NAMES = {"tr": "train", "va": "vali", "te": "test"}


def read_splits(
    folder: str | os.PathLike[str],
    *,
    prefix: str | None = None,
    normalise: bool = True,
    drop_constant: bool = True,
    cache: bool = True,
    progress: Progress | None = None,
) -> dict[str, Dataset]:
    """Read the training, validation and test file of a folder as ``{"train": ..., "vali": ..., "test": ...}``.

    Validation and test keep the columns of the training file. Splits without a file are left out (Istella LETOR has no
    validation file); training must be there. ``prefix`` chooses between sets in one folder, such as Yahoo's ``"set1"``
    and ``"set2"``. Of ``train.txt`` and ``train.txt.gz`` the plain one is read.
    """
    found = _split_files(Path(folder).expanduser(), prefix)
    total = sum(file.stat().st_size for file in found.values())
    splits: dict[str, Dataset] = {}
    done = 0
    for split, file in found.items():

        def report(here: int, _: int = 0, before: int = done) -> None:
            if progress is not None:
                progress(before + here, total)

        columns = splits["train"].feature_ids if splits else None
        dataset = read_letor(
            file, normalise=normalise, drop_constant=drop_constant, feature_ids=columns, cache=cache, progress=report
        )
        splits[split] = replace(dataset, name=f"{Path(folder).resolve().name}/{split}")
        report(file.stat().st_size)
        done += file.stat().st_size
    return splits


def _split_files(folder: Path, prefix: str | None) -> dict[str, Path]:
    if not folder.is_dir():
        raise LetorError(folder, None, "no such folder")
    candidates: dict[str, dict[str, Path]] = {"train": {}, "vali": {}, "test": {}}
    # Gzipped files first: a plain file of the same name then takes their place.
    for file in sorted(folder.iterdir(), key=lambda f: (f.suffix != ".gz", f.name)):
        match = _SPLIT_FILE.fullmatch(file.name)
        if match and file.is_file() and (prefix is None or match["prefix"] == prefix):
            candidates[_SPLIT_NAMES[match["split"][:2].lower()]][file.name.removesuffix(".gz")] = file
    for split, files in candidates.items():
        if len(files) > 1:
            raise LetorError(
                folder,
                None,
                f"several {split} files ({', '.join(sorted(files))}); choose with prefix, e.g. prefix='set1'",
            )
    if not candidates["train"]:
        raise LetorError(
            folder, None, "no training file; expected a name like train.txt, train.txt.gz or set1.train.txt"
        )
    return {split: next(iter(files.values())) for split, files in candidates.items() if files}


def _checked_feature_ids(feature_ids: ArrayLike) -> NDArray[np.int32]:
    ids = np.asarray(feature_ids, np.int64)
    if ids.ndim != 1 or np.any((ids < 1) | (ids > _kernels.MAX_FEATURE_ID)) or len(np.unique(ids)) != len(ids):
        raise ValueError(f"feature_ids must be distinct and between 1 and {_kernels.MAX_FEATURE_ID:,}")
    return ids.astype(np.int32)


def _build(
    source: Path,
    folder: Path,
    normalise: bool,
    drop_constant: bool,
    wanted: NDArray[np.int32] | None,
    block_bytes: int,
    progress: Progress | None,
    groups: Path | None = None,
) -> None:
    """Parse ``source`` into the arrays that ``ranktrial.paper.data.cache`` keeps in a folder."""
    with tempfile.TemporaryFile(dir=folder) as columns, tempfile.TemporaryFile(dir=folder) as values:
        parser = _Parser(source, normalise, columns, values)
        parts: list[bytes] = []
        size = 0
        for more in _whole_lines(source, blocks(source, size=block_bytes, progress=progress), groups):
            parts.append(more)
            size += len(more)
            # A query longer than a block is parsed again only when its text has doubled, so the work stays linear.
            if size >= max(parser.wanted_bytes, block_bytes):
                text = b"".join(parts)
                parts = [text[parser.parse(text, final=False) :]]
                size = len(parts[0])
        parser.parse(b"".join(parts), final=True)
        if not parser.query_ids:
            raise LetorError(source, 1, f"no document in the file; expected lines like {_EXAMPLE}")
        kept = parser.varies if drop_constant else parser.occurs
        feature_ids = np.flatnonzero(kept).astype(np.int32) if wanted is None else wanted
        parser.fill(folder / "features.npy", feature_ids)
    np.save(folder / "offsets.npy", offsets_of(np.concatenate([block[0] for block in parser.blocks])))
    np.save(folder / "labels.npy", np.concatenate(parser.labels))
    np.save(folder / "query_ids.npy", np.array(parser.query_ids, np.int64))
    np.save(folder / "feature_ids.npy", feature_ids)


def _group_file(source: Path) -> Path | None:
    """The file that says how many documents each query has, where lines do not name their query."""
    first = next((text for _, text in lines(source, LetorError) if text.partition("#")[0].strip()), "")
    if "qid:" in first.partition("#")[0]:
        return None
    stems = dict.fromkeys((source.name, source.name.removesuffix(".gz")))
    places = [source.with_name(f"{stem}.{suffix}") for stem in stems for suffix in ("query", "group")]
    return next((place for place in places if place.is_file()), None)


def _whole_lines(source: Path, text_blocks: Iterator[bytes], groups: Path | None) -> Iterator[bytes]:
    """The text up to line ends, with qid after every label and without features that are NULL."""
    qids = iter(()) if groups is None else _group_qids(groups)

    def named(label: re.Match[bytes]) -> bytes:
        qid = next(qids, None)
        if qid is None:
            raise LetorError(source, None, f"has more documents than {groups} names")
        return label[0] + b" qid:" + qid

    def plain(text: bytes) -> bytes:
        text = _NULL.sub(b"", text) if b":NULL" in text else text
        return text if groups is None else _LABEL.sub(named, text)

    rest, number = b"", 1
    try:
        for block in text_blocks:
            rest += block
            end = rest.rfind(b"\n") + 1
            number += rest.count(b"\n", 0, end)
            if len(rest) - end > MAX_LINE_BYTES:
                raise LetorError(source, number, f"line longer than {MAX_LINE_BYTES >> 20} MB; expected {_EXAMPLE}")
            if end > 0:
                yield plain(rest[:end])
                rest = rest[end:]
    except DamagedGzipError as damage:
        raise LetorError(source, number, str(damage)) from None
    yield plain(rest + b"\n")
    if groups is not None and (left := next(qids, None)) is not None:
        raise LetorError(
            groups, None, f"names more documents than {source.name} has, which ends in query {left.decode()}"
        )


def _group_qids(groups: Path) -> Iterator[bytes]:
    """The query of each document, one after the other."""
    query = 0
    for number, line in lines(groups, LetorError):
        if not line.strip():
            continue
        if not line.strip().isdigit() or int(line) == 0:
            raise LetorError(
                groups, number, f"{line.strip()[:40]!r} must be the number of documents of a query, 1 or more"
            )
        query += 1
        for _ in range(int(line)):
            yield str(query).encode()


class _Parser:
    """Place in the file, labels and queries of the documents read so far, and scratch arrays of the compiled loops; features
    wait in the files ``columns`` and ``values``."""

    def __init__(self, source: Path, normalise: bool, columns: IO[bytes], values: IO[bytes]) -> None:
        width = _kernels.MAX_FEATURE_ID + 1
        self.source, self.normalise = source, normalise
        self.files = columns, values
        self.labels: list[NDArray[np.int16]] = []
        self.query_ids: list[int] = []
        self.first_line: dict[int, int] = {}
        # Of each block the documents of queries, their backgrounds, entries of documents, and the number of all entries.
        self.blocks: list[tuple[IntArray, NDArray[np.int32], NDArray[np.int32], int]] = []
        self.line = 0  # lines before the text that comes next
        self.wanted_bytes = 0
        self.stamp = 1
        self.occurs, self.varies = np.zeros((2, width), np.bool_)
        self._seen = np.zeros(width, np.int64)
        self._scratch = (np.empty(width), np.empty(width), np.zeros(width, np.int64), np.empty(width, np.int32))
        self._resize(0)

    def _resize(self, text_bytes: int) -> None:
        rows = text_bytes // len("0 qid:1\n") + 2
        entries = text_bytes // len(" 1:0") + 1
        self._capacity = text_bytes
        # Label, query, line, place in the text and first entry of each row; then feature, value and unfinished numbers.
        self._rows = (np.empty(rows, np.int16), *np.empty((4, rows), np.int64))
        self._entries = (np.empty(entries, np.int32), np.empty(entries, np.float64), np.empty((entries, 3), np.int64))
        self._scaled = (np.empty(2 * entries, np.int32), np.empty(2 * entries, np.float32))

    def parse(self, text: bytes, *, final: bool) -> int:
        """Parse the complete queries of a text, all of it when it is the last; returns how many bytes need not come again."""
        if len(text) > self._capacity:
            self._resize(len(text))
        _, queries, lines, starts, _ = self._rows
        _, values, slow = self._entries
        n_rows, _, n_slow, n_lines, reason, at = _kernels.parse_letor(
            np.frombuffer(text, np.uint8), len(text), self.stamp, self._seen, *self._rows, *self._entries
        )
        self.stamp += n_rows + 1
        if reason != _kernels.FINE:
            raise LetorError(self.source, self.line + n_lines + 1, _sentence(reason, text, at))
        for entry, begin, end in slow[:n_slow].tolist():
            values[entry] = _finite(float(text[begin:end]))

        bounds = np.append(np.flatnonzero(np.diff(queries[:n_rows], prepend=-1)), n_rows)
        if not final and n_rows > 0:
            # More documents of the last query may follow.
            bounds = bounds[:-1]
        complete = int(bounds[-1])
        self._check_order(queries[bounds[:-1]], lines[bounds[:-1]])
        if len(bounds) > 1:
            self._spool(bounds)
        self.wanted_bytes = 0 if complete else 2 * len(text)
        self.line += int(lines[complete]) if complete < n_rows else n_lines
        return int(starts[complete]) if complete < n_rows else len(text)

    def _check_order(self, queries: IntArray, lines: IntArray) -> None:
        for query, line in zip(queries.tolist(), (self.line + lines + 1).tolist()):
            first = self.first_line.setdefault(query, line)
            if first != line:
                problem = f"query {query} appears again (it began on line {first}); all lines of a query must follow each other"
                raise LetorError(self.source, line, problem)
            self.query_ids.append(query)

    def _spool(self, bounds: IntArray) -> None:
        """Scale the entries of complete queries and write them into the files."""
        complete = int(bounds[-1])
        background_count = np.empty(len(bounds) - 1, np.int32)
        entry_count = np.empty(complete, np.int32)
        size = _kernels.scale_queries(
            bounds, self._rows[4], *self._entries[:2], self.normalise, self.occurs, self.varies, *self._scratch,
            background_count, entry_count, *self._scaled,
        )  # fmt: skip
        for file, scaled in zip(self.files, self._scaled):
            file.write(scaled[:size].data)
        self.labels.append(self._rows[0][:complete].copy())
        self.blocks.append((np.diff(bounds), background_count, entry_count, size))

    def fill(self, path: Path, feature_ids: NDArray[np.int32]) -> None:
        """Fill the dense table from the files."""
        shape = (sum(len(block[2]) for block in self.blocks), len(feature_ids))
        if len(feature_ids) == 0:
            np.save(path, np.empty(shape, np.float32))
            return
        table = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        position = np.full(_kernels.MAX_FEATURE_ID + 1, -1, np.int32)
        position[feature_ids] = np.arange(len(feature_ids), dtype=np.int32)
        for file in self.files:
            file.seek(0)
        at = 0
        for lengths, background_count, entry_count, size in self.blocks:
            columns, values = (np.frombuffer(file.read(4 * size), kind) for file, kind in zip(self.files, _SCRATCH))
            end = at + len(entry_count)
            _kernels.fill_rows(lengths, background_count, entry_count, columns, values, position, table[at:end])
            at = end
        table.flush()


def _finite(value: float) -> float:
    # Istella writes 1.79769313486232E308 for "no value", which rounds to infinity: the largest float64 is meant.
    return min(max(value, -np.finfo(np.float64).max), np.finfo(np.float64).max)


def _sentence(reason: int, text: bytes, at: int) -> str:
    token = re.split(rb"[ \t\r\n]", text[at : at + 60], maxsplit=1)[0].decode("utf-8", "backslashreplace")
    shown = repr(token[:40])
    value = token.partition(":")[2].lower().lstrip("+-")
    if reason == _kernels.BAD_VALUE and value in ("nan", "inf", "infinity"):
        return f"{shown} is not a finite number; leave the feature out if its value is unknown"
    return {
        _kernels.BAD_LABEL: f"label {shown} must be an integer, 0 or more; expected a line like {_EXAMPLE}",
        _kernels.LARGE_LABEL: f"label {shown} is too large, must be at most {_kernels.MAX_LABEL}",
        _kernels.MISSING_QID: f"no qid after the label but {shown}; expected a line like {_EXAMPLE}, or beside the file one "
        "of its name and .query or .group with the number of documents of each query",
        _kernels.BAD_QID: f"{shown} must be qid: and an integer of at most 18 digits, such as 'qid:10'",
        _kernels.BAD_FEATURE: f"{shown} must be feature:value with the feature a number from 1, such as '3:0.5'",
        _kernels.FEATURE_OUT_OF_RANGE: f"feature of {shown} must be between 1 and {_kernels.MAX_FEATURE_ID:,}",
        _kernels.DUPLICATE_FEATURE: f"{shown} repeats a feature of this line; each may appear once",
        _kernels.BAD_VALUE: f"the value in {shown} is not a number; expected feature:value such as '3:0.5'",
    }[reason]
