"""A trial on live traffic: what to show, what was clicked, and what it says so far.

``rank`` decides what to show by a draw that depends on nothing but its key, queues the impression and returns: it waits for no
commit and no lock that a writer holds. Whatever goes wrong, it returns A's list, says so, and leaves that impression out.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from ranktrial import checks
from ranktrial.arrays import FloatArray
from ranktrial.inference.log import Log
from ranktrial.live import tokens
from ranktrial.live.analysis import Analysis, Fit, analyse, fit_theta
from ranktrial.live.designs import CorruptDesign, Design, make_design, page_of, warm_up
from ranktrial.live.guardrails import SLOW
from ranktrial.live.log_reader import LogReader
from ranktrial.live.reports import make_report
from ranktrial.live.schemas import LATEST_TIME, LONGEST_TEXT, Report, TrialConfig
from ranktrial.live.stores.base import (
    ALL_TRIALS,
    Bias,
    Click,
    Clicks,
    ConfigVersion,
    Impression,
    Overloaded,
    Store,
    Stored,
    StoreError,
    Void,
)
from ranktrial.live.stores.sqlite import SQLiteStore
from ranktrial.methods import Method

T = TypeVar("T")
Ids = Sequence[str | int]
LEAST_THETA = 0.01  # in a design: a rank without clicks so far may get some


class ClickOutcome(StrEnum):
    """What became of a click."""

    COUNTED = "counted"
    WAITING = "waiting"  # for its impression, which is not in the log (yet)
    LATER_PAGE = "later page"
    LATE = "late"
    FALLBACK = "fallback"
    VOID = "void"
    NOT_SHOWN = "not shown"
    NOT_OURS = "not ours"

    @property
    def refused(self) -> bool:
        return self in (ClickOutcome.NOT_SHOWN, ClickOutcome.NOT_OURS)


@dataclass(frozen=True, slots=True)
class Shown:
    """What to show.

    Attributes:
        ranking: Document ids, from the top (of the page asked for).
        id: To be sent back with clicks.
        fallback: Why this is A's list instead of a draw, or None.
        stored: Done when the impression is on the disk; fails when it could not be stored.
    """

    ranking: list[str]
    id: str
    fallback: str | None
    stored: Stored = field(repr=False)
    _impression: Impression | None = field(repr=False, default=None)


class Clicked(NamedTuple):
    """What became of a click, when it is on the disk, and the rank from 0 of its document if it stood in the top k."""

    outcome: ClickOutcome
    stored: Stored
    rank: int | None = None


class Voided(Exception):  # noqa: N818 (reads as what it says)
    """This impression was shown as A's list before."""


DONE = Stored.already()


class Trial:
    """A comparison of two rankers on live traffic. Made by ``create`` or ``open``.

    Args:
        store: Where it is kept.
        name: Which of the store's trials.
        version: Number of the configuration's version, the latest by default.
        background: Look every second for what other processes did, and refit position bias when it is due.
        timeout: Seconds that ``rank(wait=True)`` waits for the disk before it shows A's list.
        clock: Seconds since 1970.
        cache_size: Designs, and impressions, kept in memory.
        own_store: Close the store with the trial, as where ``create`` or ``open`` made it from a path.
    """

    def __init__(
        self,
        store: Store,
        name: str | None = None,
        *,
        version: int | None = None,
        background: bool = True,
        timeout: float = 0.25,
        clock: Callable[[], float] = time.time,
        cache_size: int = 10_000,
        own_store: bool = False,
    ) -> None:
        self.store = store
        self.name, self._secret, self._stopped = store.trial(name)
        self._versions = {one.id: TrialConfig.model_validate_json(one.config) for one in store.versions(self.name)}
        self._version = _pick(store.versions(self.name), version, self.name)
        self.config = self._versions[self._version.id]
        self._plain = self.config.plain
        self._clock, self._timeout = clock, timeout
        self._latest = 0
        self._lock = threading.Lock()
        self._recent: OrderedDict[bytes, tuple[Impression, Stored]] = OrderedDict()
        self._cache_size, self._own_store = cache_size, own_store
        self._voided: OrderedDict[bytes, str] = OrderedDict()
        self._designs: OrderedDict[bytes, Design] = OrderedDict()
        self._nanoseconds: deque[int] = deque(maxlen=10_000)
        self._readers: dict[int, LogReader] = {}
        self._reading = threading.Lock()
        self._analyses: dict[int, tuple[Log, Bias | None, Analysis]] = {}
        self._seen = (0, 0)  # impressions of this version, and the row up to which they are counted
        self._bias = self._latest_bias()
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
        **options: Any,
    ) -> Self:
        """A new trial; the one that exists if it has this configuration; a new version of it if it has another.

        ``options`` are those of ``TrialConfig`` and of ``Trial``.
        """
        own = {option: options.pop(option) for option in list(options) if option not in TrialConfig.model_fields}
        config = TrialConfig.model_validate({"method": method, "k": k, **options})
        text = config.model_dump_json()
        if TrialConfig.model_validate_json(text) != config:
            raise ValueError(f"this configuration cannot be stored: {text}")
        place = SQLiteStore(store) if isinstance(store, str | Path) else store
        try:
            secret = os.urandom(32) if config.seed is None else blake2b(str(config.seed).encode()).digest()[:32]
            place.add_trial(name, secret)
            while (latest := _latest(place, name)) is None or TrialConfig.model_validate_json(latest.config) != config:
                place.add_version(name, latest.number + 1 if latest else 1, text)
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
        if not Path(store).exists():
            raise StoreError(
                f"{store} does not exist: a trial is made by Trial.create or by PUT /v1/trials/NAME of a service"
            )
        place = SQLiteStore(store)
        try:
            return cls(place, name, **{"own_store": True, **options})
        except BaseException:
            place.close()
            raise

    @property
    def version(self) -> int:
        return self._version.number

    @property
    def stopped(self) -> bool:
        return self._stopped

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

        The same unit, query and lists give the same answer, so a retry repeats it and a later page continues it.

        Args:
            unit: Who (or what) the draw belongs to; without one every call is a draw of its own.
            offset: First result of the page.
            size: Results on it, all by default.
            wait: Until the impression is on the disk; A's list is shown if that takes too long or fails.
            look: Whether the store has this impression already. Without looking it is quicker, if one waits before showing
                anything; callers that wait for ``stored`` themselves must call once more, and look, if it is ``again``.
        """
        start = time.perf_counter_ns()
        try:
            shown = self._rank(query, a, b, unit, offset, size, look)
        except Exception as fault:
            shown = self._fallback(a, offset, size, _reason(fault))
        took = time.perf_counter_ns() - start
        self._nanoseconds.append(took)
        if took > 5_000_000:
            self._tally(SLOW)
        if wait and shown.fallback is None:
            try:
                shown.stored.result(self._timeout)
            except Exception as fault:
                return self.fall_back(shown, a, offset=offset, size=size, reason=_reason(fault))
            if shown.stored.again:
                again = self.rank(query, a, b, unit, offset=offset, size=size, wait=True)
                if again.fallback is not None:
                    self.take_back(shown, again.fallback)
                return again
        return shown

    def _rank(self, query: str, a: Ids, b: Ids, unit: str | None, offset: int, size: int | None, look: bool) -> Shown:
        if self._stopped:
            return self._fallback(a, offset, size, "the trial is stopped")
        if type(query) is not str or not (unit is None or type(unit) is str):
            raise TypeError(f"query {query!r} and unit {unit!r} must be text")
        if not all(type(number) is int and number >= 0 for number in (offset, 0 if size is None else size)):
            raise TypeError(f"offset {offset!r} and size {size!r} must be whole numbers, at least 0")
        ranked_a, ranked_b = _ids("a", a), _ids("b", b)
        if not ranked_a and not ranked_b:
            return Shown([], self._token(0, tokens.FALLBACK), None, DONE)
        who, k, version = unit or uuid.uuid4().hex, self.config.k, self._version.id
        key = tokens.impression_key(self._secret, version, who, query, tokens.lists_digest(ranked_a[:k], ranked_b[:k]))
        # Without a unit it cannot have been there before.
        recorded = self._recorded(key, look and bool(unit))
        impression, stored = recorded or self._draw(key, query, ranked_a, ranked_b, who, look or not unit)
        page = page_of(impression.design.top(impression.place), ranked_a, ranked_b, k, offset, size)
        return Shown(page, self._token(impression.time // 1_000_000, key), None, stored, impression)

    def _recorded(self, key: bytes, look: bool = True) -> tuple[Impression, Stored] | None:
        """The impression as it was shown before, in this process or, if one may look, in any other."""
        with self._lock:
            known, void = self._recent.get(key), self._voided.get(key)
        if void is not None:
            raise Voided(void)
        if known is not None and not known[1].again:
            impression, stored = known
            if stored.failed:
                return self._remember(impression, self.store.put(impression))
            return known
        found = self.store.impression(key) if look else None
        if found is None:
            return None
        if (reason := self.store.void(key)) is not None:
            raise Voided(reason)
        return self._remember(found, DONE)

    def _draw(
        self, key: bytes, query: str, a: list[str], b: list[str], unit: str, looked: bool
    ) -> tuple[Impression, Stored]:
        version = self._version.id
        design = self._design(query, a, b)
        place = design.row(tokens.draw(self._secret, version, unit, query))
        number = tokens.unit_number(self._secret, unit)
        impression = Impression(key, version, design, place, number, self._now(), looked)
        return self._remember(impression, self.store.put(impression))

    def _design(self, query: str, a: list[str], b: list[str]) -> Design:
        bias = self._bias
        key = blake2b(repr((bias.id, query, a, b)).encode(), digest_size=16).digest()
        with self._lock:
            design = self._designs.get(key)
        if design is None:
            theta = np.maximum(bias.theta, LEAST_THETA)
            design = make_design(query, a, b, theta, bias=bias.id, floor=self.config.floor, plain=self._plain)
            self._keep(self._designs, key, design)
        return design

    def _remember(self, impression: Impression, stored: Stored) -> tuple[Impression, Stored]:
        self._keep(self._recent, impression.key, (impression, stored))
        return impression, stored

    def _keep(self, where: OrderedDict[bytes, T], key: bytes, value: T) -> None:
        with self._lock:
            where[key] = value
            if len(where) > self._cache_size:
                where.popitem(last=False)

    def _now(self) -> int:
        """Microseconds that never go back, whatever the clock does."""
        now = int(self._clock() * 1e6)
        with self._lock:
            backwards, self._latest = now < self._latest, max(now, self._latest)
            now = self._latest
        if backwards:
            self._tally("clock went backwards")
        return now

    def _token(self, second: int, key: bytes) -> str:
        return tokens.Token(self._version.id, second, key).sign(self._secret)

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
        self.take_back(shown, reason)
        return self._fallback(a, offset, size, reason)

    def take_back(self, shown: Shown, reason: str) -> None:
        """What was drawn is not shown: it leaves the log."""
        drawn = shown._impression
        if drawn is None:
            return
        with self._lock:
            self._recent.pop(drawn.key, None)
        if not shown.stored.cancel() and not shown.stored.failed:
            self._keep(self._voided, drawn.key, reason)  # until the store knows
            try:
                void = self.store.put(Void(drawn.key, self._version.id, reason, drawn.time))
                void.add_done_callback(lambda done: None if done.failed else self._voided.pop(drawn.key, None))
            except Exception:
                self._tally("not taken back")

    def _fallback(self, a: Ids, offset: int, size: int | None, reason: str) -> Shown:
        """Must not fail, whatever is wrong."""
        self._tally(f"fallback: {reason}")
        try:
            ranking = [] if isinstance(a, str | bytes) else [d if type(d) is str else str(d) for d in a]
            begin = offset if isinstance(offset, int) and offset > 0 else 0
            end = begin + size if isinstance(size, int) and size >= 0 else None
            page = list(dict.fromkeys(ranking))[begin:end]
        except Exception:
            page = []
        return Shown(page, self._token(0, tokens.FALLBACK), reason, DONE)

    def _tally(self, name: str) -> None:
        try:
            self.store.tally(self._version.id, name)
        except Exception:
            return  # counting what went wrong must not be what breaks the page

    # --- clicks -------------------------------------------------------------------------------------------------------

    def click(self, id: str, document: str, *, time: float | None = None, wait: bool = True) -> Clicked:
        """A click on a document of an impression: as often, as late and in any order as they come.

        Returns when it is on the disk (unless ``wait=False``: then ``stored`` tells), and raises if it could not be stored.
        """
        outcome, row, rank = self._judge(id, document, time)
        clicked = Clicked(outcome, DONE if row is None else self.store.put(row), rank)
        if wait:
            clicked.stored.result()
        return clicked

    def clicks(self, many: Iterable[tuple[str, str, float | None]]) -> list[Clicked]:
        """Many clicks (id, document, time) at once, without waiting: those of a version are stored together."""
        judged = [self._judge(id, document, time) for id, document, time in many]
        rows: dict[int, list[Click]] = {}
        for _, row, _ in judged:
            if row is not None:
                rows.setdefault(row.version, []).append(row)
        stored = {version: self.store.put(Clicks(version, tuple(some))) for version, some in rows.items()}
        return [Clicked(outcome, DONE if row is None else stored[row.version], rank) for outcome, row, rank in judged]

    def _judge(self, id: str, document: str, time: float | None) -> tuple[ClickOutcome, Click | None, int | None]:
        """What becomes of a click, the row to store if any, and the rank that it is on."""
        token = tokens.read_token(id, self._secret)
        if token is None or token.version not in self._versions:
            self._tally("clicks with an id that is not ours")
            return ClickOutcome.NOT_OURS, None, None
        if token.key == tokens.FALLBACK:
            self._tally("clicks on fallbacks")
            return ClickOutcome.FALLBACK, None, None
        name = document if type(document) is str else str(document)
        if len(name) > LONGEST_TEXT:
            self._tally("clicks on what was not shown")
            return ClickOutcome.NOT_SHOWN, None, None
        when = self._clock() if time is None else checks.number("time", time)
        if when > LATEST_TIME:
            raise ValueError(f"time is {when!r}, must be in seconds since 1970, not in milliseconds")
        late = when >= token.second + 1 + self._versions[token.version].click_window
        outcome, rank = self._outcome(token.key, name, late)
        return outcome, Click(token.key, token.version, name, late), rank

    def _outcome(self, key: bytes, document: str, late: bool) -> tuple[ClickOutcome, int | None]:
        """As far as can be told now; what counts is decided from the whole log."""
        try:
            found = self._recorded(key)
        except (CorruptDesign, Voided):
            return ClickOutcome.VOID, None
        except Exception:
            return ClickOutcome.WAITING, None
        if found is None:
            return ClickOutcome.WAITING, None
        rank = found[0].design.rank_of(found[0].place, document)
        if rank is None:
            return ClickOutcome.NOT_SHOWN, None
        if rank < 0:
            return ClickOutcome.LATER_PAGE, None
        return (ClickOutcome.LATE if late else ClickOutcome.COUNTED), rank

    # --- reading ------------------------------------------------------------------------------------------------------

    def log(self, version: int | None = None) -> Log:
        """What has been stored of a version, in the order of time."""
        one = self._version if version is None else _pick(self.store.versions(self.name), version, self.name)
        with self._reading:
            reader = self._readers.setdefault(one.id, LogReader(self.store, one.id, self._versions[one.id].k))
            try:
                return reader.read()
            except BaseException:
                del self._readers[one.id]
                raise

    def report(self) -> Report:
        """What the trial says so far, from everything that is stored."""
        self.store.flush(60.0)
        versions = [one for one in self.store.versions(self.name) if one.number <= self._version.number]
        analyses = {one: self._analysis(one) for one in versions}
        tallies = self.store.tallies(self._version.id) + self.store.tallies(ALL_TRIALS)
        return make_report(self.name, analyses, tallies, self._stopped, tuple(self._nanoseconds))

    def _analysis(self, version: ConfigVersion) -> Analysis:
        """The last one again if nothing has been added to the log since."""
        log, config = self.log(version.number), self._versions[version.id]
        biases = self.store.biases(version.id)
        bias = biases[-1] if biases else None
        known = self._analyses.get(version.id)
        if known is None or known[0] is not log or known[1] != bias:
            theta = config.first_theta if bias is None else np.array(bias.theta)
            known = log, bias, analyse(log, config, theta, bias is not None and bias.fitted)
            self._analyses[version.id] = known
        return known[2]

    def update(self) -> Bias:
        """Refit position bias to all clicks so far and refresh the design with it; the old one stays if they cannot tell."""
        self.store.flush(60.0)
        return self._update(None)

    def _update(self, at: int | None) -> Bias:
        old = self._bias
        if self.config.refit:
            log = self.log()
            fit, impressions = fit_theta(log, self.config), len(log)
        else:
            fit, impressions = Fit.refused("position bias is taken as known"), self.store.count(self._version.id, 0)[0]
        impressions = impressions if at is None else at
        theta = old.theta if fit.theta is None else tuple(fit.theta.tolist())
        text = " ".join(value.hex() for value in theta)
        self.store.add_bias(self._version.id, impressions, text, old.fitted or fit.theta is not None, fit.note)
        self._bias = self._latest_bias()
        return self._bias

    def _latest_bias(self) -> Bias:
        known = self.store.biases(self._version.id)
        if not known:
            first: FloatArray = self.config.first_theta
            text = " ".join(value.hex() for value in first.tolist())
            self.store.add_bias(self._version.id, 0, text, False, "assumed at the start")
            known = self.store.biases(self._version.id)
        return known[-1]

    def stop(self) -> None:
        """End the trial for all processes: ``rank`` returns A's list from now on; clicks on what was shown still count."""
        self.store.stop(self.name)
        self._stopped = True

    # --- in the background ----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closing.wait(1.0):
            try:
                self.refresh()
            except Exception:
                self._tally("background failures")

    def refresh(self) -> None:
        """Take over what other processes did, and refit position bias if that is due."""
        self._stopped = self.store.trial(self.name)[2]
        self._bias = self._latest_bias()
        new, row = self.store.count(self._version.id, self._seen[1])
        self._seen = self._seen[0] + new, row
        due = [point for point in self.config.schedule if self._bias.impressions < point <= self._seen[0]]
        if due and not self._stopped:
            self._update(due[-1])

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


def _ids(name: str, ranked: Ids) -> list[str]:
    """Ids as text, each at its first place."""
    if isinstance(ranked, str | bytes):
        raise TypeError(f"{name} is {ranked!r}, must be a list of ids")
    unique = list(dict.fromkeys(ranked))
    kinds = set(map(type, unique))
    if kinds - {str, int}:
        raise TypeError(f"{name} holds {', '.join(kind.__name__ for kind in kinds)}, must hold text ids")
    ids: list[str] = unique if kinds <= {str} else list(dict.fromkeys(map(str, unique)))  # type: ignore[assignment]
    "".join(ids).encode()  # raises where text is not valid Unicode, which could not be stored
    return ids


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


def _reason(fault: BaseException) -> str:
    """In a few words, the same for faults of one kind."""
    match fault:
        case TimeoutError():
            return "the store did not answer in time"
        case Overloaded():
            return "the store is overloaded"
        case CorruptDesign():
            return "a stored design is damaged"
        case Voided():
            return "shown as A before"
        case TypeError() | ValueError():
            return "bad input"
    return f"{type(fault).__name__}"
