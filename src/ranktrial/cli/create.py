"""The command `ranktrial create`: make a trial, or change its configuration, by a file of its options."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from ranktrial.cli.console import out, plain_errors
from ranktrial.config import TrialConfig
from ranktrial.store import open_store
from ranktrial.trial import Trial


def create_command(
    store: Annotated[
        str,
        typer.Argument(
            help="The trial's store, e.g. shoes.db or postgresql://...; made if it does not exist; a service may be using it."
        ),
    ],
    name: Annotated[str, typer.Option(help="Name of the trial.")] = "trial",
    config: Annotated[
        Path | None, typer.Option(help="TOML file of the trial's options, such as k = 10. [default: no options]")
    ] = None,
    new_version: Annotated[
        bool, typer.Option("--new-version", help="Make a new version, where none shows what this configuration shows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Make a trial, or change the configuration of one. Options that the file does not name stay as they are.

    A service that uses the store knows it within a second.
    """
    with plain_errors():
        options = {} if config is None else read_options(config)
        place = open_store(store)
        try:
            before = len(place.history(name)) if name in place.trial_names() else 0
            with Trial.create(
                place, name, new_version=new_version, background=False, compile=False, **options
            ) as trial:
                told = {"trial": name, "version": trial.version, "config": json.loads(trial.config.to_store())}
                done = [str(entry) for entry in trial.history()[before:]]
        finally:
            place.close()
    if as_json:
        print(json.dumps(told, indent=2))
        return
    for text in (f"{name}: version {told['version']}", *(done or ["nothing has changed"])):
        out.print(text, markup=False, highlight=False, soft_wrap=True)


def read_options(path: Path) -> dict[str, Any]:
    """Options of a trial in a TOML file, checked."""
    try:
        found = TrialConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        raise ValueError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from problem
    except ValueError as problem:
        raise ValueError(f"{path} is not a TOML file: {problem}") from problem
    return {option: getattr(found, option) for option in found.model_fields_set}
