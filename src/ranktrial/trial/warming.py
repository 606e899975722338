"""Compiled loops of a trial, ahead of the first request: taken from Numba's cache, or compiled into it.

``python -m ranktrial.trial.warming drawing`` compiles what ``rank`` needs, and ``reports`` what fits and reports need. A
service that finds nothing compiled runs both beside itself, and shows A's lists until the first is done.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ranktrial._kernels import watching_compilations
from ranktrial.seeds import generator
from ranktrial.trial.drawing import warm_up
from ranktrial.trial.trial import Trial

PARTS = ("drawing", "reports")
VISITORS, QUERIES, K = 400, 4, 3  # enough for every reading of a log to be made


class NotCompiled(Exception):  # noqa: N818 (reads as what it says)
    """A loop is not in the cache."""


def load() -> bool:
    """Take the loops of ``rank`` from the cache; False, and nothing is compiled, if one of them is not there."""

    def refuse(loop: str) -> None:
        raise NotCompiled(loop)

    try:
        with watching_compilations(refuse):
            warm_up()
    except NotCompiled:
        return False
    return True


def compile_part(part: str) -> None:
    """Compile what ``rank`` needs, or what fits and reports need, by doing it once."""
    if part == "drawing":
        warm_up()
        return
    random = generator(1)
    with (
        tempfile.TemporaryDirectory(prefix="ranktrial-warm-") as folder,
        Trial.create(Path(folder) / "trial.db", k=K, seed=1, background=False) as trial,
    ):
        for visitor in range(VISITORS):
            query = visitor % QUERIES
            a = [f"{query}-{document}" for document in range(K + 2)]
            shown = trial.rank(f"query {query}", a, a[1:] + a[:1], unit=f"visitor {visitor}")
            for rank, document in enumerate(shown.ranking[:K]):
                if random.random() < 0.6 / (1 + rank):
                    trial.click(shown.id, document, wait=False)
        trial.update()
        trial.report()


if __name__ == "__main__":
    compile_part(sys.argv[1])
