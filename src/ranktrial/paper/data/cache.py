"""The cache of parsed data sets, which makes the second load instant.

One folder per file and set of options, under ``$RANKTRIAL_CACHE`` or the user's cache folder; its name says of which size and
time of change the file was. It is built beside its place and renamed into it, so a reader never sees half of one, and two
processes that build at once do not disturb each other. A damaged entry is built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ranktrial.paper.data.dataset import Dataset, load_dataset, mapped

# Raise it when the parser or the layout changes what a cached folder holds.
FORMAT_VERSION = 2


def cache_folder() -> Path:
    chosen = os.environ.get("RANKTRIAL_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "ranktrial"


def cached(source: Path, name: str, options: Mapping[str, Any], build: Callable[[Path], None]) -> Dataset:
    """The data set of this name that ``build`` writes for this file and these options, from the cache when it is there."""
    source = source.resolve()
    stat = source.stat()
    folder = cache_folder() / "letor"
    same_file = f"{source.name}-{_digest(str(source), dict(options))}-"
    entry = folder / f"{same_file}{_digest(FORMAT_VERSION, stat.st_size, stat.st_mtime_ns)}"
    known = _load(entry, name)
    if known is not None:
        return known
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=folder))
    except OSError as problem:
        raise OSError(
            f"cannot write to the cache folder {cache_folder()} ({problem.strerror}); "
            "set RANKTRIAL_CACHE to another, or read with cache=False"
        ) from None
    try:
        build(building)
        # Mapped before the rename: whatever other processes do to the entry, this data set stays readable.
        dataset = _load(building, name)
        assert dataset is not None
        for old in folder.iterdir():
            if old.name.startswith(same_file):
                shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process may have been faster
            building.rename(entry)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return dataset


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:24]


def _load(entry: Path, name: str) -> Dataset | None:
    """A data set with its features mapped; None where the entry is not there or is damaged."""
    with contextlib.suppress(OSError, ValueError, EOFError):
        return load_dataset(entry, name, lambda file: mapped(file) if file.stem == "features" else np.load(file))
    return None


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed more than a day ago left behind."""
    for left in folder.glob(".*-*"):
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < time.time() - 24 * 3600:
                shutil.rmtree(left, ignore_errors=True)
