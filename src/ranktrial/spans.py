"""Spans of time that a tracer may note: the draw of a search, the wait for a row until it is on the disk.

Nothing is noted unless somebody has set ``note``, as a service does that sends traces.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

note: Callable[[str], AbstractContextManager[object]] = nullcontext
