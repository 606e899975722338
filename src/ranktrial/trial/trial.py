"""Trial on live traffic, as users call it.

What draws, judges clicks, learns and looks after a trial is a part in a file of its own, which a service calls directly.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from ranktrial import checks, notebook, tokens
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.methods import Method
from ranktrial.report.making import QUERY_UNITS
from ranktrial.report.schema import HistoryEntry, Report
from ranktrial.store import open_store
from ranktrial.store.base import Bias, Erased, StoreError
from ranktrial.store.protocols import Store
from ranktrial.times import Time, seconds
from ranktrial.trial.clicks import Clicked, ClickJudge, SeenOutcome
from ranktrial.trial.drawing import warm_up
from ranktrial.trial.history import entry_of, history_of, new_entry, this_user
from ranktrial.trial.learning import Learner, Learning
from ranktrial.trial.showing import Asked, Ids, Showing, Shown
from ranktrial.trial.state import TrialState
from ranktrial.trial.supervisor import Supervisor
from ranktrial.trial.versions import change_share, make_trial, pick_version, storable
from ranktrial.trial.watcher import Watcher, every_second
from ranktrial.trial.webhooks import Webhook

log = logging.getLogger("ranktrial.trial")

# What ``create`` hands on to the trial.
OPTIONS = ("background", "compile", "timeout", "clock", "cache_size", "own_store", "webhooks")


class Trial:
    """A comparison of two rankers on live traffic, made by ``create`` or ``open``.

    Args:
        store: Where it is kept.
        name: Which of the store's trials.
        version: Number of the configuration's version, the current one by default.
        background: Look every second for what other processes did, refit position bias when it is due, grow the share by its
            ramp, and send messages.
        compile: What ``rank`` needs, if it is not yet; without, A's list is shown until somebody has called ``warm_up``.
        timeout: Seconds that ``rank(wait=True)`` waits for the disk before it shows A's list.
        clock: Seconds since 1970.
        cache_size: Designs, and impressions, kept in memory.
        own_store: Close the store with the trial, as where ``create`` or ``open`` made it from a path.
        learner: What refits position bias and makes reports for messages instead of this process.
        webhooks: Receivers of messages about the trial, from the process among all that looks after it.

    Attributes:
        name: Name of the trial.
        store: Where it is kept.
        state: What this process knows of it.
        showing: Answers to searches.
        judge: Judge of clicks and other events, many at once too.
        learning: Logs, reports and refits, in this process.
        watcher: Takes over what other processes did, every second.
        supervisor: Grows the share, stops the trial and sends messages, where that is due.

    >>> trial = Trial.create("shoes.db", "shoes-v2", method="LogOpt(floor=0.9)", k=3)
    >>> shown = trial.rank("red shoes", a=["sku-1", "sku-2", "sku-3"], b=["sku-3", "sku-1", "sku-4"], unit="session-17")
    >>> again = trial.rank("red shoes", a=["sku-1", "sku-2", "sku-3"], b=["sku-3", "sku-1", "sku-4"], unit="session-17")
    >>> shown.ranking == again.ranking, shown.fallback  # a retry is the same impression
    (True, None)
    >>> trial.click(shown.id, shown.ranking[0]).outcome, trial.click(shown.id, "sku-9").outcome
    (<ClickOutcome.COUNTED: 'counted'>, <ClickOutcome.NOT_SHOWN: 'not shown'>)
    >>> trial.close()
    >>> with Trial.open("shoes.db") as trial:
    ...     print(trial, trial.log(), trial.report().verdict, sep="\\n")
    Trial('shoes-v2', version 1, LogOpt(floor=0.9), k=3)
    Log(impressions=1, clicks=1, queries=1, designs=1, k=3)
    Too early to say after 1 search and 1 click.
    """

    def __init__(
        self,
        store: Store,
        name: str | None = None,
        *,
        version: int | None = None,
        background: bool = True,
        compile: bool = True,
        timeout: float = 0.25,
        clock: Callable[[], float] = time.time,
        cache_size: int = 10_000,
        own_store: bool = False,
        learner: Learner | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        _check_options(timeout=timeout, clock=clock, cache_size=cache_size)
        self.store = store
        self._timeout, self._own_store, self._clock = timeout, own_store, clock
        self.state = state = TrialState(store, name, version)
        self.name = state.name
        self.showing = Showing(store, state, clock, cache_size)
        self.judge = ClickJudge(store, state, self.showing.impressions, clock, cache_size)
        self.learning = Learning(store, clock)
        self.watcher = Watcher(store, state, self.showing, self.judge, learner or self.learning)
        if compile:
            warm_up()
        self._closing = threading.Event()
        self.supervisor = Supervisor(store, self.name, webhooks, clock, self.watcher.report, self._closing)
        self._threads = [every_second(task, self._closing) for task in (self.watcher, self.supervisor)]
        if background:
            self.showing.attributes.traffic  # noqa: B018 (counted now, so that no search has to wait for it)
            for thread in self._threads:
                thread.start()

    @classmethod
    def create(
        cls,
        store: str | Path | Store,
        name: str = "trial",
        *,
        method: str | Method = "LogOpt()",
        k: int = 10,
        new_version: bool = False,
        who: str | None = None,
        **options: Any,
    ) -> Self:
        """Make a trial, or open the one that exists and bring it to this configuration.

        ``method``, ``k``, ``theta``, ``eta``, ``seed``, ``segments`` and ``covariates`` never change in a version: where they
        differ from those of the current one, ``VersionConflict`` is raised unless ``new_version`` asks for a new one, which
        begins with nothing. The values of an earlier version are that version again. All other options change in place, and
        stay as they are where they are not given. Nothing is written before everything has been checked.

        Args:
            store: A SQLite file, made if it does not exist, or a store.
            name: The trial's name, one of several in the store.
            method: As an object, or as it is written.
            k: Results that count: the first page.
            new_version: Make a new version of the trial, where none of its versions shows what this configuration shows.
            who: Author recorded in the history; by default the user of this process.
            options: Those of ``TrialConfig``, and ``background``, ``compile``, ``timeout``, ``clock``, ``cache_size``,
                ``own_store`` and ``webhooks`` of ``Trial``.
        """
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}, must be text")
        own = {option: options.pop(option) for option in list(options) if option not in TrialConfig.model_fields}
        for option in own:
            if option not in OPTIONS:
                known = ", ".join(sorted({*TrialConfig.model_fields, *OPTIONS}))
                raise TypeError(f"{option} is not an option of Trial.create, which has {known}")
        _check_options(**own)
        config = storable(TrialConfig.model_validate({"method": method, "k": k, **options}))
        entry = partial(new_entry, own.get("clock", time.time), who=who)
        place = open_store(store) if isinstance(store, str | Path) else store
        try:
            version = make_trial(place, name, config, entry, new_version=new_version)
            return cls(place, name, **{"version": version.number, "own_store": place is not store, **own})
        except BaseException:
            if place is not store:
                place.close()
            raise

    @classmethod
    def open(cls, store: str | Path | Store, name: str | None = None, **options: Any) -> Self:
        """Open a trial that exists, in its current version unless ``version=`` names another."""
        if not isinstance(store, str | Path):
            return cls(store, name, **options)
        place = open_store(store, must_exist=True)
        try:
            return cls(place, name, **{"own_store": True, **options})
        except BaseException:
            place.close()
            raise

    @property
    def version(self) -> int:
        """Number of the version of its configuration."""
        return self.state.version.number

    @property
    def config(self) -> TrialConfig:
        """Configuration of this version, as far as this process knows."""
        return self.state.config

    @property
    def share(self) -> float:
        """Share of units that take part, as far as this process knows."""
        return self.state.config.share

    @property
    def stopped(self) -> bool:
        """True if the trial has ended, as far as this process knows."""
        return self.state.shows is not None

    @property
    def shows(self) -> Literal["A", "B"] | None:
        """Ranker whose list everybody gets since the trial was stopped; None while it runs, as far as this process knows."""
        return self.state.shows

    def rank(
        self,
        query: str,
        a: Ids,
        b: Ids,
        unit: str | None = None,
        *,
        offset: int = 0,
        size: int | None = None,
        wait: bool = False,
        look: bool = True,
        segment: Mapping[str, str | None] | None = None,
        covariates: Mapping[str, float | None] | None = None,
    ) -> Shown:
        """Draw the ranking to show for a query, given both rankers' lists of ids; never raises.

        The same unit, query and lists give the same ranking, so a retry repeats it and a later page continues it. Asked for
        again later than ``view_window`` it is another view, with an id of its own: clicks on that do not count.

        Args:
            query: The search text.
            a: Ids of A's results, from the top: text or whole numbers.
            b: Ids of B's results.
            unit: Id of the visitor (or whatever the draw belongs to); without one every call is a draw of its own.
            offset: First result of the page.
            size: Results on it, all by default.
            wait: Wait until the impression is on the disk; A's list is shown if that takes too long or fails.
            look: Look whether the store has this impression already. Without looking it is quicker, if one waits before showing
                anything; callers that wait for ``stored`` themselves must call once more, and look, if it is ``again``.
            segment: Value of each declared attribute (``TrialConfig.segments``), such as ``{"device": "phone"}``. What is
                missing or not declared is "other", and counted.
            covariates: Numbers known of the visitor before the trial, by the names declared (``TrialConfig.covariates``), such
                as ``{"clicks_last_month": 3}``. A missing one is the mean; what is no number is missing, and counted.
        """
        asked = Asked(query, a, b, unit, offset, size, look, segment, covariates)
        shown = self.showing.show(asked)
        return self.showing.on_disk(asked, shown, self._timeout) if wait else shown

    async def rank_async(
        self,
        query: str,
        a: Ids,
        b: Ids,
        unit: str | None = None,
        *,
        offset: int = 0,
        size: int | None = None,
        segment: Mapping[str, str | None] | None = None,
        covariates: Mapping[str, float | None] | None = None,
        timeout: float | None = None,
    ) -> Shown:
        """``rank(wait=True)`` on an event loop, which has other things to do until the impression is on the disk."""
        asked = Asked(query, a, b, unit, offset, size, False, segment, covariates)
        return await self.showing.show_on_loop(asked, self._timeout if timeout is None else timeout)

    def fall_back(
        self, shown: Shown, a: Ids, *, offset: int = 0, size: int | None = None, reason: str = "not stored in time"
    ) -> Shown:
        """Show A's list instead of the drawn ranking, which leaves the log; for callers that wait for ``stored`` themselves."""
        return self.showing.fall_back(shown, Asked("", a, (), offset=offset, size=size), reason)

    def click(
        self,
        id: str,
        document: str,
        *,
        time: Time | None = None,
        position: int | None = None,
        wait: bool = True,
        public: bool = False,
    ) -> Clicked:
        """Take a click on a document of an impression: as often, as late and in any order as they come.

        Returns when it is on the disk (unless ``wait=False``: then ``stored`` tells), and raises if it could not be stored.

        Args:
            id: Of the impression, from ``Shown.id``.
            document: Id of the document.
            time: Seconds since 1970, or a date and time (UTC unless it says otherwise); now by default.
            position: Where the visitor saw it, from 1: compared with the drawn rank, and used for nothing else.
            wait: Until it is on the disk.
            public: Whether anybody can send it, as a browser without a key: then it makes no check fail.
        """
        if position is not None:
            checks.whole("position", position, 1)
        (clicked,) = self.judge.take([self.judge.click(id, document, time, position, public=public)])
        if wait:
            clicked.stored.result()
        return clicked

    def event(
        self,
        id: str,
        document: str,
        action: str,
        value: float | Decimal | str | None = None,
        *,
        event_id: str | None = None,
        time: Time | None = None,
        wait: bool = True,
        public: bool = False,
    ) -> Clicked:
        """Take an event on a result of an impression, such as an order: as often, as late and in any order as they come.

        Metrics say which actions count and for how long (``TrialConfig.metrics``). A result that was ordered counts whether or
        not a click on it was told. Returns when it is on the disk (unless ``wait=False``), and raises if it could not be
        stored, or if action or value cannot be one.

        Args:
            id: Of the impression, from ``Shown.id``.
            document: Id of the document.
            action: "cart", "order", or any that a metric counts: lower-case letters, digits, ``_`` and ``-``.
            value: Amount, such as ``39.90`` or ``"39.90"``, kept to millionths; negative for what is paid back.
            event_id: Tells events with this action on this result apart: the same again replaces nothing. Without one the
                action counts once on each result. A refund needs one of its own.
            time: Seconds since 1970, or a date and time (UTC unless it says otherwise); now by default.
            wait: Until it is on the disk.
            public: Whether anybody can send it, as a browser without a key.
        """
        (taken,) = self.judge.take([self.judge.event(id, document, action, value, event_id, time, public=public)])
        if wait:
            taken.stored.result()
        return taken

    def seen(self, id: str, documents: Sequence[str], *, public: bool = False) -> SeenOutcome:
        """Compare the documents that a page really displayed with the ranking drawn for it.

        The report tells how many pages were not as drawn. Ranks from k on, which count for nothing, are not compared.

        Args:
            id: Of the impression, from ``Shown.id``.
            documents: Ids of the results of the first page as they were displayed, from the top; no more than were looked at.
            public: Whether anybody can send it, as a browser without a key: then it makes no check fail.
        """
        return self.judge.seen(id, documents, public=public)

    def log(self, version: int | None = None) -> Log:
        """Log of a version, this one by default, with all rows stored so far in the order of time."""
        self.watcher.forget_erased()
        number = self.version if version is None else version
        return self.learning.log(self.name, pick_version(self.store.trials.versions(self.name), number, self.name))

    def report(self, *, version: int | None = None, query_units: int = QUERY_UNITS) -> Report:
        """Report on the trial so far, from everything that is stored.

        Args:
            version: Number of the version that it is about, this one by default.
            query_units: Number of units that must have asked a query before the report names it.
        """
        self.watcher.forget_erased()
        if version in (None, self.version):
            return self.learning.report(self.name, query_units, self.showing.nanoseconds, self.version)
        return self.learning.report(self.name, query_units, version=version)

    def history(self) -> list[HistoryEntry]:
        """History of the trial in the order of time, with author, time and reason of every change.

        Changes are versions, names, refits, exclusions, erasures and the end.
        """
        return history_of(self.store, self.name)

    def update(self, *, who: str | None = None) -> Bias:
        """Refit position bias to all clicks so far and refresh the design with it; the old one stays if they cannot tell."""
        self.store.flush(60.0)
        self.watcher.forget_erased()
        return self.watcher.update(None, this_user() if who is None else who)

    def set_share(self, share: float, reason: str = "", *, who: str | None = None) -> None:
        """Change the share of units that take part, for all processes; everybody else sees A's list, which is not stored.

        A larger share keeps all who took part. A ramp goes on from a share that is one of its stages, and waits at any other.

        Args:
            share: From 0 to 1.
            reason: Kept in the history, which every report shows.
            who: Author recorded in the history; by default the user of this process.
        """
        checks.between("share", share, 0, 1)
        change_share(self.store, self.name, share, partial(new_entry, self._clock, who=who, reason=reason))
        self.state.read_configs()

    def stop(self, reason: str = "", *, show: Literal["A", "B"] | None = None, who: str | None = None) -> None:
        """End the trial for all processes: ``rank`` returns one ranker's list from now on.

        Clicks on what was shown still count.
        Stopped once more with another ``show``, it shows that list from then on.

        Args:
            reason: Kept in the history, which every report shows.
            show: The ranker whose list is shown to everybody from now on: "A" by default.
            who: Author recorded in the history; by default the user of this process.
        """
        if show not in ("A", "B", None):
            raise ValueError(f'show is {show!r}, must be "A" or "B"')
        detail = f"({show or 'A'} is shown from now on)"
        self.store.trials.stop(
            self.name, show, new_entry(self._clock, "stopped", who=who, reason=reason, detail=detail)
        )
        self.state.shows = self.store.trials.find(self.name).shows

    def exclude(self, unit: str, reason: str, *, who: str | None = None) -> HistoryEntry:
        """Leave a unit out of everything that is analysed from now on, in all versions; ``include`` takes that back.

        Its impressions stay in the store, and reports tell the result with them too. Nothing that decides about it may look at
        which ranker gains.

        Args:
            unit: By the name it has in ``rank``, or as a report names it: ``#`` and 16 digits.
            reason: Kept in the history, which every report shows.
            who: Whom the history names for it; by default the user of this process.
        """
        return self._of_unit("excluded", unit, reason, who)

    def include(self, unit: str, reason: str, *, who: str | None = None) -> HistoryEntry:
        """Take a unit back in that was excluded."""
        return self._of_unit("included", unit, reason, who)

    def _of_unit(self, what: str, unit: str, reason: str, who: str | None) -> HistoryEntry:
        _check_texts(unit=unit, reason=reason)
        number = tokens.named_unit(self.state.secret, unit)
        self.store.trials.add_history(self.name, new_entry(self._clock, what, who=who, unit=number, reason=reason))
        return entry_of(self.store.trials.history(self.name)[-1])

    def erase(
        self, reason: str, *, unit: str | None = None, before: Time | None = None, who: str | None = None
    ) -> Erased:
        """Delete a unit's impressions, or all from before a time, in all versions, with their clicks and events.

        This cannot be undone. Reports are then of what is left, as if the rest had never been; the history tells how much was
        erased, not whose. Nothing that decides about it may look at which ranker gains.

        Args:
            reason: Kept in the history, which every report shows.
            unit: By the name it has in ``rank``, or as a report names it: ``#`` and 16 digits.
            before: Seconds since 1970, or a date and time (UTC unless it says otherwise); must have passed.
            who: Whom the history names for it; by default the user of this process.
        """
        now, number = self._clock(), None
        _check_texts(reason=reason)
        if (unit is None) == (before is None):
            raise ValueError("give either a unit or a time before which to erase everything")
        if unit is not None:
            _check_texts(unit=unit)
            number = tokens.named_unit(self.state.secret, unit)
        cut = None if before is None else int(checks.between("before", seconds("before", before), 0, now) * 1e6)
        self.store.flush(60.0)
        named = this_user() if who is None else who
        erased = self.store.eraser.erase(self.name, int(now * 1e6), reason, unit=number, before=cut, who=named)
        self.watcher.forget_erased()
        return erased

    def stop_watching(self) -> None:
        """Tell the threads in the background to end, without waiting for them."""
        self._closing.set()

    def close(self) -> None:
        """Write what is queued and let go of the store, which is closed unless it was given to the trial."""
        self.stop_watching()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()
        with contextlib.suppress(StoreError):  # another process takes over a little later
            self.supervisor.close()
        if self._own_store:
            self.store.close()
        else:
            self.store.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Render how the trial is set up and how far it is, for notebooks."""
        self.store.flush(60.0)
        self.state.count_searches()
        return notebook.of_trial(self)

    def __repr__(self) -> str:
        return f"Trial({self.name!r}, version {self.version}, {self.config.method}, k={self.config.k})"


def _check_options(*, timeout: float = 0, clock: object = time.time, cache_size: int = 0, **_: object) -> None:
    """Refuse what would otherwise make every call fall back, or wait for ever."""
    checks.between("timeout", timeout, 0, threading.TIMEOUT_MAX)
    checks.whole("cache_size", cache_size, 0)
    if not callable(clock):
        raise TypeError(f"clock is {clock!r}, must be a function that returns seconds since 1970")


def _check_texts(**texts: object) -> None:
    for name, text in texts.items():
        if type(text) is not str or not text:
            raise ValueError(f"{name} is {text!r}, must be text, and not empty")
