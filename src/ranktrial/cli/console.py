"""Output of the commands: results on standard output, progress and errors on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ranktrial.extras import MissingExtra

out = Console()
err = Console(stderr=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Context in which bad input, an unusable store or a missing extra ends with one sentence and status 2, no traceback."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, ValueError | OSError | MissingExtra) and not _is_of_store(error):
            raise
        err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None


def _is_of_store(error: Exception) -> bool:
    from ranktrial.store.base import StoreError

    return isinstance(error, StoreError)


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, with the time left; the function it gives is called with (done, total).

    Where standard error is a file, one line says what has begun.
    """
    if not err.is_terminal:
        err.print(f"{text} ...", markup=False, highlight=False, soft_wrap=True)
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
