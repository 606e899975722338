"""The open trials of a service, while others erase them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from live_server import A, B
from ranktrial.service.report_process import ReportProcess
from ranktrial.service.trials import Trials
from ranktrial.store import SQLiteStore
from ranktrial.trial import Trial


class Vanishing(dict[int, str]):
    """Names of trials by version, of which the trial is erased once somebody has looked it up."""

    def __contains__(self, version: object) -> bool:
        found = super().__contains__(version)
        self.clear()
        return found


def test_an_event_on_a_trial_that_is_being_erased_is_one_on_no_trial(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", "t", k=3, background=False, timeout=60) as trial:
        shown = trial.rank("q", A, B, unit="u", wait=True)
    with contextlib.closing(SQLiteStore(tmp_path / "t.db")) as store:
        trials = Trials(store, ReportProcess(tmp_path / "t.db"))
        opened = trials.open("t")
        trials._name_of = Vanishing(trials._name_of)
        assert trials.at_hand(shown.id) is opened
        trials._let_go("t")
        trials.open("t")
        gone = trials.opened.pop("t")  # the second half of letting go comes in a moment
        assert trials.at_hand(shown.id) is None
        assert trials.of_impression(shown.id) is None
        gone.close()
        opened.close()
        trials.close()
