"""The command `ranktrial rankers`: linear rankers trained on a data set, as a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ranktrial.cli.console import plain_errors, progress_bar, say
from ranktrial.cli.data_source import DataOption, PrefixOption, open_data
from ranktrial.cli.options import SeedOption
from ranktrial.paper.data import train_rankers, write_rankers


@plain_errors()
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
