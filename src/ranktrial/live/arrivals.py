"""Numbers of keys in the order in which they first came, that can go back and on again from any of them."""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import IntArray
from ranktrial.inference._kernels import number_on


class Arrivals:
    """Keys, such as units, by number.

    >>> seen = Arrivals()
    >>> seen.come(np.array([70, 30, 70]), np.array([0, 1, 2]))
    array([0, 1, 0])
    >>> seen.back_to(1)
    >>> seen.come(np.array([50, 30]), np.array([1, 2])), seen.first[: seen.count]
    (array([1, 2]), array([0, 1, 2]))

    Attributes:
        count: How many have come.
        first: With what each came first; what is beyond ``count`` means nothing.
    """

    def __init__(self) -> None:
        self.count, self.first = 0, np.empty(0, np.int64)
        self._keys = np.empty(0, np.int64)
        self._table, self._used = (
            np.full(16, -1, np.int32),
            0,
        )  # numbers by hash; those that are gone may still stand there

    def back_to(self, count: int) -> None:
        """As if no more than the first so many had come."""
        if count > self.count:
            raise ValueError(f"there are {self.count} keys, so there is no going back to {count}")
        self.count = count

    def come(self, keys: IntArray, at: IntArray) -> IntArray:
        """The number of each key; ``at`` is with what they come."""
        most = self.count + len(keys)
        if most > len(self._keys):
            self._keys, self.first = (
                np.append(of[: self.count], np.empty(most, np.int64)) for of in (self._keys, self.first)
            )
        if 2 * (self._used + len(keys)) > len(self._table):
            self._table, again = (
                np.full(1 << (4 * most - 1).bit_length(), -1, np.int32),
                self.first[: self.count].copy(),
            )
            number_on(self._keys[: self.count].copy(), again, self._table, self._keys, self.first, 0)
            self._used = self.count
        number, count = number_on(np.asarray(keys, np.int64), at, self._table, self._keys, self.first, self.count)
        self._used += count - self.count
        self.count = count
        return np.asarray(number)
