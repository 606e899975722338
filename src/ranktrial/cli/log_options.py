"""Options by which commands read a log that somebody else has kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ranktrial.logs.formats import CLICKS
from ranktrial.methods import parse_method

FormatOption = Annotated[
    str | None, typer.Option("--format", help="impressions, ubi, flat, counts or items. Default: what the columns say.")
]
EventsOption = Annotated[Path | None, typer.Option(help="UBI: the file of events that belongs to the file of queries.")]
RanksOption = Annotated[
    int | None, typer.Option("-k", "--k", min=1, help="Ranks that count. Default: as many as were shown.")
]
ColumnOption = Annotated[
    list[str] | None, typer.Option(help="A column of another name: document=sku. May be repeated.")
]
ActionOption = Annotated[
    list[str] | None, typer.Option(help=f"UBI: an action that is a click. Default: {', '.join(CLICKS)}.")
]
MethodOption = Annotated[
    str | None,
    typer.Option(help="What drew the pages, where the log does not say with which probabilities: 'TeamDraft()'."),
]


def reading_options(
    format: str | None,
    events: Path | None,
    k: int | None,
    columns: Sequence[str] | None,
    actions: Sequence[str] | None,
    method: str | None = None,
) -> dict[str, Any]:
    """The options of ``read_source``."""
    named = {}
    for text in columns or ():
        ours, equals, theirs = text.partition("=")
        if not equals:
            raise ValueError(f"--column is {text!r}, must look like document=sku")
        named[ours] = theirs
    return {
        "format": format,
        "events": events,
        "k": k,
        "columns": named,
        "actions": tuple(actions) if actions else CLICKS,
        "method": None if method is None else parse_method(method),
    }
