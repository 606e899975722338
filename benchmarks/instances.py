"""Three instances of the service on one PostgreSQL, load on all: each is killed (-9) ten times, the database restarted twice.

Every answer is compared with what is stored afterwards. ``INSTANCES_PAUSE`` sets the mean seconds between two of these events.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks._timing import row

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import instances
from postgres_server import Server

PAUSE = float(os.environ.get("INSTANCES_PAUSE", "1"))


def run() -> list[dict[str, object]]:
    server = Server(durable=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = instances.run(
                server, Path(folder), instances=3, kills=10, restarts=2, visitors=12, pause=PAUSE, seed=1
            )
    finally:
        server.remove()
    p50, p99 = np.percentile(done.answers, [50, 99]) * 1e3
    return [
        row("instances killed", done.kills, "30", ""),
        row("restarts of the database", done.restarts, "2", ""),
        row("acknowledged impressions", done.impressions, "-", ""),
        row("acknowledged clicks, most of them sent several times", done.clicks, "-", ""),
        row("requests sent again, elsewhere", done.sent_again, "-", ""),
        row("A's list shown because of a fault", done.fallbacks, "-", ""),
        row("refits of position bias, by whichever instance", done.refits, "-", ""),
        row("acknowledged and lost", done.lost, "0", ""),
        row("counted twice", done.twice, "0", ""),
        row("counted though A's list was shown instead", done.unexpected, "0", ""),
        row("report of a replay in SQLite is the same to the last bit", int(done.same_report), "1", ""),
        row(f"longest answer of rank (p50 {p50:.1f} ms, p99 {p99:.1f} ms)", max(done.answers) * 1e3, "-", "ms"),
    ]
