"""Output of the commands: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from typer.core import TyperGroup

from ranktrial.extras import MissingExtra

out = Console()
err = Console(stderr=True)


class Commands(TyperGroup):
    """Commands that end with one sentence and status 2 at bad input, an unusable store or a missing extra."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            from ranktrial.store.base import StoreError

            told = isinstance(error, ValueError | OSError | MissingExtra | StoreError)
            if not told or isinstance(error, BrokenPipeError):
                raise
            err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None


def say(text: object, *, of: Console = out, style: str | None = None, wrap: bool = False, markup: bool = False) -> None:
    """Print a line without colours of numbers; with ``wrap`` broken at the width of the terminal."""
    of.print(str(text), style=style, markup=markup, highlight=False, soft_wrap=not wrap)


def tell(as_json: bool, told: object, *shown: object) -> None:
    """Print a result: JSON if that was asked for, else lines and tables."""
    if as_json:
        print(json.dumps(told, indent=2))
        return
    for one in shown:
        if isinstance(one, Table):
            out.print(one, highlight=False)
        else:
            say(one)


def plain_table(*columns: Column | str, **options: Any) -> Table:
    """Table without lines."""
    return Table(*columns, box=None, padding=(0, 2, 0, 0), pad_edge=False, **options)


def number_table(title: str, *numbers: str, text: str | None = None, width: int | None = None) -> Table:
    """Table of columns of numbers, with one of text before them."""
    table = Table(title=title, title_justify="left", caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    if text is not None:
        table.add_column(text, overflow="fold", ratio=1, min_width=width)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, with the time left; the function it gives is called with (done, total).

    Where standard error is a file, one line says what has begun.
    """
    if not err.is_terminal:
        say(f"{text} ...", of=err)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(escape(text), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
