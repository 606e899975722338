"""Columns that grow with a log: arrays, texts and numbers of keys, in files without a name once they are large.

What a report needs of a long log is read far more often than it changes, and most of it is not read at all. In a mapped file it
is the system that decides how much of it stays in memory, and a process can be given less. The files are in the folder for
temporary files (``TMPDIR``), nobody else can open them, and they go with the process however that ends.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import IntArray

LARGE = 2**22  # bytes from which on a column is in a file
PIECE = 2**18  # keys that are merged at a time


class Column:
    """An array to which rows are appended; what was read of it before stays as it is.

    >>> column = Column("i4", 2)
    >>> column.append([[1, 2]])
    >>> column.append([[3, 4], [5, 6]])
    >>> column.values.tolist(), len(column)
    ([[1, 2], [3, 4], [5, 6]], 3)
    """

    def __init__(self, kind: Any, *width: int) -> None:
        self.values: NDArray[Any] = np.empty((0, *width), kind)
        self._file: Any = None

    def append(self, rows: Any) -> None:
        """Add rows at the end."""
        more = np.ascontiguousarray(rows, self.values.dtype)
        if self._file is None and self.values.nbytes + more.nbytes < LARGE:
            self.values = np.concatenate([self.values, more])
        elif len(more):
            self._write(more)

    def _write(self, more: NDArray[Any]) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="ranktrial-", buffering=0)  # noqa: SIM115 (it is ours to keep)
                _write_all(self._file, self.values)
            _write_all(self._file, more)
        except OSError as problem:
            said = f"{problem.strerror or problem}: columns of a long log are kept in {tempfile.gettempdir()}"
            raise OSError(problem.errno, f"{said}; TMPDIR names another folder") from problem
        shape = len(self.values) + len(more), *self.values.shape[1:]
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self.values = np.frombuffer(mapped, self.values.dtype).reshape(shape)

    def __getitem__(self, at: Any) -> NDArray[Any]:
        return np.asarray(self.values[at])

    def __len__(self) -> int:
        return len(self.values)


def _write_all(file: Any, rows: NDArray[Any]) -> None:
    left = memoryview(rows.tobytes())
    while len(left):
        left = left[file.write(left) :]


class Offsets(Column):
    """Where groups begin in what follows each other, from their sizes.

    >>> offsets = Offsets()
    >>> offsets.append([2, 0, 3])
    >>> offsets.values
    array([0, 2, 2, 5])
    """

    def __init__(self) -> None:
        super().__init__(np.int64)
        super().append([0])

    def append(self, sizes: Any) -> None:
        super().append(self.values[-1] + np.cumsum(np.asarray(sizes, np.int64)))


class Texts(Sequence[str]):
    """Texts by number.

    >>> texts = Texts()
    >>> texts.append([b"red", b"", "bl\u00e4ulich".encode()])
    >>> list(texts), texts[-1], list(texts.chosen(np.array([2, 0])))
    (['red', '', 'bläulich'], 'bläulich', ['bläulich', 'red'])
    """

    def __init__(self) -> None:
        self._bytes, self._offsets = Column(np.uint8), Offsets()

    def append(self, texts: Sequence[bytes]) -> None:
        """Add texts, in UTF-8."""
        self._bytes.append(np.frombuffer(b"".join(texts), np.uint8))
        self._offsets.append([len(text) for text in texts])

    def chosen(self, numbers: IntArray) -> Sequence[str]:
        """Some of the texts, by their numbers."""
        return _Chosen(self, numbers)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        numbers = range(len(self))[at]
        if isinstance(numbers, range):
            return self.chosen(np.array(numbers, np.int64))
        start, end = self._offsets[numbers : numbers + 2].tolist()
        return bytes(self._bytes[start:end]).decode(errors="surrogatepass")

    def __len__(self) -> int:
        return len(self._offsets) - 1


class _Chosen(Sequence[str]):
    """Some of many texts."""

    def __init__(self, texts: Texts, numbers: IntArray) -> None:
        self._texts, self._numbers = texts, numbers

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        numbers = self._numbers[at]
        return _Chosen(self._texts, numbers) if isinstance(at, slice) else self._texts[int(numbers)]

    def __len__(self) -> int:
        return len(self._numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class Index:
    """Numbers by key, as sorted runs each less than half as long as the one before.

    >>> index = Index("i8")
    >>> index.put(np.array([7, 3]), np.array([0, 1]))
    >>> index.find(np.array([3, 7, 5])), len(index)
    (array([ 1,  0, -1]), 2)
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._runs: list[tuple[NDArray[Any], NDArray[np.int32]]] = []

    def find(self, keys: NDArray[Any]) -> IntArray:
        """The number of each key, -1 for those that were never put."""
        found = np.full(len(keys), -1)
        for known, numbers in self._runs:
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            hit = known[place] == keys
            found[hit] = numbers[place[hit]]
        return found

    def put(self, keys: NDArray[Any], numbers: IntArray) -> None:
        """Keys that are not there yet, each once, and their numbers."""
        if not len(keys):
            return
        order = np.argsort(keys)
        self._runs.append((keys[order].astype(self._kind), numbers[order].astype(np.int32)))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            self._runs[-2:] = [self._merged(self._runs[-2], self._runs[-1])]

    def _merged(self, *runs: tuple[NDArray[Any], NDArray[np.int32]]) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """One run of two, piece by piece."""
        columns = Column(self._kind), Column(np.int32)
        bounds = runs[0][0][PIECE::PIECE]
        ends = [[*np.searchsorted(keys, bounds).tolist(), len(keys)] for keys, _ in runs]
        starts = [0, 0]
        for some in zip(*ends):
            pieces = [(keys[a:b], numbers[a:b]) for (keys, numbers), a, b in zip(runs, starts, some)]
            keys, numbers = (np.concatenate(of) for of in zip(*pieces))
            order = np.argsort(keys, kind="stable")
            columns[0].append(keys[order])
            columns[1].append(numbers[order])
            starts = list(some)
        return columns[0].values, columns[1].values

    def below(self, limit: int) -> IntArray:
        """All numbers below a limit, in the order of their keys."""
        kept = [(keys[numbers < limit], numbers[numbers < limit]) for keys, numbers in self._runs]
        if not kept:
            return np.empty(0, np.int64)
        keys, numbers = (np.concatenate(of) for of in zip(*kept))
        return numbers[np.argsort(keys)].astype(np.int64)

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._runs)


class Numbers(Index):
    """An index that gives out the numbers, from 0 on.

    >>> numbers = Numbers("i8")
    >>> numbers.add(np.array([7, 3])), numbers.add(np.array([3, 9, 9]))
    (array([1, 0]), array([1]))
    >>> numbers.find(np.array([3, 7, 9, 5])), len(numbers)
    (array([ 0,  1,  2, -1]), 3)
    """

    def add(self, keys: NDArray[Any]) -> IntArray:
        """Give numbers to those that are new, and return where among the keys these are, in the order of their numbers."""
        distinct, first = np.unique(keys, return_index=True)
        new = self.find(distinct) < 0
        self.put(distinct[new], len(self) + np.arange(int(new.sum())))
        return first[new]
