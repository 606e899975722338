"""Memory of the process that makes reports, while a page asks for one report after the other.

A page that is open asks every two seconds, 43,200 times a day. Here the calls follow each other at once: the process that a
service uses is asked again and again, each time after some new visits (so that the log has changed and every report is worked
out), on a log of shared lists. What it holds after each tenth of the calls must not grow but for what is new in the log.

``MEMORY_IMPRESSIONS`` (100000) are there at the beginning, ``MEMORY_SECONDS`` (600) is how long it is asked, ``MEMORY_CALLS``
(43200) how often at most, ``MEMORY_VISITS`` (2) come before each report; ``MEMORY_STORES`` keeps the store for the next time.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks._timing import row
from benchmarks.reports import fill, visit
from ranktrial.service.report_process import ReportProcess
from ranktrial.trial import Trial

IMPRESSIONS = int(os.environ.get("MEMORY_IMPRESSIONS", "100000"))
SECONDS = float(os.environ.get("MEMORY_SECONDS", "600"))
CALLS = int(os.environ.get("MEMORY_CALLS", "43200"))
VISITS = int(os.environ.get("MEMORY_VISITS", "2"))
FIRST = 5  # calls after which all that is kept for the next report is there


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(os.environ.get("MEMORY_STORES", folder)) / f"shared-{IMPRESSIONS}.db"
        if not kept.exists():
            fill(kept.with_suffix(".part"), "shared", IMPRESSIONS)
            kept.with_suffix(".part").rename(kept)
        path = Path(folder, "asked.db")
        shutil.copy(kept, path)
        memory = asked(path)
    head, growth = f"{IMPRESSIONS:,} impressions: ", memory[-1] - memory[FIRST - 1]
    tenths = [round(memory[len(memory) * tenth // 10 - 1]) for tenth in range(1, 11)]
    return [
        row(head + "reports", len(memory), "-", ""),
        row(head + f"memory after report {FIRST}", memory[FIRST - 1], "-", "MB"),
        row(head + f"after each tenth of the reports: {', '.join(map(str, tenths))}", memory[-1], "-", "MB"),
        row(head + "most", max(memory), "-", "MB"),
        row(head + f"growth over {len(memory) * VISITS:,} more impressions", growth, "0", "MB"),
    ]


def asked(path: Path) -> list[float]:
    """Memory of the process after each report, without mapped files, in MB."""
    memory: list[float] = []
    clock = itertools.count(1_900_000_000)
    process, until = ReportProcess(path), time.monotonic() + SECONDS
    try:
        with Trial.open(path, background=False, clock=lambda: next(clock)) as trial:
            for number in range(CALLS):
                visit(trial, "shared", 10_000_000 + number * VISITS, VISITS)
                process.report("t", 3, ())
                assert process._process is not None
                memory.append(own_memory(process._process.pid))
                if time.monotonic() > until and number >= FIRST:
                    break
    finally:
        process.close()
    return memory


def own_memory(pid: int) -> float:
    """Memory of a process in MB, but for files that are mapped."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0
