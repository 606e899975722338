"""Answers to searches: the drawn ranking, the same one again on a retry, A's list whenever something goes wrong.

A draw is queued for the store and returned: nobody waits for a commit or for a lock that a writer holds, unless he wants to
have it on the disk before he shows it (``on_disk``).
"""

from __future__ import annotations

import operator
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from ranktrial import spans, tokens
from ranktrial.config import TrialConfig
from ranktrial.ids import BadId, text_id, text_ids
from ranktrial.log.designs import CorruptDesign, Design
from ranktrial.log.known import Known
from ranktrial.methods import Beliefs, LiveMethod
from ranktrial.store.base import Bias, Impression, StoreError
from ranktrial.store.protocols import Store
from ranktrial.store.stored import DONE, Stored
from ranktrial.store.tallies import LATER_PAGES, OUTSIDE_SHARE, SHOWN_AGAIN, SLOW
from ranktrial.trial import drawing
from ranktrial.trial.attributes import Attributes
from ranktrial.trial.counters import Counters
from ranktrial.trial.drawing import Policy, Search, draw, make_design, page_of
from ranktrial.trial.impressions import Latest, Recorded, SteadyClock, TrialImpressions, Views, Voided

Ids = Iterable[Any]  # text or whole numbers: lists, tuples, arrays of NumPy, series of pandas
NOT_IN_SHARE = "not in the share, A is shown"
LONG = 5_000_000  # nanoseconds


@dataclass(frozen=True, slots=True)
class Shown:
    """Ranking to show for one search, and the id that its clicks are sent with.

    Attributes:
        ranking: Document ids, from the top (of the page asked for).
        id: Id of the impression, to be sent back with clicks.
        fallback: None for a drawn ranking; otherwise the reason why this is the list of one ranker: the chosen one's
            after the trial was stopped, A's in any other case. "not in the share, A is shown" is no fault: this unit takes no
            part in the trial.
        stored: Future that is done when the impression is on the disk, and fails when it could not be stored.
    """

    ranking: list[str]
    id: str
    fallback: str | None
    stored: Stored = field(repr=False)
    _impression: Impression[Design] | None = field(repr=False, default=None)


class Asked(NamedTuple):
    """Search that a ranking is asked for; ``Trial.rank`` describes its parameters."""

    query: str
    a: Ids
    b: Ids
    unit: str | None = None
    offset: int = 0
    size: int | None = None
    look: bool = True
    segment: Mapping[str, str | None] | None = None
    covariates: Mapping[str, float | None] | None = None


class Showing:
    """The answers of one version of a trial.

    Args:
        store: Where impressions are kept.
        version: Id of the version, unique in the store.
        config: Its configuration.
        secret: The trial's, which draws and ids are made with.
        bias: What is believed of users, which designs are made with,
        known: and of single documents; ``believe`` sets both anew, at any time.
        shows: Ranker whose list is shown instead of a draw, None while the trial runs; may be set at any time.
        clock: Seconds since 1970.
        cache_size: Designs, and impressions, kept in memory.

    Attributes:
        policy: Everything that decides draws.
        impressions: Those that are shown.
        counters: Counters of the version.
        attributes: What its searches are declared to have.
        nanoseconds: What the last searches took.
    """

    def __init__(
        self,
        store: Store,
        version: int,
        config: TrialConfig,
        *,
        secret: bytes,
        bias: Bias,
        known: Known,
        shows: Literal["A", "B"] | None,
        clock: Callable[[], float],
        cache_size: int,
    ) -> None:
        self.config, self.shows = config, shows
        self.policy = Policy(secret, version, config.comparison, bias, known, config.segmented)
        self.counters = Counters(store, version)
        self.impressions = TrialImpressions(store, version, self.counters, cache_size)
        self.attributes = Attributes(store, version, config, self.counters)
        self.nanoseconds: deque[int] = deque(maxlen=10_000)
        self._has_attributes = bool(config.segments)
        self._views = Views(self.counters, cache_size)
        self._clock = SteadyClock(clock, self.counters)
        self._designs = Latest[Design](cache_size)
        self._id_outside = tokens.Token(version, 0, tokens.OUTSIDE).sign(secret)
        self._id_of_fallbacks = tokens.Token(version, 0, tokens.FALLBACK).sign(secret)

    def show(self, asked: Asked) -> Shown:
        """Draw a ranking without waiting for the disk; never raises."""
        start = time.perf_counter_ns()
        try:
            with spans.note("draw"):
                shown = self._show(asked)
        except Exception as fault:
            shown = self._fallback(asked.a, asked.offset, asked.size, reason_of(fault), fault)
        took = time.perf_counter_ns() - start
        self.nanoseconds.append(took)
        if took > LONG:
            self.counters.count(SLOW)
        return shown

    def on_disk(self, asked: Asked, shown: Shown, timeout: float) -> Shown:
        """Wait in this thread until an answer is on the disk: A's list where that takes too long, or fails.

        Where the impression was there before, that one is shown.
        """
        try:
            shown.stored.result(timeout)
        except Exception as fault:
            return self.fall_back(shown, asked.a, asked.offset, asked.size, reason_of(fault))
        if not shown.stored.again:
            return shown
        looked = asked._replace(look=True)
        before = self.on_disk(looked, self.show(looked), timeout)
        if before.fallback is not None:
            self.take_back(shown, before.fallback)
        return before

    def _show(self, asked: Asked) -> Shown:
        query, a, b, unit, offset, size, look, segment, covariates = asked
        config, policy = self.config, self.policy
        if self.shows is not None:
            chosen = a if self.shows == "A" else text_ids("B", b)
            return self._fallback(chosen, offset, size, f"the trial is stopped, {self.shows} is shown")
        if unit is not None and type(unit) is not str:
            unit = text_id("unit", unit)
        who = unit or uuid.uuid4().hex
        if config.share < 1 and tokens.place_of(policy.secret, who) >= config.share:
            self.counters.count(OUTSIDE_SHARE, soon=False)
            return Shown(_page_of_one(a, offset, size), self._id_outside, NOT_IN_SHARE, DONE)
        if not drawing.warm.is_set():
            return self._fallback(a, offset, size, "not compiled yet")
        if not isinstance(query, str):
            raise BadId(f"query is {query!r}, must be text")
        if type(query) is not str:
            query = text_id("query", query)
        if type(offset) is not int or offset < 0:
            offset = _count("offset", offset)
        if size is not None:
            size = _count("size", size)
        ranked_a, ranked_b = text_ids("A", a), text_ids("B", b)
        if not ranked_a and not ranked_b:
            return Shown([], self._id_of_fallbacks, None, DONE)
        key = tokens.impression_key(
            policy.secret, policy.version, who, query, ranked_a[: config.k], ranked_b[: config.k]
        )
        # Without a unit it cannot have been there before.
        recorded = self.impressions.recorded(key, look and bool(unit))
        later = False
        if recorded is not None:
            later = self._is_later_view(recorded.impression, offset)
        else:
            code, known = 0, b""
            if self._has_attributes or segment is not None:
                code = self.attributes.code(query, segment)
            if covariates is not None:
                known = self.attributes.covariates(covariates)
            search = Search(query, ranked_a, ranked_b, who, code)
            recorded = self._draw(key, search, look or not unit, known)
        impression, stored = recorded
        page = page_of(impression.design.top(impression.place), ranked_a, ranked_b, config.k, offset, size)
        if page and offset + len(page) > config.k:
            self.counters.count(LATER_PAGES, soon=False)
        second = tokens.LATER_VIEW if later else impression.time // 1_000_000
        return Shown(page, tokens.Token(policy.version, second, key).sign(policy.secret), None, stored, impression)

    def _draw(self, key: bytes, search: Search, looked: bool, covariates: bytes) -> Recorded:
        """Draw an impression that was not there before, and put it into the store."""
        policy = self.policy
        design, place = draw(search, policy, self._design)
        unit = tokens.unit_number(policy.secret, search.unit)
        time = self._clock.now()
        return self.impressions.put(
            Impression(key, policy.version, design, place, unit, time, looked, search.segment, covariates)
        )

    def _is_later_view(self, impression: Impression[Design], offset: int) -> bool:
        """True if an impression is shown once more, and not on a retry; counts it as shown again."""
        self.counters.count(SHOWN_AGAIN, soon=False)
        return self._views.is_later(impression, self._clock.now(), self.config.view_window * 1e6, offset)

    def _design(
        self,
        query: str,
        a: Sequence[str],
        b: Sequence[str],
        method: LiveMethod,
        beliefs: Beliefs,
        bias: int,
        known: Known,
    ) -> Design:
        """``make_design``, or the one that was made from the same before."""
        made_from = repr((bias, query, a, b)).encode() + beliefs.theta.tobytes()  # of the segment, if it has its own
        key = blake2b(made_from, digest_size=16).digest()
        design = self._designs.get(key)
        if design is None:
            design = self._designs.keep(key, make_design(query, a, b, method, beliefs, bias, known))
        return design

    def believe(self, bias: Bias, known: Known) -> None:
        """Make designs with this from now on."""
        self.policy = replace(self.policy, bias=bias, known=known)

    def forget(self) -> None:
        """Forget what was shown, as after a restart: some of it may have been erased."""
        self.impressions.forget()
        self._designs.clear()
        self._views.forget()

    def fall_back(self, shown: Shown, a: Ids, offset: int, size: int | None, reason: str) -> Shown:
        """Show A's list instead of the drawn ranking, which leaves the log."""
        self.take_back(shown, reason)
        return self._fallback(a, offset, size, reason)

    def take_back(self, shown: Shown, reason: str) -> None:
        """Remove a drawn ranking that is not shown from the log."""
        if shown._impression is not None:
            self.impressions.take_back(shown._impression, shown.stored, reason)

    def _fallback(self, a: Ids, offset: int, size: int | None, reason: str, fault: Exception | None = None) -> Shown:
        """A's list; must not fail, whatever is wrong. Fallbacks are counted by their reason, without the text of a fault."""
        self.counters.count(f"fallback: {reason}")
        told = f"{reason}: {fault}" if isinstance(fault, BadId) else reason
        return Shown(_page_of_one(a, offset, size), self._id_of_fallbacks, told, DONE)


def _page_of_one(ranked: Ids, offset: int, size: int | None) -> list[str]:
    """Page of one ranker's list; must not fail, whatever is wrong."""
    try:
        ranking = [] if isinstance(ranked, str | bytes) else [d if type(d) is str else str(d) for d in ranked]
        begin = offset if isinstance(offset, int) and offset > 0 else 0
        end = begin + size if isinstance(size, int) and size >= 0 else None
        return list(dict.fromkeys(ranking))[begin:end]
    except Exception:
        return []


def _count(name: str, number: Any) -> int:
    """A whole number that is not negative."""
    try:
        whole = operator.index(number)
    except TypeError:
        whole = -1
    if whole < 0 or isinstance(number, bool):
        raise BadId(f"{name} is {number!r}, must be a whole number, at least 0")
    return whole


def reason_of(fault: BaseException) -> str:
    """A fault in a few words, the same for faults of one kind."""
    match fault:
        case TimeoutError() | CancelledError():  # cancelled: a call for the same impression gave up
            return "the store did not answer in time"
        case StoreError():
            return fault.reason
        case CorruptDesign():
            return "a stored design is damaged"
        case Voided():
            return "shown as A before"
        case TypeError() | ValueError():
            return "bad input"
    return f"{type(fault).__name__}"
