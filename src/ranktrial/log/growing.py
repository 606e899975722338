"""Arrays, texts and numberings that grow while a log is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial.arrays import IntArray, offsets_of
from ranktrial.log._kernels import find_numbers, number_on


class Growing:
    """An array to which rows are appended; what was read of it before stays as it is.

    >>> column = Growing("i4", 2)
    >>> column.append([[1, 2]])
    >>> column.append([[3, 4], [5, 6]])
    >>> column.values.tolist(), len(column)
    ([[1, 2], [3, 4], [5, 6]], 3)
    """

    def __init__(self, kind: Any, *width: int) -> None:
        self._room: NDArray[Any] = np.empty((16, *width), kind)
        self._size = 0

    def append(self, rows: ArrayLike) -> None:
        """Add rows at the end."""
        more = np.asarray(rows, self._room.dtype)
        size = self._size + len(more)
        if size > len(self._room):
            room = np.empty((max(size, len(self._room) * 3 // 2), *self._room.shape[1:]), self._room.dtype)
            room[: self._size] = self.values
            self._room = room
        self._room[self._size : size] = more
        self._size = size

    def copy(self) -> Growing:
        """Return another array of the same rows."""
        other = Growing(self._room.dtype, *self._room.shape[1:])
        other.append(self.values)
        return other

    @property
    def values(self) -> NDArray[Any]:
        return self._room[: self._size]

    def __len__(self) -> int:
        return self._size


class Texts(Sequence[str]):
    """Texts by number, in UTF-8: a tenth of what as many objects would take.

    >>> texts = Texts()
    >>> texts.append(np.frombuffer(b"redblue", np.uint8), [3, 0, 4])
    >>> list(texts), texts[-1]
    (['red', '', 'blue'], 'blue')
    """

    def __init__(self) -> None:
        self._bytes, self._ends = Growing(np.uint8), Growing(np.int64)

    def append(self, raw: NDArray[np.uint8], sizes: ArrayLike) -> None:
        """Add texts that stand one after the other in ``raw``, given their numbers of bytes."""
        self._ends.append(len(self._bytes) + offsets_of(sizes)[1:])
        self._bytes.append(raw)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = range(len(self))[at]
        start = int(self._ends.values[number - 1]) if number else 0
        return self._bytes.values[start : int(self._ends.values[number])].tobytes().decode(errors="surrogatepass")

    def __len__(self) -> int:
        return len(self._ends)


class Chosen(Sequence[Any]):
    """Some entries of a sequence, by their numbers, looked up when they are asked for.

    >>> list(Chosen("abc", np.array([2, 0])))
    ['c', 'a']
    """

    def __init__(self, of: Sequence[Any], numbers: IntArray) -> None:
        self._of, self._numbers = of, numbers

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return Chosen(self._of, self._numbers[at]) if isinstance(at, slice) else self._of[int(self._numbers[at])]

    def __len__(self) -> int:
        return len(self._numbers)


class Numbering:
    """Numbers of keys, from 0 on, in the order in which they first came.

    >>> numbers = Numbering()
    >>> numbers.add(np.array([70, 30, 70]))
    (array([0, 1, 0]), array([0, 1]))
    >>> numbers.add(np.array([30, 50])), numbers.find(np.array([50, 60])), numbers.keys
    ((array([1, 2]), array([1])), array([ 2, -1]), array([70, 30, 50]))
    """

    def __init__(self) -> None:
        self._count = 0
        self._keys = np.empty(16, np.int64)
        self._table = np.full(32, -1, np.int32)  # numbers by hash

    @property
    def keys(self) -> IntArray:
        """All keys, by their numbers."""
        return self._keys[: self._count]

    def add(self, keys: IntArray) -> tuple[IntArray, IntArray]:
        """Number of each key, and where among them each new key came first; new keys get the next numbers."""
        most = self._count + len(keys)
        if most > len(self._keys):
            room = np.empty(most + most // 2, np.int64)
            room[: self._count] = self.keys
            self._keys = room
        if 3 * most > 2 * len(self._table):
            self._table = np.full(1 << (2 * most - 1).bit_length(), -1, np.int32)
            number_on(self.keys, self._table, self._keys, 0)
        number, new, self._count = number_on(np.ascontiguousarray(keys), self._table, self._keys, self._count)
        return number, new

    def find(self, keys: IntArray) -> IntArray:
        """Number of each key, -1 for those that never came."""
        return np.asarray(find_numbers(np.ascontiguousarray(keys), self._table, self._keys))
