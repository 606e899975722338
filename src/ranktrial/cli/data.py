"""The command `ranktrial data`: summary of a learning-to-rank data set."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ranktrial.cli.console import out, plain_errors, progress_bar
from ranktrial.cli.data_source import PrefixOption, read_source
from ranktrial.cli.options import JsonOption

NUMBERS = ("queries", "documents", "features")


@plain_errors()
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
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    out.print(table)
    out.print(f"read in {elapsed:.2f} s; later reads come from the cache", style="dim", highlight=False)
