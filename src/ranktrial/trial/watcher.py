"""Watcher of a trial: every second takes over what other processes did, and refits position bias when that is due."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from ranktrial.report.making import QUERY_UNITS
from ranktrial.report.schema import Report
from ranktrial.store.base import Bias, ConfigVersion
from ranktrial.store.protocols import Store
from ranktrial.trial.clicks import ClickJudge
from ranktrial.trial.history import SCHEDULE
from ranktrial.trial.learning import Learner
from ranktrial.trial.showing import Showing
from ranktrial.trial.state import TrialState

log = logging.getLogger("ranktrial.trial")


class Watcher:
    """Renews what a process knows of a trial that it has open.

    Args:
        store: Where the trial is.
        state: What this process knows of it.
        showing: Its answers,
        judge: and the judge of its clicks, which forget what was erased.
        learner: Refits position bias, and makes reports.
    """

    def __init__(self, store: Store, state: TrialState, showing: Showing, judge: ClickJudge, learner: Learner) -> None:
        self._store, self._state, self._showing, self._judge, self._learner = store, state, showing, judge, learner

    def step(self) -> None:
        """Take over what other processes did, and refit position bias if that is due."""
        state = self._state
        if state.name not in self._store.trials.names():  # erased
            state.shows = state.shows or "A"
            return
        state.shows = self._store.trials.find(state.name).shows
        state.read_configs()
        self.forget_erased()
        state.read_beliefs()
        state.count_searches()
        due = self.due()
        if due is not None and state.shows is None:
            self.update(due, SCHEDULE)

    def failed(self, problem: Exception) -> None:
        """Log and count a step that failed."""
        log.error("the trial could not be looked after", exc_info=problem)
        self._showing.impressions.count("background failures")

    def due(self) -> int | None:
        """The last point of the schedule that has been passed since position bias was fitted, if there is one."""
        known, seen = self._state.policy.bias.impressions, self._state.seen.impressions
        passed = [point for point in self._state.config.comparison.traits.learns_at if known < point <= seen]
        return passed[-1] if passed else None

    def update(self, at: int | None, who: str) -> Bias:
        """Refit position bias, as due after ``at`` searches (now if None), and draw with it."""
        self._learner.learn(self._state.name, self._state.version.number, at, who)
        return self._state.read_beliefs()

    def report(self, version: ConfigVersion) -> Report | None:
        """The report on the version that runs, None if that is not the one that is open here."""
        if version.id != self._state.version.id:
            return None
        durations = tuple(self._showing.nanoseconds)
        return self._learner.report(self._state.name, QUERY_UNITS, durations, version.number)

    def forget_erased(self) -> None:
        """Show nothing from memory that was erased from the store, by whichever process."""
        if self._state.read_erasures():
            self._showing.forget()
            self._judge.forget()


class BackgroundTask(Protocol):
    """Task that has a step to take every second."""

    def step(self) -> None: ...
    def failed(self, problem: Exception) -> None: ...


def every_second(task: BackgroundTask, closing: threading.Event) -> threading.Thread:
    """Thread that takes a step every second, whatever goes wrong, until a trial is closed."""

    def run() -> None:
        while not closing.wait(1.0):
            try:
                task.step()
            except Exception as problem:
                if closing.is_set():  # a refit ends with the service, and is due again when it starts
                    return
                task.failed(problem)

    return threading.Thread(target=run, name=f"ranktrial-{type(task).__name__.lower()}", daemon=True)
