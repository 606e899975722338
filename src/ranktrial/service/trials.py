"""The trials that the service serves: all of its store, opened when first asked for, and again when they get a new version."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Literal

from pydantic import BaseModel

from ranktrial.config import TrialConfig
from ranktrial.report.making import QUERY_UNITS
from ranktrial.report.schema import Report
from ranktrial.service.api_keys import Scope
from ranktrial.service.gauges import Watched
from ranktrial.service.problems import Flaw, Refusal
from ranktrial.service.report_process import ReportProcess
from ranktrial.service.shared import Shared
from ranktrial.store.base import Erased, StoreError
from ranktrial.store.protocols import Store
from ranktrial.times import LATEST
from ranktrial.tokens import version_of
from ranktrial.trial.history import new_entry
from ranktrial.trial.supervisor import LOOK_EVERY, SHARE_OF_TIME, unsettled
from ranktrial.trial.trial import Trial
from ranktrial.trial.versions import VersionConflict, current_version, make_trial, pick_version, storable
from ranktrial.trial.webhooks import Webhook


class NotAtHand(LookupError):  # noqa: N818 (reads as what it says)
    """Error for an impression id that cannot be resolved without a blocking read."""


class TrialInfo(BaseModel):
    """A trial as it is now: the current version of its configuration.

    Attributes:
        name: Of the trial.
        version: Number of the current version.
        config: Its configuration.
        stopped: Whether the trial has ended.
        shows: Ranker whose list everybody gets since then; null while it runs.
    """

    name: str
    version: int
    config: TrialConfig
    stopped: bool
    shows: Literal["A", "B"] | None = None


class TrialList(BaseModel):
    """All trials of the store, and what whoever asks may do with them."""

    trials: list[TrialInfo]
    scopes: list[Scope] = []


class Trials:
    """Open trials by name and by version; usable from any thread.

    Args:
        store: Where they are.
        reports: What makes their reports and refits.
        query_units: How many units must have asked a query before a report names it.
        webhooks: Receivers of messages about them.

    Attributes:
        opened: The open trials by name.
    """

    def __init__(
        self,
        store: Store,
        reports: ReportProcess,
        query_units: int = QUERY_UNITS,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        self.store, self._process, self._query_units, self._webhooks = store, reports, query_units, tuple(webhooks)
        self._watched: dict[str, Watched] = {}
        self._settled = set[str]()  # trials that are stopped, with nothing to tell
        self.opened: dict[str, Trial] = {}
        self._name_of: dict[int, str] = {}  # of each version that an open trial knows
        self._reports: dict[tuple[str, int | None], Shared[Report]] = {}
        self._lock = threading.RLock()

    def open(self, name: str) -> Trial:
        """The trial of this name, opened if need be; may have to wait for the store."""
        with self._lock:
            return self.opened.get(name) or self._reopen(name)

    def _reopen(self, name: str) -> Trial:
        """Open a trial as the store has it now. What still uses the old object may go on: rows go to the same store."""
        versions = self.store.trials.versions(name)
        if not versions:
            raise Refusal(404, f"there is no trial {name!r}")
        old = self.opened.get(name)
        new = Trial.open(self.store, name, learner=self._process, compile=False, webhooks=self._webhooks)
        self.opened[name] = new
        self._name_of.update({version.id: name for version in versions})
        if old is not None:
            threading.Thread(target=_close, args=(old,), daemon=True).start()  # may have to wait for a refit
        return new

    def at_hand(self, id: str) -> Trial | None:
        """The trial that an impression's id claims to come from; raises NotAtHand where only the store can tell which it is, or
        what it showed, and the store is not quick.
        """
        version = version_of(id)
        if version is None:
            return None
        name = self._name_of.get(version)
        if name is None:
            raise NotAtHand
        trial = self.opened.get(name)
        if trial is not None and not self.store.quick and not trial.judge.remembers(id):  # None: erased just now
            raise NotAtHand
        return trial

    def of_impression(self, id: str) -> Trial | None:
        """The trial that an impression's id claims to come from, whichever process made it; may have to wait for the store."""
        version = version_of(id)
        if version is None:
            return None
        name = self._name_of.get(version)
        if name is not None:
            return self.opened.get(name)  # None: erased just now
        name = self.store.trials.of_version(version)
        if name is None:
            return None
        with self._lock:
            return self.opened[name] if version in self._name_of else self._reopen(name)

    def refresh(self) -> None:
        """Take over versions that other processes made, let go of trials that they erased, and open all that run, which are
        looked after while they are open.
        """
        for name in self.store.trials.names():
            if name not in self.opened and self._needs_care(name):
                with contextlib.suppress(Refusal):  # it has no version yet
                    self.open(name)
        for name, trial in list(self.opened.items()):
            versions = self.store.trials.versions(name)
            if not versions:
                self._let_go(name)
            elif current_version(versions).id != trial.state.version.id:
                with self._lock:
                    self._reopen(name)

    def _needs_care(self, name: str) -> bool:
        """True for a trial that runs, and for one that is stopped, if there is something left to tell about it."""
        if name in self._settled:
            return False
        if not self.store.trials.find(name).stopped or (self._webhooks and unsettled(self.store, name, time.time())):
            return True
        self._settled.add(name)
        return False

    def _let_go(self, name: str) -> None:
        with self._lock:
            self._name_of = {version: of for version, of in self._name_of.items() if of != name}
            self._reports = {wanted: made for wanted, made in self._reports.items() if wanted[0] != name}
            self._watched.pop(name, None)
            gone = self.opened.pop(name, None)
        if gone is not None:
            threading.Thread(target=_close, args=(gone,), daemon=True).start()  # may have to wait for a refit

    def erase(self, name: str) -> Erased:
        """Erase a trial that is stopped, with all that is stored of it."""
        with self._lock:
            if not self.open(name).store.trials.find(name).stopped:
                raise Refusal(409, f"trial {name!r} is running: stop it first")
            self.store.flush(60.0)
            erased = self.store.eraser.erase_trial(name)
            self._let_go(name)
        return erased

    def create(self, name: str, config: TrialConfig, who: str, *, new_version: bool) -> tuple[TrialInfo, bool]:
        """The trial in this configuration, and whether a version was made for it; ``who`` is for its history."""
        with self._lock:
            before = self.store.trials.versions(name)
            entry = partial(new_entry, time.time, who=who)
            try:
                make_trial(self.store, name, storable(config), entry, new_version=new_version)
            except VersionConflict as conflict:
                raise _refused(conflict, name) from conflict
            after = self.store.trials.versions(name)
            if after != before:
                self._reopen(name)
        return self.info(name), len(after) > len(before)

    def info(self, name: str) -> TrialInfo:
        """One trial as it is now."""
        now, row = current_version(self.store.trials.versions(name)), self.store.trials.find(name)
        config = TrialConfig.stored(now.config)
        return TrialInfo(name=name, version=now.number, config=config, stopped=row.stopped, shows=row.shows)

    def all(self) -> TrialList:
        """All trials as they are now."""
        names = [name for name in self.store.trials.names() if self.store.trials.versions(name)]
        return TrialList(trials=[self.info(name) for name in names])

    async def report(self, name: str, version: int | None = None) -> Report:
        """The report on a version of a trial, the current one by default. One at a time is made for each: however many ask,
        each waits for at most two.
        """
        if name not in self.opened:  # a name that does not exist is refused, and then leaves nothing here
            await asyncio.to_thread(self.open, name)
        if version is not None:
            await asyncio.to_thread(self._check_version, name, version)
        wanted = name, version
        return await self._reports.setdefault(wanted, Shared(lambda: self._report(*wanted))).get()

    def _check_version(self, name: str, version: int) -> None:
        try:
            pick_version(self.store.trials.versions(name), version, name)
        except StoreError as problem:
            raise Refusal(404, str(problem)) from problem

    async def _report(self, name: str, version: int | None) -> Report:
        await asyncio.to_thread(self.store.flush, 60.0)
        trial = self.opened.get(name)
        latencies = () if trial is None or version not in (None, trial.version) else tuple(trial.showing.nanoseconds)
        return await asyncio.wrap_future(self._process.begin_report(name, self._query_units, latencies, version))

    def watched(self) -> dict[str, Watched]:
        """All open trials, as their gauges show them."""
        found = {}
        for name, trial in list(self.opened.items()):
            found[name] = watched = self._watched.setdefault(name, Watched(trial))
            watched.trial = trial  # the one that is open now
        return found

    def measure(self) -> None:
        """Bring the gauges up to date for those who ask next: on the event loop, without waiting for the store or a report."""
        for name, watched in self.watched().items():
            if watched.task is None or watched.task.done():
                watched.task = asyncio.create_task(self._look(name, watched))

    async def _look(self, name: str, watched: Watched) -> None:
        stopped = watched.trial.stopped
        with contextlib.suppress(Exception):  # whoever asks for the report itself is told
            watched.waiting = len(await asyncio.to_thread(self.store.outbox.messages, name, due=int(LATEST * 1e6)))
            if time.monotonic() < watched.next_report or (stopped and watched.report is not None):
                return
            start = time.monotonic()
            try:
                watched.report = await self.report(name)
            finally:
                now = time.monotonic()
                watched.next_report = now + max(LOOK_EVERY, SHARE_OF_TIME * (now - start))

    def close(self) -> None:
        """Close what is open."""
        for trial in list(self.opened.values()):
            trial.stop_watching()
        self._process.close()  # a trial may be waiting for a refit
        with self._lock:
            for trial in self.opened.values():
                _close(trial)
            self.opened.clear()


def _refused(conflict: VersionConflict, name: str) -> Refusal:
    """409: which options differ, and how to ask for a new version."""
    flaws = [Flaw(where=option, problem=change) for option, change in conflict.changes.items()]
    remedy = ": choose another name"
    if conflict.can_ask:
        remedy = f". To begin a new version, with nothing in it, ask for it: PUT /v1/trials/{name}?new-version=true"
    return Refusal(409, conflict.problem + remedy, errors=flaws)


def _close(trial: Trial) -> None:
    with contextlib.suppress(StoreError):  # the store was closed meanwhile, or takes nothing: whoever waits was told
        trial.close()
