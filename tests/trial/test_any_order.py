"""Any multiset and order of rank, click, update and restart gives the report of the sorted log, bit for bit, in any store."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from clocks import Clock
from ranktrial.trial import ClickOutcome, Shown, Trial
from store.kinds import KINDS, available
from store.replay import replay

LISTS = {
    "red shoes": (["s1", "s2", "s3", "s4"], ["s2", "s5", "s1"]),
    "hats": (["h1", "h2"], ["h2", "h1", "h3", "h4"]),
    "socks": (["x"], ["x"]),
    "nothing": ([], ["n1", "n2", "n3"]),
}
USERS = [f"user {i}" for i in range(6)]
CONFIG: dict[str, Any] = {"k": 3, "seed": 4, "background": False, "timeout": 60.0, "method": "LogOpt(schedule=(3, 9))"}


def told(trial: Trial) -> dict[str, object]:
    """The report but for how quick this process was."""
    report = trial.report().to_dict()
    report["guardrails"] = [one for one in report["guardrails"] if one["name"] != "latency"]
    del report["text"]["trust"]  # which names the worst check that warns, and that may be latency
    return report


class AnyOrder(RuleBasedStateMachine):
    """Two processes' worth of trials on one store; clicks may come before, after, twice, late, and to the other one."""

    kind = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "sorted").mkdir()
        self.place = KINDS[self.kind](self.folder)
        self.clock = Clock()
        own: dict[str, Any] = {"clock": self.clock, "own_store": True, **CONFIG}
        self.trials = [Trial.create(self.place.open(), **own) for _ in range(2)]
        # A trial of the same secret elsewhere: what it shows becomes known here only later, or never.
        self.elsewhere = Trial.create(self.folder / "else.db", clock=self.clock, **CONFIG)
        self.shown: dict[tuple[str, str], Shown] = {}
        self.later_views: dict[tuple[str, str], Shown] = {}
        self.counted: set[tuple[str, str]] = set()

    @rule(user=st.sampled_from(USERS), query=st.sampled_from(sorted(LISTS)), which=st.integers(0, 1))
    def rank(self, user: str, query: str, which: int) -> None:
        a, b = LISTS[query]
        shown = self.trials[which].rank(query, a, b, unit=user, wait=True)
        assert shown.fallback is None
        known = self.shown.get((user, query))
        if known is not None:
            assert known.ranking == shown.ranking
            if shown.id != known.id:
                self.later_views[user, query] = shown
        self.shown.setdefault((user, query), shown)

    @precondition(lambda self: self.shown)
    @rule(data=st.data(), which=st.integers(0, 1), late=st.booleans())
    def click(self, data: st.DataObject, which: int, late: bool) -> None:
        user, query = data.draw(st.sampled_from(sorted(self.shown)))
        shown = self.shown[user, query]
        document = data.draw(st.sampled_from([*LISTS[query][0], *LISTS[query][1], "no such thing"]))
        time = self.clock.now + (200_000 if late else 0)
        outcome = self.trials[which].click(shown.id, document, time=time).outcome
        assert shown._impression is not None
        recorded = self.trials[which].showing.impressions.recorded(shown._impression.key)
        assert recorded is not None
        on_page = document in recorded[0].design.top(recorded[0].place)
        if document == "no such thing":
            assert outcome == ClickOutcome.NOT_SHOWN
        elif on_page:
            assert outcome == (ClickOutcome.LATE if late else ClickOutcome.COUNTED)
            if not late:
                self.counted.add((shown.id, document))
        else:
            assert outcome == ClickOutcome.LATER_PAGE

    @precondition(lambda self: self.later_views)
    @rule(data=st.data(), which=st.integers(0, 1))
    def click_on_a_later_view(self, data: st.DataObject, which: int) -> None:
        shown = self.later_views[data.draw(st.sampled_from(sorted(self.later_views)))]
        assert self.trials[which].click(shown.id, shown.ranking[0]).outcome == ClickOutcome.LATER_VIEW

    @rule(user=st.sampled_from(USERS), query=st.sampled_from(sorted(LISTS)), which=st.integers(0, 1))
    def click_on_what_is_not_known_yet(self, user: str, query: str, which: int) -> None:
        a, b = LISTS[query]
        if (user, query) in self.shown or self.trials[which].state.policy.bias.impressions:
            return
        shown = self.elsewhere.rank(query, a, b, unit=user)
        assert shown._impression is not None
        if not shown.ranking:  # the plain list of a ranker that has none
            return
        outcome = self.trials[which].click(shown.id, shown.ranking[0]).outcome
        assert outcome in (ClickOutcome.WAITING, ClickOutcome.LATER_VIEW)  # asked for again later, elsewhere

    @rule(which=st.integers(0, 1))
    def update(self, which: int) -> None:
        self.trials[which].update()

    @rule(which=st.integers(0, 1))
    def refresh(self, which: int) -> None:
        self.trials[which].watcher.step()

    @rule(which=st.integers(0, 1))
    def restart(self, which: int) -> None:
        self.trials[which].close()
        options: dict[str, Any] = {"clock": self.clock, "own_store": True, "background": False, "timeout": 60.0}
        self.trials[which] = Trial.open(self.place.open(), **options)

    @rule(seconds=st.sampled_from([*range(-5, 6), 40]))
    def time_passes(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule(which=st.integers(0, 1))
    def read(self, which: int) -> None:
        """Reading part of the log must not change what the whole says."""
        self.trials[which].report()

    def teardown(self) -> None:
        for trial in self.trials:
            trial.store.flush()  # what each has tallied
        reports = [told(trial) for trial in self.trials]
        for kind in available():  # the same log in a store of the same kind, and in another
            with contextlib.closing(KINDS[kind](self.folder / "sorted").open()) as copy:
                replay(self.trials[0].store, copy)
                reports.append(told(Trial.open(copy, background=False, clock=self.clock)))
        for trial in (*self.trials, self.elsewhere):
            trial.close()
        shutil.rmtree(self.folder)
        expected = reports[-1]
        assert all(report == expected for report in reports)
        assert expected["impressions"] == len(self.shown)
        assert isinstance(expected["clicks"], int)
        assert expected["clicks"] >= len(self.counted)


class AnyOrderInPostgres(AnyOrder):
    """Any order on a store in PostgreSQL."""

    kind = "postgres"


TestAnyOrder = AnyOrder.TestCase
TestAnyOrderInPostgres = AnyOrderInPostgres.TestCase
TestAnyOrder.settings = settings(max_examples=25, stateful_step_count=30, deadline=None, derandomize=True)
TestAnyOrderInPostgres.settings = settings(TestAnyOrder.settings, max_examples=10)
