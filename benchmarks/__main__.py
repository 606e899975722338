"""Run the benchmarks and print their tables.

python -m benchmarks                    all of them
python -m benchmarks simulation reader  some
python -m benchmarks --json             for scripts
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
from itertools import groupby
from pathlib import Path

import numba
import numpy as np
from rich.console import Console
from rich.table import Table


def main() -> None:
    known = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed and memory.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(known)}")
    console = Console(width=120)
    results = {}
    for name in options.names or known:
        with console.status(f"measuring {name}"):
            results[name] = importlib.import_module(f"benchmarks.{name}").run()
        if not options.json:
            for _, rows in groupby(results[name], key=tuple):  # rows with the same columns are a table
                print_table(console, name, list(rows))
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        console.print(
            f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}", style="dim"
        )


def print_table(console: Console, name: str, rows: list[dict[str, object]]) -> None:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = Table(title=name, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if isinstance(rows[0].get(column), str) else "right")
    for row in rows:
        table.add_row(*(_text(row.get(column, "")) for column in columns))
    console.print(table)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
