"""The data set that a command's options name: a file, a folder or a synthetic set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ranktrial.cli.console import progress_bar
from ranktrial.paper.data import Dataset, mslr_like, read_letor, read_splits, yahoo_like

SYNTHETIC = {"yahoo-like": yahoo_like, "mslr-like": mslr_like}
DATA_HELP = (
    "A LETOR/SVMlight file (plain or .gz), a folder with train/vali/test files (train is used), or a synthetic "
    "set: yahoo-like (24 documents a query), mslr-like (120)."
)
DataOption = Annotated[str, typer.Option("--data", help=DATA_HELP)]
PrefixOption = Annotated[
    str | None, typer.Option(help="Set to read of a folder that holds several, e.g. set1 of Yahoo's set1 and set2.")
]


def open_data(source: str, queries: int, prefix: str | None) -> Dataset:
    """The data set an option names; ``queries`` is the size of a synthetic one."""
    if source in SYNTHETIC:
        with progress_bar(f"generating {queries:,} {source} queries") as progress:
            return SYNTHETIC[source](queries, seed=0, progress=progress)
    path = Path(source)
    if not path.exists():
        raise ValueError(f"--data: no file or folder {source!r}, and not one of {', '.join(SYNTHETIC)}")
    with progress_bar(f"reading {path.name}") as progress:
        splits = read_source(path, prefix, progress)
    return splits["train"] if path.is_dir() else splits["all"]


def read_source(path: Path, prefix: str | None, progress: Callable[[int, int], None]) -> dict[str, Dataset]:
    """All the data sets of a file or folder, by name."""
    if path.is_dir():
        return read_splits(path, prefix=prefix, progress=progress)
    return {"all": read_letor(path, progress=progress)}
