"""The trials that the service serves: all of its store, opened when first asked for, and again when they get a new version."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from pydantic import BaseModel

from ranktrial.live.api_keys import Scope
from ranktrial.live.report_process import ReportProcess
from ranktrial.live.reports import QUERY_UNITS
from ranktrial.live.schemas import Report, TrialConfig
from ranktrial.live.service.asynchronous import Shared
from ranktrial.live.service.problems import Refusal
from ranktrial.live.stores.base import Erased, Store, StoreError
from ranktrial.live.tokens import version_of
from ranktrial.live.trial import Trial


class NotAtHand(LookupError):  # noqa: N818 (reads as what it says)
    """What an impression's id belongs to cannot be told without waiting."""


class TrialInfo(BaseModel):
    """A trial as it is now: the latest version of its configuration."""

    name: str
    version: int
    config: TrialConfig
    stopped: bool


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
    """

    def __init__(self, store: Store, reports: ReportProcess, query_units: int = QUERY_UNITS) -> None:
        self.store, self._process, self._query_units = store, reports, query_units
        self._open: dict[str, Trial] = {}
        self._name_of: dict[int, str] = {}  # of each version that an open trial knows
        self._reports: dict[str, Shared[Report]] = {}
        self._lock = threading.RLock()

    def opened(self, name: str) -> Trial | None:
        """The open trial of this name, None if it is not open (yet); waits for nothing."""
        return self._open.get(name)

    def open(self, name: str) -> Trial:
        """The trial of this name, opened if need be; may have to wait for the store."""
        with self._lock:
            return self._open.get(name) or self._reopen(name)

    def _reopen(self, name: str) -> Trial:
        """Open a trial as the store has it now. What still uses the old object may go on: rows go to the same store."""
        versions = self.store.versions(name)
        if not versions:
            raise Refusal(404, f"there is no trial {name!r}")
        old, new = self._open.get(name), Trial.open(self.store, name, learner=self._process, compile=False)
        self._open[name] = new
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
        trial = self._open.get(name)
        if trial is None:  # erased just now
            return None
        if not self.store.quick and not trial.remembers(id):
            raise NotAtHand
        return trial

    def of_impression(self, id: str) -> Trial | None:
        """The trial that an impression's id claims to come from, whichever process made it; may have to wait for the store."""
        version = version_of(id)
        if version is None:
            return None
        name = self._name_of.get(version)
        if name is not None:
            return self._open[name]
        name = self.store.trial_of_version(version)
        if name is None:
            return None
        with self._lock:
            return self._open[name] if version in self._name_of else self._reopen(name)

    def refresh(self) -> None:
        """Take over versions that other processes made, and let go of trials that they erased."""
        for name, trial in list(self._open.items()):
            versions = self.store.versions(name)
            if not versions:
                self._let_go(name)
            elif versions[-1].id != trial.version_id:
                with self._lock:
                    self._reopen(name)

    def _let_go(self, name: str) -> None:
        with self._lock:
            self._name_of = {version: of for version, of in self._name_of.items() if of != name}
            self._reports.pop(name, None)
            gone = self._open.pop(name, None)
        if gone is not None:
            threading.Thread(target=_close, args=(gone,), daemon=True).start()  # may have to wait for a refit

    def erase(self, name: str) -> Erased:
        """Erase a trial that is stopped, with all that is stored of it."""
        with self._lock:
            if not self.open(name).store.trial(name).stopped:
                raise Refusal(409, f"trial {name!r} is running: stop it first")
            self.store.flush(60.0)
            erased = self.store.erase_trial(name)
            self._let_go(name)
        return erased

    def create(self, name: str, config: TrialConfig, who: str) -> tuple[TrialInfo, bool]:
        """The trial in this configuration, and whether that is new; ``who`` is for its history."""
        with self._lock:
            before = self.info(name) if self.store.versions(name) else None
            same = before is not None and config.same_but_for_names(before.config)
            if before is not None and before.stopped and not same:
                raise Refusal(409, f"trial {name!r} is stopped and gets no new version: choose another name")
            if before is None or before.config != config:
                asked = {option: getattr(config, option) for option in config.model_fields_set}
                Trial.create(self.store, name, background=False, compile=False, who=who, **asked).close()
                self._reopen(name)
            after = self.info(name)
        return after, before is None or before.version != after.version

    def info(self, name: str) -> TrialInfo:
        """One trial as it is now."""
        latest = self.store.versions(name)[-1]
        config = TrialConfig.stored(latest.config)
        return TrialInfo(name=name, version=latest.number, config=config, stopped=self.store.trial(name).stopped)

    def all(self) -> TrialList:
        """All trials as they are now."""
        names = [name for name in self.store.trial_names() if self.store.versions(name)]
        return TrialList(trials=[self.info(name) for name in names])

    async def report(self, name: str) -> Report:
        """The report of a trial. One at a time is made for each: however many ask, each waits for at most two."""
        if self.opened(name) is None:
            await asyncio.to_thread(
                self.open, name
            )  # refuses a name that does not exist, which then leaves nothing here
        return await self._reports.setdefault(name, Shared(lambda: self._report(name))).get()

    async def _report(self, name: str) -> Report:
        await asyncio.to_thread(self.store.flush, 60.0)
        trial = self.opened(name)
        made = self._process.report(name, self._query_units, () if trial is None else trial.latencies)
        return await asyncio.wrap_future(made)

    def close(self) -> None:
        """Close what is open."""
        self._process.close()  # first: a trial may be waiting for a refit
        with self._lock:
            for trial in self._open.values():
                _close(trial)
            self._open.clear()


def _close(trial: Trial) -> None:
    with contextlib.suppress(StoreError):  # the store was closed meanwhile, or takes nothing: whoever waits was told
        trial.close()
