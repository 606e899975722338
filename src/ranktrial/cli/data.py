"""The commands for learning-to-rank data: data, which sums up a data set, and rankers, which trains some on it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ranktrial.cli.console import progress_bar, say, tell
from ranktrial.cli.data_source import DataOption, PrefixOption, open_data, read_source
from ranktrial.cli.options import JsonOption, SeedOption
from ranktrial.paper.data import train_rankers, write_rankers

NUMBERS = ("queries", "documents", "features")


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
    with progress_bar(f"reading {path.name}") as progress:
        splits = read_source(path, prefix, progress)
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
