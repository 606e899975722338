"""Checkpoints of a SQLite store beside its commits: committed pages are copied from the log into the file.

Otherwise SQLite does it in the commit that makes the log a thousand pages long, which then takes ten times as long or more. It
still does so where a thread has no time for it: the log does not grow without bound.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

EVERY = 1.0  # seconds


class Checkpoints:
    """A thread that makes a checkpoint about once a second while there are commits.

    Args:
        make: Makes one; what it raises, the next commit will tell.

    Attributes:
        due: Set by every commit: there is something to bring over.
    """

    def __init__(self, make: Callable[[], None]) -> None:
        self._make, self._closing = make, threading.Event()
        self.due = False
        self._thread = threading.Thread(target=self._make_forever, name="ranktrial-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Make no more of them."""
        self._closing.set()
        self._thread.join()

    def _make_forever(self) -> None:
        while not self._closing.wait(EVERY):
            if self.due:
                self.due = False
                with contextlib.suppress(Exception):
                    self._make()
