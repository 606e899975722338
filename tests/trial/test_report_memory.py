"""Memory of reports: what one report has read is let go of by the next, without waiting for the garbage collector."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

from ranktrial.trial import Trial
from simulated_trial import Ticks

A, B = ["a", "b", "c", "d"], ["c", "e", "a"]


def test_a_log_is_let_go_of_with_its_report(tmp_path: Path) -> None:
    logs: list[weakref.ref[Any]] = []
    with Trial.create(tmp_path / "t.db", k=3, seed=5, background=False, timeout=60.0, clock=Ticks()) as trial:
        gc.collect()
        gc.disable()
        try:
            for number in range(6):
                for visitor in range(20):
                    shown = trial.rank(f"q{visitor % 3}", A, B, unit=f"u {number} {visitor}", wait=True)
                    trial.click(shown.id, shown.ranking[visitor % 3])
                trial.report()
                (analysed,) = trial.learning._found.values()
                logs.append(weakref.ref(analysed.analysis.log))
                del analysed
            alive = [log() is not None for log in logs]
        finally:
            gc.enable()
    assert alive == [False] * 5 + [True]
