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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial.arrays import IntArray, offsets_of
from ranktrial.paper.data import _kernels
from ranktrial.paper.data import cache as _cache
from ranktrial.paper.data.dataset import Dataset
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
            _cache.seal(Path(folder), {"name": name})
            return _cache.load(Path(folder), {"name": name}, memory_map=False)
    options = {
        "normalise": normalise,
        "drop_constant": drop_constant and wanted is None,
        "feature_ids": None if wanted is None else wanted.tolist(),
    }
    if groups is not None:
        options["groups"] = [groups.name, groups.stat().st_size, groups.stat().st_mtime_ns]
    return _cache.cached(source, name, options, build)


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
    options: dict[str, Any] = {"normalise": normalise, "drop_constant": drop_constant, "cache": cache}
    sizes = {split: file.stat().st_size for split, file in found.items()}
    splits: dict[str, Dataset] = {}
    done = 0
    for split, file in found.items():
        report = None if progress is None else _shifted(progress, done, sum(sizes.values()))
        columns = splits["train"].feature_ids if splits else None
        dataset = read_letor(file, feature_ids=columns, progress=report, **options)
        splits[split] = replace(dataset, name=f"{Path(folder).resolve().name}/{split}")
        done += sizes[split]
        if progress is not None:
            progress(done, sum(sizes.values()))
    return splits


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    return lambda here, _: progress(done + here, total)


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


@dataclass
class _Rows:
    """Labels and queries of the documents read so far, and the scratch files that hold their features."""

    columns: IO[bytes]
    values: IO[bytes]
    labels: list[NDArray[np.int16]] = field(default_factory=list)
    query_ids: list[int] = field(default_factory=list)
    first_line: dict[int, int] = field(default_factory=dict)
    blocks: list[tuple[IntArray, NDArray[np.int32], NDArray[np.int32], int]] = field(default_factory=list)


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
    parser = _Parser(source, normalise)
    with tempfile.TemporaryFile(dir=folder) as columns, tempfile.TemporaryFile(dir=folder) as values:
        rows = _Rows(columns, values)
        text_blocks = _plain_blocks(source, blocks(source, size=block_bytes, progress=progress), groups)
        for text, final in _whole_lines(source, block_bytes, text_blocks, parser):
            parser.parse(text, final, rows)
        if not rows.query_ids:
            raise LetorError(source, 1, f"no document in the file; expected lines like {_EXAMPLE}")
        kept = parser.varies if drop_constant else parser.occurs
        feature_ids = np.flatnonzero(kept).astype(np.int32) if wanted is None else wanted
        lengths = np.concatenate([block[0] for block in rows.blocks])
        _fill(folder / "features.npy", rows, feature_ids, int(lengths.sum()))
    np.save(folder / "offsets.npy", offsets_of(lengths))
    np.save(folder / "labels.npy", np.concatenate(rows.labels))
    np.save(folder / "query_ids.npy", np.array(rows.query_ids, np.int64))
    np.save(folder / "feature_ids.npy", feature_ids)


def _group_file(source: Path) -> Path | None:
    """The file that says how many documents each query has, where lines do not name their query."""
    first = next((text for _, text in lines(source, LetorError) if text.partition("#")[0].strip()), "")
    if "qid:" in first.partition("#")[0]:
        return None
    stems = dict.fromkeys((source.name, source.name.removesuffix(".gz")))
    places = [source.with_name(f"{stem}.{suffix}") for stem in stems for suffix in ("query", "group")]
    return next((place for place in places if place.is_file()), None)


def _plain_blocks(source: Path, text_blocks: Iterator[bytes], groups: Path | None) -> Iterator[bytes]:
    """The text with qid after every label, and without features that are NULL."""
    qids = iter(()) if groups is None else _group_qids(groups)

    def named(label: re.Match[bytes]) -> bytes:
        qid = next(qids, None)
        if qid is None:
            raise LetorError(source, None, f"has more documents than {groups} names")
        return label[0] + b" qid:" + qid

    def plain(text: bytes) -> bytes:
        text = _NULL.sub(b"", text) if b":NULL" in text else text
        return text if groups is None else _LABEL.sub(named, text)

    rest = b""
    for block in text_blocks:
        text = rest + block
        end = text.rfind(b"\n") + 1
        if end == 0 and len(text) > MAX_LINE_BYTES:  # no line: whoever reads on says so
            end = len(text)
        if end > 0:
            yield plain(text[:end])
        rest = text[end:]
    if rest:
        yield plain(rest)
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


def _whole_lines(
    source: Path, block_bytes: int, text_blocks: Iterator[bytes], parser: _Parser
) -> Iterator[tuple[bytes, bool]]:
    """Text up to a line end, with whether it is the last; what the parser leaves over comes again with more behind it."""
    parts: list[bytes] = []
    size = 0
    try:
        for block in text_blocks:
            parts.append(block)
            size += len(block)
            # A query longer than a block is parsed again only when its text has doubled, so the work stays linear.
            if size < max(parser.wanted_bytes, block_bytes):
                continue
            text = b"".join(parts)
            end = text.rfind(b"\n") + 1
            if len(text) - end > MAX_LINE_BYTES:
                line = parser.line + text.count(b"\n") + 1
                raise LetorError(source, line, f"line longer than {MAX_LINE_BYTES >> 20} MB; expected {_EXAMPLE}")
            parts = [text]
            if end > 0:
                yield text[:end], False
                parts = [text[parser.used :]]
            size = len(parts[0])
    except DamagedGzipError as damage:
        raise LetorError(source, parser.line + sum(part.count(b"\n") for part in parts) + 1, str(damage)) from None
    text = b"".join(parts)
    yield text if text.endswith(b"\n") else text + b"\n", True


class _Parser:
    """Holds the scratch arrays of the compiled loops and the place in the file."""

    def __init__(self, source: Path, normalise: bool) -> None:
        width = _kernels.MAX_FEATURE_ID + 1
        self.source = source
        self.normalise = normalise
        self.line = 0  # lines before the text that comes next
        self.used = 0  # bytes of the last text that need not come again
        self.wanted_bytes = 0
        self.stamp = 1
        self.occurs = np.zeros(width, np.bool_)
        self.varies = np.zeros(width, np.bool_)
        self._seen = np.zeros(width, np.int64)
        self._scratch = (np.empty(width), np.empty(width), np.zeros(width, np.int64), np.empty(width, np.int32))
        self._resize(0)

    def _resize(self, text_bytes: int) -> None:
        rows = text_bytes // len("0 qid:1\n") + 2
        entries = text_bytes // len(" 1:0") + 1
        self._capacity = text_bytes
        # Label, query, line, place in the text and first entry of each row; then feature, value and unfinished numbers.
        self._rows = (
            np.empty(rows, np.int16),
            np.empty(rows, np.int64),
            np.empty(rows, np.int64),
            np.empty(rows, np.int64),
            np.empty(rows, np.int64),
        )
        self._entries = (np.empty(entries, np.int32), np.empty(entries, np.float64), np.empty((entries, 3), np.int64))
        self._scaled = (np.empty(2 * entries, np.int32), np.empty(2 * entries, np.float32))

    def parse(self, text: bytes, final: bool, rows: _Rows) -> None:
        """Parse the complete queries of a text; all of it when it is the last."""
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

        first_rows = np.flatnonzero(np.diff(queries[:n_rows], prepend=-1))
        bounds = np.append(first_rows, n_rows)
        if not final and n_rows > 0:
            # More documents of the last query may follow.
            bounds = bounds[:-1]
        complete = int(bounds[-1])
        self._check_order(queries[bounds[:-1]], lines[bounds[:-1]], rows)
        if len(bounds) > 1:
            self._spool(bounds, rows)
        if complete < n_rows:
            self.used = int(starts[complete])
            self.line += int(lines[complete])
        else:
            self.used = len(text)
            self.line += n_lines
        self.wanted_bytes = 0 if complete else 2 * len(text)

    def _check_order(self, queries: IntArray, lines: IntArray, rows: _Rows) -> None:
        for query, line in zip(queries.tolist(), (self.line + lines + 1).tolist()):
            first = rows.first_line.setdefault(query, line)
            if first != line:
                problem = f"query {query} appears again (it began on line {first}); all lines of a query must follow each other"
                raise LetorError(self.source, line, problem)
            rows.query_ids.append(query)

    def _spool(self, bounds: IntArray, rows: _Rows) -> None:
        complete = int(bounds[-1])
        labels, first_entry = self._rows[0], self._rows[4]
        background_count = np.empty(len(bounds) - 1, np.int32)
        entry_count = np.empty(complete, np.int32)
        size = _kernels.scale_queries(
            bounds, first_entry, *self._entries[:2], self.normalise, self.occurs, self.varies, *self._scratch,
            background_count, entry_count, *self._scaled,
        )  # fmt: skip
        rows.columns.write(self._scaled[0][:size].data)
        rows.values.write(self._scaled[1][:size].data)
        rows.labels.append(labels[:complete].copy())
        rows.blocks.append((np.diff(bounds), background_count, entry_count, size))


def _fill(file: Path, rows: _Rows, feature_ids: NDArray[np.int32], documents: int) -> None:
    """Fill the dense table from the scratch files."""
    if len(feature_ids) == 0:
        np.save(file, np.empty((documents, 0), np.float32))
        return
    table = np.lib.format.open_memmap(file, "w+", np.float32, (documents, len(feature_ids)))
    position = np.full(_kernels.MAX_FEATURE_ID + 1, -1, np.int32)
    position[feature_ids] = np.arange(len(feature_ids), dtype=np.int32)
    rows.columns.seek(0)
    rows.values.seek(0)
    at = 0
    for lengths, background_count, entry_count, size in rows.blocks:
        columns = np.frombuffer(rows.columns.read(4 * size), np.int32)
        values = np.frombuffer(rows.values.read(4 * size), np.float32)
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
