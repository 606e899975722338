"""Folder of third-party data for tests: it is never part of the repository, so tests skip without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def real_data(name: str) -> Path:
    """The folder of a real data set below ``$RANKTRIAL_DATA``."""
    root = os.environ.get("RANKTRIAL_DATA")
    if not root:
        pytest.skip(f"needs {name}: set RANKTRIAL_DATA to a folder that has it")
    folder = Path(root) / name
    if not folder.exists():
        pytest.skip(f"no {name} in RANKTRIAL_DATA ({root})")
    return folder
