"""The command `ranktrial create`: make a trial, or change its configuration, by a file of its options."""

from __future__ import annotations

import json
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from ranktrial.cli.console import tell
from ranktrial.cli.options import STORE, JsonOption
from ranktrial.config import TrialConfig
from ranktrial.store import open_store
from ranktrial.trial import Trial


def create_command(
    store: Annotated[
        str, typer.Argument(help=f"The store, {STORE}; made if it does not exist; services may be using it.")
    ],
    name: Annotated[str, typer.Option(help="Name of the trial.")] = "trial",
    config: Annotated[
        Path | None, typer.Option(help="TOML file of the trial's options, such as k = 10. Default: no options.")
    ] = None,
    new_version: Annotated[
        bool, typer.Option("--new-version", help="Make a new version, where none shows what this configuration shows.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a trial, or change the configuration of one.

    Options that the file does not name stay as they are; but those that decide what is shown (method, k, theta, eta, seed,
    segments, covariates) must be named as they were, or a new version is asked for. A service that uses the store knows it
    within a second.
    """
    options = {} if config is None else read_options(config)
    with closing(open_store(store)) as place:
        before = len(place.trials.history(name)) if name in place.trials.names() else 0
        with Trial.create(place, name, new_version=new_version, background=False, compile=False, **options) as trial:
            told = {"trial": name, "version": trial.version, "config": json.loads(trial.config.to_store())}
            done = [str(entry) for entry in trial.history()[before:]]
    tell(as_json, told, f"{name}: version {told['version']}", *(done or ["nothing has changed"]))


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
