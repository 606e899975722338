"""The command `ranktrial import`: a log that somebody else has kept, as a folder of Parquet of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ranktrial.cli.console import tell
from ranktrial.cli.log_options import reads_log
from ranktrial.cli.options import JsonOption
from ranktrial.formats.readers import save
from ranktrial.formats.reading import read_aside


@reads_log
def import_command(
    log: Annotated[Path, typer.Argument(help="CSV, JSON lines or Parquet, also .gz, or a folder of Parquet.")],
    to: Annotated[Path, typer.Option(help="Folder to write; it must not hold a log.")],
    *,
    reading: dict[str, Any],
    skip: Annotated[bool, typer.Option("--skip", help="Leave out rows that are wrong, and say how many.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read a log of any size, check every row, and write it as Parquet for `estimate`, `check` and `bias`.

    A file with a wrong row is refused with its line, what is wrong and what would be right; nothing of it is written.
    """
    with read_aside(log, skip=skip, **reading) as source:
        save(source, to)
    told = {name: getattr(source, name) for name in ("kind", "format", "rows", "skipped", "k")}
    about = f"{source.rows:,} rows as {source.format} into {to} ({source.kind}, {source.k} ranks)"
    tell(as_json, told, "; ".join([f"read {about}", *source.notes]))
