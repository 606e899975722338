"""Which of two rankers gets more clicks, by how much and how surely."""

from __future__ import annotations

__version__ = "0.1.0"
