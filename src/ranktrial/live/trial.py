"""The trial on live traffic: shows, takes clicks, refits position bias, and says what it knows so far.

What is shown is drawn in ``drawing``, clicks are judged in ``clicks``; here they meet the store, the log and the report.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from ranktrial import checks
from ranktrial.inference import LeftOut, Log, apply_rules, evidence
from ranktrial.inference.impressions import Impressions
from ranktrial.live import tokens
from ranktrial.live.analysis import MOST_LEARNT, Analysis, analyse, with_few_designs
from ranktrial.live.clicks import Clicked, ClickJudge, SeenOutcome
from ranktrial.live.designs import warm_up
from ranktrial.live.drawing import DONE, Draws, Ids, Shown, Steps, wait_in_thread
from ranktrial.live.history import SCHEDULE, entry_of, excluded_units, history_of, this_user
from ranktrial.live.known import Known
from ranktrial.live.log_reader import LogReader
from ranktrial.live.reports import QUERY_UNITS, make_report, readings_agree
from ranktrial.live.schemas import HistoryEntry, Report, TrialConfig
from ranktrial.live.stored_log import StoredLog
from ranktrial.live.stores import open_store
from ranktrial.live.stores.base import (
    ALL_TRIALS,
    Bias,
    Click,
    Clicks,
    ConfigVersion,
    Entry,
    Erased,
    Store,
    StoreError,
)
from ranktrial.methods import Method
from ranktrial.times import LATEST, Time, seconds

OPTIONS = (
    "background",
    "compile",
    "timeout",
    "clock",
    "cache_size",
    "own_store",
)  # that ``create`` hands on to the trial


class Learner(Protocol):
    """What refits a trial's position bias elsewhere, and has put it into the store when it returns."""

    def learn(self, trial: str, version: int, at: int | None, who: str) -> None: ...


class _Analysed(NamedTuple):
    """The analysis of a version, what it was made from, and what rules and exclusions left out with the analysis of all."""

    log: StoredLog
    bias: Bias | None
    excluded: frozenset[int]
    analysis: Analysis
    whole: tuple[LeftOut, Analysis] | None

    @property
    def logs(self) -> tuple[Impressions, Impressions | None]:
        """That were analysed: without what was left out and, if anything was, with it."""
        return self.analysis.log, None if self.whole is None else self.whole[1].log

    def release(self) -> None:
        """Let go of what the next analysis can make again."""
        for log in (self.log, *self.logs):
            if log is not None:
                log.release()


class Trial:
    """A comparison of two rankers on live traffic, made by ``create`` or ``open``.

    Args:
        store: Where it is kept.
        name: Which of the store's trials.
        version: Number of the configuration's version, the latest by default.
        background: Look every second for what other processes did, and refit position bias when it is due.
        compile: What ``rank`` needs, if it is not yet; without, A's list is shown until somebody has called ``warm_up``.
        timeout: Seconds that ``rank(wait=True)`` waits for the disk before it shows A's list.
        clock: Seconds since 1970.
        cache_size: Designs, and impressions, kept in memory.
        own_store: Close the store with the trial, as where ``create`` or ``open`` made it from a path.
        learner: What refits position bias instead of this process.

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
    Too early to say after 1 impression and 1 click.
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
    ) -> None:
        _check_options(timeout=timeout, clock=clock, cache_size=cache_size)
        self.store = store
        row = store.trial(name)
        self.name = row.name
        self._configs = {one.id: TrialConfig.stored(one.config) for one in store.versions(self.name)}
        self._version = _pick(store.versions(self.name), version, self.name)
        self.config = self._configs[self._version.id]
        self._timeout, self._own_store, self._clock, self._learner = timeout, own_store, clock, learner
        latest = self._latest_bias()
        self._draws = Draws(
            store,
            self._version.id,
            self.config,
            secret=row.secret,
            bias=latest,
            known=Known.from_bytes(store.effects(latest.id)),
            stopped=row.stopped,
            clock=clock,
            cache_size=cache_size,
        )
        self._judge = ClickJudge(self._draws, self._configs, clock)
        self._readers: dict[int, LogReader] = {}
        self._reading = threading.Lock()
        self._analysing = threading.RLock()  # logs that follow each other share what they know of units
        self._analyses: dict[int, _Analysed] = {}
        self._erasures = store.erasures(self.name)  # that what is in memory knows of
        self._seen = (0, 0)  # impressions of this version, and the row up to which they are counted
        if compile:
            warm_up()
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="ranktrial-watcher", daemon=True)
        if background:
            self._watcher.start()

    @classmethod
    def create(
        cls,
        store: str | Path | Store,
        name: str = "trial",
        *,
        method: str | Method = "LogOpt()",
        k: int = 10,
        who: str | None = None,
        **options: Any,
    ) -> Self:
        """A new trial; the one that exists if it has this configuration; a new version of it if it has another.

        Nothing is written before everything has been checked. Other names for A and B, where some are given, are put in place
        of those there are: they make no version.

        Args:
            store: A SQLite file, made if it does not exist, or a store.
            name: The trial's name, one of several in the store.
            method: As an object, or as it is written.
            k: Results that count: the first page.
            who: Whom the history names for what is new or changed; by default the user of this process.
            options: Those of ``TrialConfig``, and ``background``, ``compile``, ``timeout``, ``clock``, ``cache_size`` and
                ``own_store`` of ``Trial``.
        """
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}, must be text")
        own = {option: options.pop(option) for option in list(options) if option not in TrialConfig.model_fields}
        for option in own:
            if option not in OPTIONS:
                known = ", ".join(sorted({*TrialConfig.model_fields, *OPTIONS}))
                raise TypeError(f"{option} is not an option of Trial.create, which has {known}")
        _check_options(**own)
        config = TrialConfig.model_validate({"method": method, "k": k, **options})
        text = config.to_store()
        if TrialConfig.model_validate_json(text) != config:
            raise ValueError(f"this configuration cannot be stored: {text}")
        clock, author = own.get("clock", time.time), this_user() if who is None else who

        def entry(what: str, detail: str) -> Entry:
            return Entry(_moment(clock), what, who=author, detail=detail)

        place = open_store(store) if isinstance(store, str | Path) else store
        try:
            secret = os.urandom(32) if config.seed is None else blake2b(str(config.seed).encode()).digest()[:32]
            place.add_trial(name, secret)
            if (before := _latest(place, name)) is not None and "names" not in config.model_fields_set:
                config = config.model_copy(update={"names": TrialConfig.stored(before.config).names})
            while (latest := _latest(place, name)) is None or not config.same_but_for_names(
                TrialConfig.stored(latest.config)
            ):
                number = latest.number + 1 if latest else 1
                detail = f"{number}: {config.method}, k={config.k}"
                place.add_version(name, number, config.to_store(), entry("version", detail))
            stored = TrialConfig.stored(latest.config)
            if stored.names != config.names:
                renamed = stored.model_copy(update={"names": config.names})
                detail = f"to {' and '.join(renamed.labels)}"
                place.rename(name, latest.number, renamed.to_store(), entry("renamed", detail))
            return cls(place, name, **{"version": latest.number, "own_store": place is not store, **own})
        except BaseException:
            if place is not store:
                place.close()
            raise

    @classmethod
    def open(cls, store: str | Path | Store, name: str | None = None, **options: Any) -> Self:
        """A trial that exists, in its latest version unless ``version=`` names another."""
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
        return self._version.number

    @property
    def version_id(self) -> int:
        """Id of that version, unique in the store."""
        return self._version.id

    @property
    def stopped(self) -> bool:
        """Whether it has ended, as far as this process knows."""
        return self._draws.stopped

    # --- showing ------------------------------------------------------------------------------------------------------

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
    ) -> Shown:
        """What to show for a query, given both rankers' lists of ids; never raises.

        The same unit, query and lists give the same ranking, so a retry repeats it and a later page continues it. Asked for
        again later than ``view_window`` it is another view, with an id of its own: clicks on that do not count.

        Args:
            query: What was searched for.
            a: Ids of A's results, from the top: text or whole numbers.
            b: Ids of B's results.
            unit: Who (or what) the draw belongs to; without one every call is a draw of its own.
            offset: First result of the page.
            size: Results on it, all by default.
            wait: Until the impression is on the disk; A's list is shown if that takes too long or fails.
            look: Whether the store has this impression already. Without looking it is quicker, if one waits before showing
                anything; callers that wait for ``stored`` themselves must call once more, and look, if it is ``again``.
        """
        if wait:
            return wait_in_thread(self._draws.steps(query, a, b, unit, offset, size, look), self._timeout)
        return self._draws.rank(query, a, b, unit, offset, size, look)

    def rank_steps(
        self,
        query: str,
        a: Ids,
        b: Ids,
        unit: str | None = None,
        *,
        offset: int = 0,
        size: int | None = None,
        look: bool = True,
    ) -> Steps:
        """``rank(wait=True)`` for callers that wait in their own way, such as an event loop: a generator that returns it.

        It yields what must be on the disk first: wait for that, and throw in what went wrong.
        """
        return self._draws.steps(query, a, b, unit, offset, size, look)

    def fall_back(
        self,
        shown: Shown,
        a: Ids,
        *,
        offset: int = 0,
        size: int | None = None,
        reason: str = "not stored in time",
    ) -> Shown:
        """A's list instead of what was drawn, now taken out of the log; for callers that wait for ``stored`` themselves."""
        return self._draws.fall_back(shown, a, offset, size, reason)

    def take_back(self, shown: Shown, reason: str) -> None:
        """Take what was drawn out of the log: it is not shown."""
        self._draws.take_back(shown, reason)

    def remembers(self, id: str) -> bool:
        """Whether a click on the impression of this id can be judged without a look into the store."""
        return self._draws.remembers(id)

    @property
    def latencies(self) -> tuple[int, ...]:
        """What the last calls of ``rank`` took, in nanoseconds."""
        return tuple(self._draws.nanoseconds)

    # --- clicks -------------------------------------------------------------------------------------------------------

    def click(
        self, id: str, document: str, *, time: Time | None = None, position: int | None = None, wait: bool = True
    ) -> Clicked:
        """Take a click on a document of an impression: as often, as late and in any order as they come.

        Returns when it is on the disk (unless ``wait=False``: then ``stored`` tells), and raises if it could not be stored.

        Args:
            id: Of the impression, from ``Shown.id``.
            document: Id of the document.
            time: Seconds since 1970, or a date and time (UTC unless it says otherwise); now by default.
            position: Where the visitor saw it, from 1: compared with the drawn rank, and used for nothing else.
            wait: Until it is on the disk.
        """
        outcome, row, rank = self._judge.judge(id, document, time, position)
        clicked = Clicked(outcome, DONE if row is None else self.store.put(row), rank)
        if wait:
            clicked.stored.result()
        return clicked

    def clicks(self, many: Iterable[tuple[str, str, Time | None, int | None]]) -> list[Clicked]:
        """Take many clicks (id, document, time, position) at once, without waiting: those of a version are stored together."""
        judged = [self._judge.judge(*click) for click in many]
        rows: dict[int, list[Click]] = {}
        for _, row, _ in judged:
            if row is not None:
                rows.setdefault(row.version, []).append(row)
        stored = {version: self.store.put(Clicks(version, tuple(some))) for version, some in rows.items()}
        return [Clicked(outcome, DONE if row is None else stored[row.version], rank) for outcome, row, rank in judged]

    def seen(self, id: str, documents: Sequence[str]) -> SeenOutcome:
        """Compare what a page really displayed with what was drawn for it.

        The report tells how many pages were not as drawn. Ranks from k on, which count for nothing, are not compared.

        Args:
            id: Of the impression, from ``Shown.id``.
            documents: Ids of the results of the first page as they were displayed, from the top; no more than were looked at.
        """
        return self._judge.seen(id, documents)

    # --- reading ------------------------------------------------------------------------------------------------------

    def log(self, version: int | None = None) -> Log:
        """The log of a version, this one by default: what has been stored so far, in the order of time."""
        return self._read(version).whole()

    def _read(self, version: int | None) -> StoredLog:
        one = self._version if version is None else _pick(self.store.versions(self.name), version, self.name)
        with self._reading:
            self._forget_erased()
            if one.id not in self._readers:
                config = self._configs[one.id]
                plain = any(config.comparison.plain_shares)
                self._readers[one.id] = LogReader(self.store, one.id, config.k, plain=plain)
            try:
                return self._readers[one.id].read()
            except BaseException:
                del self._readers[one.id]
                raise

    def report(self, *, query_units: int = QUERY_UNITS, latencies: Sequence[int] | None = None) -> Report:
        """What the trial says so far, from everything that is stored.

        Args:
            query_units: How many units must have asked a query before the report names it.
            latencies: What recent calls of ``rank`` took, in nanoseconds; those of this object by default.
        """
        checks.whole("query_units", query_units, 0, sys.maxsize)
        self.store.flush(60.0)
        versions = [one for one in self.store.versions(self.name) if one.number <= self._version.number]
        with self._analysing:
            analysed = {one: self._analysed(one) for one in versions}
            report = make_report(
                self.name,
                {one: each.analysis for one, each in analysed.items()},
                self.store.tallies(self._version.id) + self.store.tallies(ALL_TRIALS),
                self.store.trial(self.name).stopped,
                self.latencies if latencies is None else latencies,
                analysed[versions[-1]].whole,
                self.history(),
                query_units,
            )
            for each in analysed.values():
                each.release()
            return report

    def _analysed(self, version: ConfigVersion) -> _Analysed:
        """The analysis of a version; the last one again if nothing has changed since."""
        log, config = self._read(version.number), TrialConfig.stored(version.config)
        biases = self.store.biases(version.id)
        bias, excluded = biases[-1] if biases else None, excluded_units(self.store, self.name)
        known = self._analyses.pop(version.id, None)
        if known is None or known.log is not log or (known.bias, known.excluded) != (bias, excluded):
            before, with_all = (None, None) if known is None else known.logs
            known = None  # what was found is let go of before it is found anew
            beliefs = config.first_beliefs if bias is None else bias.beliefs
            everything = log
            for earlier in (before, with_all):
                if earlier is not None and log.goes_on(earlier):
                    everything = log.following(earlier)
            kept, left_out = apply_rules(everything, config.rules, excluded)
            analysis = analyse(kept.following(before) if left_out and before is not None else kept, config, beliefs)
            # Of earlier versions only the result is told, without what was left out.
            whole = None
            if left_out and version.id == self._version.id:
                whole = left_out, analyse(everything, config, beliefs)
            known = _Analysed(log, bias, excluded, analysis, whole)
        elif known.analysis.config != config:  # other names
            renamed = replace(known.analysis, config=config)
            whole = known.whole and (known.whole[0], replace(known.whole[1], config=config))
            known = known._replace(analysis=renamed, whole=whole)
        self._analyses[version.id] = known
        return known

    # --- units that are left out ------------------------------------------------------------------------------------------

    def exclude(self, unit: str, reason: str, *, who: str | None = None) -> HistoryEntry:
        """Leave a unit out of everything that is analysed from now on, in all versions; ``include`` takes that back.

        Its impressions stay in the store, and reports tell the result with them too. Nothing that decides about it may look at
        which ranker gains.

        Args:
            unit: By the name it has in ``rank``, or as a report names it: ``#`` and 16 digits.
            reason: Kept in the history, which every report shows.
            who: Whom the history names for it; by default the user of this process.
        """
        return self._add_history("excluded", unit, reason, who)

    def include(self, unit: str, reason: str, *, who: str | None = None) -> HistoryEntry:
        """Take a unit back in that was excluded."""
        return self._add_history("included", unit, reason, who)

    def history(self) -> list[HistoryEntry]:
        """Who changed what, when and why: versions, names, refits, units that were excluded or included, what was erased, the
        end; in the order of time.
        """
        return history_of(self.store, self.name)

    def _add_history(self, what: str, unit: str, reason: str, who: str | None) -> HistoryEntry:
        _check_texts(unit=unit, reason=reason)
        number = tokens.named_unit(self._draws.secret, unit)
        self.store.add_history(self.name, *self._entry(what, who, unit=number, reason=reason))
        return entry_of(self.store.history(self.name)[-1])

    def _entry(self, what: str, who: str | None, **more: Any) -> Entry:
        return Entry(_moment(self._clock), what, who=this_user() if who is None else who, **more)

    # --- what is erased -----------------------------------------------------------------------------------------------------

    def erase(
        self, reason: str, *, unit: str | None = None, before: Time | None = None, who: str | None = None
    ) -> Erased:
        """Delete a unit's impressions, or all from before a time, with their clicks, in all versions; this cannot be undone.

        Reports are then of what is left, as if the rest had never been; the history tells how much was erased, not whose.
        Nothing that decides about it may look at which ranker gains.

        Args:
            reason: Kept in the history, which every report shows.
            unit: By the name it has in ``rank``, or as a report names it: ``#`` and 16 digits.
            before: Seconds since 1970, or a date and time (UTC unless it says otherwise); must have passed.
            who: Whom the history names for it; by default the user of this process.
        """
        now, number = self._clock(), None
        _check_texts(reason=reason)
        if (unit is None) == (before is None):
            raise ValueError("what is erased is either a unit or all from before a time: one of the two must be given")
        if unit is not None:
            _check_texts(unit=unit)
            number = tokens.named_unit(self._draws.secret, unit)
        cut = None if before is None else int(checks.between("before", seconds("before", before), 0, now) * 1e6)
        self.store.flush(60.0)
        named = this_user() if who is None else who
        erased = self.store.erase(self.name, int(now * 1e6), reason, unit=number, before=cut, who=named)
        with self._reading:
            self._forget_erased()
        return erased

    def _forget_erased(self) -> None:
        """Keep nothing in memory that was erased from the store, by whichever process."""
        erasures = self.store.erasures(self.name)
        if erasures != self._erasures:
            self._erasures, self._seen = erasures, (0, 0)
            self._readers.clear()
            self._analyses.clear()
            self._draws.forget()

    # --- learning -----------------------------------------------------------------------------------------------------------

    def update(self, *, who: str | None = None) -> Bias:
        """Refit position bias to all clicks so far and refresh the design with it; the old one stays if they cannot tell."""
        self.store.flush(60.0)
        return self._update(None, who)

    def _update(self, at: int | None, who: str | None = SCHEDULE) -> Bias:
        if self._learner is None or not self.config.comparison.adapts:
            return self.learn(at, who)
        self._learner.learn(self.name, self.version, at, this_user() if who is None else who)
        return self._take_over()

    def learn(self, at: int | None, who: str | None = SCHEDULE) -> Bias:
        """``update`` in this process, of what is stored, as due after ``at`` impressions (now if None)."""
        before, method = self._take_over(), self.config.comparison
        beliefs, known = before.beliefs, Known()
        if method.adapts:
            with self._analysing:
                analysed = self._analysed(self._version)
                seen, agree = analysed.analysis.log, readings_agree(analysed.analysis)
                n = len(seen)
                few = with_few_designs(lambda rows: seen.designs_of(slice(n - rows.stop, n))[::-1], n, MOST_LEARNT)
                log = seen.last(few).whole()
                told = evidence(log, agree=agree, gain=analysed.analysis.gain, impressions=n)
                beliefs = method.learn(told, beliefs)
                analysed.release()
                effects = beliefs.effects
                if effects is not None:
                    known = Known.of(log.queries, log.documents, log.document_query, effects)
                impressions = len(analysed.log)
        else:
            impressions = self.store.count(self._version.id, 0).impressions
        at = impressions if at is None else at
        entry = self._entry(
            "updated", who, detail=f"position bias of version {self.version} from {impressions:,} impressions"
        )
        self.store.add_bias(self._version.id, at, beliefs, before.id, known.to_bytes(), (self.name, entry))
        return self._take_over()

    def _take_over(self) -> Bias:
        """Draw with the latest beliefs, whichever process has learnt them."""
        latest = self._latest_bias()
        if latest.id != self._draws.bias.id:
            self._draws.believe(latest, Known.from_bytes(self.store.effects(latest.id)))
        return latest

    def _latest_bias(self) -> Bias:
        known = self.store.biases(self._version.id)
        if not known:
            self.store.add_bias(self._version.id, 0, self.config.first_beliefs, 0)
            known = self.store.biases(self._version.id)
        return known[-1]

    def stop(self, reason: str = "", *, who: str | None = None) -> None:
        """End the trial for all processes: ``rank`` returns A's list from now on; clicks on what was shown still count.

        Args:
            reason: Kept in the history, which every report shows.
            who: Whom the history names for it; by default the user of this process.
        """
        self.store.stop(self.name, self._entry("stopped", who, reason=reason))
        self._draws.stopped = True

    # --- in the background ----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closing.wait(1.0):
            try:
                self.refresh()
            except Exception:
                self._draws.tally("background failures")

    def refresh(self) -> None:
        """Take over what other processes did, and refit position bias if that is due."""
        if self.name not in self.store.trial_names():  # erased
            self._draws.stopped = True
            return
        self._draws.stopped = self.store.trial(self.name).stopped
        with self._reading:
            self._forget_erased()
        self._take_over()
        new, row = self.store.count(self._version.id, self._seen[1])
        self._seen = self._seen[0] + new, row
        due = self._due()
        if due is not None and not self.stopped:
            self._update(due)

    def _due(self) -> int | None:
        """The last point of the schedule that has been passed since position bias was fitted, if there is one."""
        due = [
            point for point in self.config.comparison.learns_at if self._draws.bias.impressions < point <= self._seen[0]
        ]
        return due[-1] if due else None

    def close(self) -> None:
        """Write what is queued and let go of the store, which is closed unless it was given to the trial."""
        self._closing.set()
        if self._watcher.is_alive() and self._watcher is not threading.current_thread():
            self._watcher.join()
        if self._own_store:
            self.store.close()
        else:
            self.store.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Trial({self.name!r}, version {self.version}, {self.config.method}, k={self.config.k})"


def _moment(clock: Callable[[], float]) -> int:
    """Microseconds since 1970 for the history; by the system where a clock makes no sense."""
    now = clock()
    return int((now if 0 <= now < LATEST else time.time()) * 1e6)


def _check_options(*, timeout: float = 0, clock: object = time.time, cache_size: int = 0, **_: object) -> None:
    """Refuse what would otherwise make every call fall back, or wait for ever."""
    checks.between("timeout", timeout, 0, threading.TIMEOUT_MAX)
    checks.whole("cache_size", cache_size, 0, sys.maxsize)
    if not callable(clock):
        raise TypeError(f"clock is {clock!r}, must be a function that returns seconds since 1970")


def _check_texts(**texts: object) -> None:
    for name, text in texts.items():
        if type(text) is not str or not text:
            raise ValueError(f"{name} is {text!r}, must be text, and not empty")


def _latest(store: Store, name: str) -> ConfigVersion | None:
    versions = store.versions(name)
    return versions[-1] if versions else None


def _pick(versions: list[ConfigVersion], number: int | None, name: str) -> ConfigVersion:
    if number is None:
        return versions[-1]
    for one in versions:
        if one.number == number:
            return one
    raise StoreError(f"trial {name!r} has no version {number}, it has {', '.join(str(v.number) for v in versions)}")
