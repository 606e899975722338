"""The command `ranktrial warm`: compile the loops of a trial ahead of the first visitor."""

from __future__ import annotations

import time

from ranktrial._kernels import cache_folder, watching_compilations
from ranktrial.cli.console import progress_bar, tell
from ranktrial.cli.options import JsonOption
from ranktrial.trial.warming import PARTS, compile_part


def warm_command(as_json: JsonOption = False) -> None:
    """Compile the loops of a trial ahead of time, so that a service or a program that uses one starts at once.

    Run it once for each installation, kind of processor and cache: when an image is built, after an upgrade. Compiled code goes
    beside the package, or to the folder that NUMBA_CACHE_DIR names.
    """
    loops: list[str] = []
    start = time.perf_counter()
    with progress_bar("compiling") as progress, watching_compilations(loops.append):
        for done, part in enumerate(PARTS):
            progress(done, len(PARTS))
            compile_part(part)
    took, folder = time.perf_counter() - start, str(cache_folder())
    text = f"compiled {len(loops)} functions in {took:.0f} s, kept in {folder}"
    told = {"compiled": len(loops), "seconds": round(took, 1), "cache": folder}
    tell(as_json, told, text if loops else f"nothing to compile: all is in {folder}")
