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


def data_command(
    path: Annotated[
        Path, typer.Argument(help="A LETOR/SVMlight file (plain or .gz), or a folder with train/vali/test.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
    prefix: PrefixOption = None,
) -> None:
    """Read a learning-to-rank data set and print a summary; errors name file and line."""
    rows = []
    with plain_errors():
        if not path.exists():
            raise ValueError(f"no file or folder {str(path)!r}")
        start = time.perf_counter()
        with progress_bar(f"reading {path.name}") as progress:
            splits = read_source(path, prefix, progress)
        elapsed = time.perf_counter() - start
        for split, dataset in splits.items():
            grades, counts = np.unique(dataset.labels, return_counts=True)
            rows.append(
                {
                    "split": split,
                    "queries": dataset.n_queries,
                    "documents": dataset.n_documents,
                    "features": dataset.n_features,
                    "labels": {int(grade): int(count) for grade, count in zip(grades, counts)},
                }
            )
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("split", "queries", "documents", "features", "documents per label")
    for row in rows:
        labels = row["labels"]
        assert isinstance(labels, dict)
        table.add_row(
            *(f"{row[c]:,}" if c != "split" else str(row[c]) for c in ("split", "queries", "documents", "features")),
            "  ".join(f"{grade}: {count:,}" for grade, count in labels.items()),
        )
    out.print(table)
    out.print(f"read in {elapsed:.2f} s; later reads come from the cache", style="dim", highlight=False)
