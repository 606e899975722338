"""Data frames as methods and arguments of what stands below ``formats``, which makes and reads them.

Imports point one way, so ``formats`` is looked up by its name when a frame is asked for, as the front door does it: nothing is
imported before, and nothing here depends on it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOME = "ranktrial.formats"


def to_frame(result: Any, backend: str = "pandas") -> Any:
    """Make a data frame of a result, by "pandas", "polars" or "pyarrow"; see ``ranktrial.to_frame``."""
    return import_module(HOME).to_frame(result, backend)


def read_log(frame: Any, k: int | None = None, **options: Any) -> Any:
    """Read a log from a data frame; see ``ranktrial.read_log``."""
    return import_module(HOME).read_log(frame, k, **options)


def read_pair(frame: Any, k: int, **options: Any) -> Any:
    """Read a pair of rankers from a data frame; see ``ranktrial.pair_from_frame``."""
    return import_module(HOME).pair_from_frame(frame, k, **options)


def is_frame(given: Any) -> bool:
    """True for what has columns with names, as frames of all libraries do."""
    return hasattr(given, "columns") or hasattr(given, "column_names")
