"""Options by which commands read a log that somebody else has kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from ranktrial.cli.console import plain_errors
from ranktrial.formats.readers import CLICKS, NEEDED
from ranktrial.methods import parse_method

READING = "reading"


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
    named = {}
    for text in column or ():
        ours, equals, theirs = text.partition("=")
        if not equals:
            raise ValueError(f"--column is {text!r}, must look like document=sku")
        named[ours] = theirs
    return {
        "format": format,
        "events": events,
        "k": k,
        "columns": named,
        "segments": _names(by),
        "covariates": _names(covariates),
        "read_at": read_at,
        "actions": tuple(action) if action else CLICKS,
        "method": None if method is None else parse_method(method),
    }


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(name.strip() for name in text.split(","))


def reads_log(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of ``reading_options``, where it has one parameter ``reading`` for all of them."""
    own = inspect.signature(command, eval_str=True)
    options = inspect.signature(reading_options, eval_str=True).parameters
    parameters: list[inspect.Parameter] = []
    for parameter in own.parameters.values():
        some = options.values() if parameter.name == READING else [parameter]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in some]

    @wraps(command)
    def with_options(**given: Any) -> None:
        with plain_errors():
            reading = reading_options(**{name: given.pop(name) for name in options})
        command(**given, **{READING: reading})

    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options
