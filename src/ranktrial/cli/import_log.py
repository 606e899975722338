"""The command `ranktrial import`: a log that somebody else has kept, as a folder of Parquet of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ranktrial.cli.console import out, plain_errors
from ranktrial.cli.log_options import reads_log
from ranktrial.formats.readers import save
from ranktrial.formats.reading import read_aside


@reads_log
def import_command(
    log: Annotated[Path, typer.Argument(help="CSV, JSON lines or Parquet, also .gz, or a folder of Parquet.")],
    to: Annotated[Path, typer.Option(help="Folder to write; it must not hold a log.")],
    *,
    reading: dict[str, Any],
    skip: Annotated[bool, typer.Option("--skip", help="Leave out rows that are wrong, and say how many.")] = False,
    memory: Annotated[str, typer.Option(help="Memory limit; the rest goes to the disk.")] = "2GB",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Read a log of any size, check every row, and write it as Parquet for `estimate`, `check` and `bias`.

    A file with a wrong row is refused with its line, what is wrong and what would be right; nothing of it is written.
    """
    with plain_errors(), read_aside(log, memory=memory, skip=skip, **reading) as source:
        save(source, to)
    if as_json:
        told = {
            "kind": source.kind,
            "format": source.format,
            "rows": source.rows,
            "skipped": source.skipped,
            "k": source.k,
        }
        print(json.dumps(told))
        return
    notes = "".join(f"; {note}" for note in source.notes)
    out.print(
        f"read {source.rows:,} rows as {source.format} into {to} ({source.kind}, {source.k} ranks){notes}",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
