"""Which of two rankers gets more clicks, by how much and how surely."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranktrial.live import Trial
    from ranktrial.methods import AB, LogOpt

__version__ = "0.1.0"
__all__ = ["AB", "LogOpt", "Trial"]

# Found when asked for, so that importing a part of the package does not load all of it.
_HOMES = {"Trial": "ranktrial.live", "AB": "ranktrial.methods", "LogOpt": "ranktrial.methods"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ranktrial' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
