"""The cache of parsed data sets, which makes the second load instant.

One folder per file and set of options, under ``$RANKTRIAL_CACHE`` or the user's cache folder. It is built beside its
place and renamed into it, so a reader never sees half of one, and two processes that build at once do not disturb each
other. ``meta.json`` records which file (size and time of change) it was made from; an entry that does not match it, or
is damaged, is built again.
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
FORMAT_VERSION = 1


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
    origin = {"name": name, "version": FORMAT_VERSION, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    key = hashlib.sha256(json.dumps([str(source), dict(options)], sort_keys=True).encode()).hexdigest()[:24]
    entry = cache_folder() / "letor" / f"{source.name}-{key}"
    known = _load(entry, origin)
    if known is not None:
        return known
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        _sweep(entry.parent)
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=entry.parent))
    except OSError as problem:
        raise OSError(
            f"cannot write to the cache folder {cache_folder()} ({problem.strerror}); "
            "set RANKTRIAL_CACHE to another, or read with cache=False"
        ) from None
    try:
        build(building)
        (building / "meta.json").write_text(json.dumps({"origin": origin}, indent=1))
        # Mapped before the rename: whatever other processes do to the entry, this data set stays readable.
        dataset = _load(building, origin)
        assert dataset is not None
        _replace(entry, building)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return dataset


def _load(entry: Path, origin: Mapping[str, Any]) -> Dataset | None:
    """A data set with its features mapped; None where the entry is not there, was made from something else or is damaged."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, EOFError):
        if json.loads((entry / "meta.json").read_text())["origin"] == origin:
            return load_dataset(
                entry, origin["name"], lambda file: mapped(file) if file.stem == "features" else np.load(file)
            )
    return None


def _replace(entry: Path, building: Path) -> None:
    """Put a finished folder in its place. Whatever another process left there is moved away in one step first."""
    for _ in range(2):
        try:
            building.rename(entry)
            return
        except OSError:
            old = Path(tempfile.mkdtemp(prefix=".old-", dir=entry.parent))
            with contextlib.suppress(OSError):
                entry.rename(old / "entry")
            shutil.rmtree(old, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed more than a day ago left behind."""
    for left in folder.glob(".*-*"):
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < time.time() - 24 * 3600:
                shutil.rmtree(left, ignore_errors=True)
