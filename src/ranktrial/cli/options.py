"""Arguments and options that several commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

STORE = "a SQLite file or postgresql://USER@HOST/DATABASE"

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Random seed: the same seed gives the same result.")]
FolderArgument = Annotated[Path, typer.Argument(help="Folder of the study, finished or not.")]
LogArgument = Annotated[
    Path, typer.Argument(help="CSV, JSON lines or Parquet, also .gz, or a folder of export or import.")
]

# --- trials ---------------------------------------------------------------------------------------------------------------

StoreArgument = Annotated[str, typer.Argument(help=f"The store of the trials, {STORE}; services may be using it.")]
NameOption = Annotated[str | None, typer.Option(help="Name of the trial, if the store holds several.")]
VersionOption = Annotated[int | None, typer.Option(help="Version of the trial's configuration. Default: the latest.")]
ReasonOption = Annotated[str, typer.Option(help="Reason; every report shows it.")]
VisitorArgument = Annotated[
    str, typer.Argument(help="The visitor: the unit as given to rank, or as a report names it (#...).")
]
QueryUnitsOption = Annotated[
    int, typer.Option(min=0, help="Number of visitors who must have made a query before a report names it.")
]


def number(text: str, option: str) -> float:
    """The number that an option's text says."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a number") from None


def numbers(text: str, option: str) -> list[float]:
    """The numbers that an option's text says, with commas between them."""
    return [number(part, option) for part in text.split(",")]


def names_in(text: str | None) -> tuple[str, ...]:
    """The names that an option's text says, with commas between them; none without the option."""
    return () if text is None else tuple(name.strip() for name in text.split(","))


def named(text: str, option: str, example: str) -> tuple[str, str]:
    """A name and its value, from a text such as the example: name=value."""
    name, equals, value = text.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise ValueError(f"{option}: {text!r} must look like {example}")
    return name.strip(), value.strip()


def takes(parameter: str, options: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command: one of its parameters stands for all those of a function, and gets what this returns."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        more = inspect.signature(options, eval_str=True).parameters
        parameters: list[inspect.Parameter] = []
        for one in own.parameters.values():
            some = more.values() if one.name == parameter else [one]
            parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in some]

        @wraps(command)
        def with_options(**given: Any) -> None:
            value = options(**{name: given.pop(name) for name in more})
            command(**given, **{parameter: value})

        with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in parameters}
        return with_options

    return decorated
