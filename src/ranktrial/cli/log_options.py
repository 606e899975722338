"""Options by which commands read a log that somebody else has kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ranktrial.cli.options import named, names_in, takes
from ranktrial.formats.readers import NEEDED
from ranktrial.formats.readers.ubi import CLICKS
from ranktrial.methods import parse_method


def reading_options(
    format: Annotated[
        str | None,
        typer.Option("--format", help=f"Format: {', '.join(NEEDED)}. Default: by the columns."),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            help="A second file: events such as orders after the searches, or those of UBI if they are apart."
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", "--k", min=1, help="Ranks that count. Default: as many as were shown.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Name of a column in the file: document=sku. May be repeated.")
    ] = None,
    action: Annotated[
        list[str] | None, typer.Option(help=f"UBI: an action that is a click. Default: {', '.join(CLICKS)}.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Attributes of searches, with commas (columns of a file): device,country. Answers are by segment too."
        ),
    ] = None,
    covariates: Annotated[
        str | None,
        typer.Option(help="Numbers known of visitors before, with commas (columns of a file): clicks_last_month,age."),
    ] = None,
    read_at: Annotated[
        str | None,
        typer.Option(help="Date and time until which events of a file are known. Default: the last time in it."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Method that drew the pages, if the log has no probabilities: 'TeamDraft()'."),
    ] = None,
) -> dict[str, Any]:
    """The options of ``read_source``, from those of a command."""
    return {
        "format": format,
        "events": events,
        "k": k,
        "columns": dict(named(text, "--column", "document=sku") for text in column or ()),
        "segments": names_in(by),
        "covariates": names_in(covariates),
        "read_at": read_at,
        "actions": tuple(action) if action else CLICKS,
        "method": None if method is None else parse_method(method),
    }


reads_log = takes("reading", reading_options)
