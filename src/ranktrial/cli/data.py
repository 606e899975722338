"""The data set that a command's options name, and the commands data, which sums one up, and rankers, which trains on one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ranktrial.cli.console import progress_bar, say, tell
from ranktrial.cli.options import JsonOption, SeedOption
from ranktrial.paper.data import (
    Dataset,
    mslr_like,
    read_letor,
    read_splits,
    train_rankers,
    write_rankers,
    yahoo_like,
)

NUMBERS = ("queries", "documents", "features")
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
    return read_sets(path, prefix)["train" if path.is_dir() else "all"]


def read_sets(path: Path, prefix: str | None) -> dict[str, Dataset]:
    """All the data sets of a file or folder, by name."""
    with progress_bar(f"reading {path.name}") as progress:
        if path.is_dir():
            return read_splits(path, prefix=prefix, progress=progress)
        return {"all": read_letor(path, progress=progress)}


def data_command(
    path: Annotated[
        Path, typer.Argument(help="A LETOR/SVMlight file (plain or .gz), or a folder with train/vali/test.")
    ],
    as_json: JsonOption = False,
    prefix: PrefixOption = None,
) -> None:
    """Read a learning-to-rank data set and print a summary; errors name file and line."""
    if not path.exists():
        raise ValueError(f"no file or folder {str(path)!r}")
    start = time.perf_counter()
    splits = read_sets(path, prefix)
    elapsed = time.perf_counter() - start
    rows = []
    table = Table("split", *NUMBERS, "documents per label")
    for split, dataset in splits.items():
        numbers = {name: int(getattr(dataset, f"n_{name}")) for name in NUMBERS}
        grades, counts = np.unique(dataset.labels, return_counts=True)
        labels = dict(zip(grades.astype(int).tolist(), counts.tolist()))
        rows.append({"split": split, **numbers, "labels": labels})
        of_labels = "  ".join(f"{grade}: {count:,}" for grade, count in labels.items())
        table.add_row(split, *(f"{number:,}" for number in numbers.values()), of_labels)
    tell(as_json, rows, table, f"read in {elapsed:.2f} s; later reads come from the cache")


def rankers_command(
    output: Annotated[Path, typer.Argument(help="File to write; .gz compresses.")],
    data: DataOption = "mslr-like",
    prefix: PrefixOption = None,
    queries: Annotated[int, typer.Option(min=200, help="Queries of a synthetic set.")] = 2000,
    count: Annotated[int, typer.Option(min=1, help="Number of rankers.")] = 1000,
    kind: Annotated[
        str,
        typer.Option(
            help="paper: weights only on a random half of the features; code: as the paper's authors' code does it, "
            "random weights on the other half."
        ),
    ] = "paper",
    seed: SeedOption = 0,
    workers: Annotated[int, typer.Option(min=1, help="Cores to use; the file does not depend on it.")] = 1,
) -> None:
    """Train linear rankers with LambdaLoss on 100 queries each, and write them in the paper's file format."""
    if kind not in ("paper", "code"):
        raise ValueError(f"--kind is {kind!r}, must be paper or code")
    if output.is_dir():
        raise ValueError(f"cannot write {output}: it is a folder")
    if not output.absolute().parent.is_dir():
        raise ValueError(f"cannot write {output}: its folder does not exist")
    dataset = open_data(data, queries, prefix)
    start = time.perf_counter()
    with progress_bar("training rankers") as progress:
        trained = train_rankers(dataset, count, seed=seed, rankers=kind, workers=workers, progress=progress)  # type: ignore[arg-type]
    write_rankers(output, trained)
    took = time.perf_counter() - start
    say(
        f"wrote {count:,} rankers with {dataset.n_features} features to {output} ({took:.1f} s on {dataset.name})",
        wrap=True,
    )
