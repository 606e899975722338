"""The command `ranktrial warm`: compile the loops of a trial ahead of the first visitor."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from ranktrial._kernels import cache_folder, watching_compilations
from ranktrial.cli.console import out, plain_errors, progress_bar
from ranktrial.trial.warming import PARTS, compile_part


def warm_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of text.")] = False,
) -> None:
    """Compile the loops of a trial ahead of time, so that a service or a program that uses one starts at once.

    Run it once for each installation, kind of processor and cache: when an image is built, after an upgrade. Compiled code goes
    beside the package, or to the folder that NUMBA_CACHE_DIR names.
    """
    loops: list[str] = []
    start = time.perf_counter()
    with plain_errors(), progress_bar("compiling") as progress, watching_compilations(loops.append):
        for done, part in enumerate(PARTS):
            progress(done, len(PARTS))
            compile_part(part)
    took = time.perf_counter() - start
    folder = str(cache_folder())
    if as_json:
        print(json.dumps({"compiled": len(loops), "seconds": round(took, 1), "cache": folder}))
    elif loops:
        out.print(f"compiled {len(loops)} functions in {took:.0f} s, kept in {folder}", highlight=False, soft_wrap=True)
    else:
        out.print(f"nothing to compile: all is in {folder}", highlight=False, soft_wrap=True)
