"""Supervisor of a trial: does what is due by now, and tells those who run it.

``due`` decides, from values alone, so that weeks can be tried in a moment. ``Supervisor`` asks it again and again, in one of
the processes that have the trial open: the one that holds the lease. All that it does is written into the store first, each
step by itself, and what must follow from a step follows from what is stored: a process that is killed between two steps, or
that still works while another has taken over, leaves nothing undone and does nothing twice.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

from ranktrial.config import TrialConfig
from ranktrial.report.schema import Report
from ranktrial.store.base import ConfigVersion, MessageRow, StoreError, StoreUnavailable
from ranktrial.store.protocols import Store
from ranktrial.times import span_text
from ranktrial.trial import messages
from ranktrial.trial.history import new_entry
from ranktrial.trial.messages import GUARD, News
from ranktrial.trial.versions import last_change, pick_version, try_share
from ranktrial.trial.webhooks import NotDelivered, Webhook

PLAN = "the plan"  # who stops a trial that has come to its end
RAMP = "the ramp"  # who changes the share without being asked
LEASE = 15.0  # seconds for which one process looks after a trial, and after which another does if it is gone
LOOK_EVERY = 60.0  # seconds from one report to the next
SHARE_OF_TIME = 20  # and no more than one part in so many of all time goes into reports
PATIENCE = 30.0  # seconds that a store may be in trouble before somebody hears of it
FIRST_RETRY, LONGEST_RETRY = 5.0, 3_600.0  # seconds until a message is sent again
GIVE_UP = 7 * 86_400.0  # seconds after which it is not
log = logging.getLogger("ranktrial.trial")


class Facts(NamedTuple):
    """Facts about a trial that runs, in seconds since 1970; nan for what has not happened.

    Attributes:
        share_since: Time since which it has the present share.
        began: Time of its first search.
        harm: What a guard is sure of, in a sentence; "" if none is.
        guard: Name of that guard.
        futile: A sentence if B is surely not better by what matters.
        ended: Why the trial has come to its end, in a sentence: a winner counts, both are alike, or its time is over.
        winner: The winner, where one counts.
    """

    share_since: float
    began: float
    harm: str = ""
    guard: str = ""
    futile: str = ""
    ended: str = ""
    winner: Literal["A", "B"] | None = None


class ChangeShare(NamedTuple):
    """Another share of units is to take part."""

    share: float
    reason: str


class StopTrial(NamedTuple):
    """The trial is to stop, and show one ranker's list to everybody; ``who`` says what has found the reason."""

    reason: str
    who: str
    show: Literal["A", "B"] = "A"


def due(now: float, config: TrialConfig, facts: Facts) -> ChangeShare | StopTrial | None:
    """The action that is due, None if there is none. Harm comes first.

    The time of a stage of the ramp runs from when it has both its share and a first search: a ramp does not grow while nobody
    searches yet.

    >>> config = TrialConfig(share=0.01, ramp=[(0.01, "1d"), (0.5, None)])
    >>> due(100_000, config, Facts(share_since=0, began=20_000)), due(106_400, config, Facts(share_since=0, began=20_000))
    (None, ChangeShare(share=0.5, reason='after 1 day at 0.01'))
    """
    if facts.harm:
        return StopTrial(facts.harm, f"{GUARD} on {facts.guard}")
    if facts.futile and config.guards.futility == "stop":
        return StopTrial(facts.futile, f"{GUARD} on futility")
    if facts.ended and config.then != "tell":
        show = facts.winner if config.then == "serve winner" and facts.winner is not None else "A"
        return StopTrial(facts.ended, PLAN, show)
    stage = config.next_stage
    if stage is None:
        return None
    wait, share = stage
    if not now - facts.began >= wait or not now - facts.share_since >= wait:
        return None
    return ChangeShare(share, f"after {span_text(wait)} at {config.share:g}")


@dataclass
class _Trouble:
    """Trouble of a store, as this process sees it: since when, and the name under which somebody has heard of it."""

    since: float | None = None
    told: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_troubles: WeakKeyDictionary[Store, _Trouble] = WeakKeyDictionary()


class Supervisor:
    """Looks after one trial, in every process that has it open; one of these holds the lease, and acts.

    Args:
        store: Where the trial is.
        trial: Its name.
        hooks: Receivers of messages.
        clock: Seconds since 1970; ``time.time`` but in simulations.
        report: Makes the report on the current version; None where this process has another.
        closing: Set when the process lets go of the trial: nothing more is sent then.
    """

    def __init__(
        self,
        store: Store,
        trial: str,
        hooks: Sequence[Webhook],
        clock: Callable[[], float],
        report: Callable[[ConfigVersion], Report | None],
        closing: threading.Event,
    ) -> None:
        self._store, self._trial, self._hooks = store, trial, {hook.id: hook for hook in hooks}
        self._clock, self._report, self._closing = clock, report, closing
        self._own_time = (
            clock is not time.time
        )  # leases go by the store's clock otherwise: those of instances may differ
        self._me, self._held_until = uuid.uuid4().hex, 0.0
        self._looks = 0.0, 0.0  # times of the last report and of the next
        self._began: tuple[int, float] = (0, float("nan"))  # a version, and when its first search came
        self._trouble = _troubles.setdefault(store, _Trouble())

    def step(self) -> None:
        """Do what is due, write down what there is to tell, and send what is to be sent. Raises what the store raises."""
        try:
            version = pick_version(self._store.trials.versions(self._trial), None, self._trial)
            config = TrialConfig.stored(version.config)
            busy = config.next_stage is not None or _watched(config)
            if (self._hooks or busy) and self._leads():  # a trial with nothing to look after costs no lease
                report = self._look(version, config)
                if self._hooks:
                    self._tell(report)
                if busy:
                    self._act(version, config, report)  # which is told of at the next step, after its reason
                if self._hooks:
                    self._send()
        except StoreUnavailable as problem:
            self._in_trouble(problem)
            raise
        self._well_again()

    def failed(self, problem: Exception) -> None:
        """Log a step that failed, unless the store did, which others tell of."""
        if not isinstance(problem, StoreError):
            log.error("the trial could not be supervised", exc_info=problem)

    def close(self) -> None:
        """Let another process take over at once."""
        if self._held_until:
            self._held_until = 0.0
            self._take(0.0)

    def _leads(self) -> bool:
        """True if this process looks after the trial now; the lease is kept while there is time left."""
        now = self._clock() if self._own_time else time.monotonic()  # which nobody sets
        if not now < self._held_until - LEASE / 2 <= now + LEASE:
            self._held_until = now + LEASE if self._take(LEASE) else 0.0
        return bool(self._held_until)

    def _take(self, seconds: float) -> bool:
        now = int(self._clock() * 1e6) if self._own_time else None
        return self._store.outbox.lead(f"trial {self._trial}", self._me, int(seconds * 1e6), now)

    # --- what is due ----------------------------------------------------------------------------------------------------

    def _look(self, version: ConfigVersion, config: TrialConfig) -> Report | None:
        """The report, where somebody waits for what it says, if it is time for one."""
        now, (last, following) = self._clock(), self._looks
        if not self._hooks and not _watched(config):
            return None
        if last <= now < following or self._store.trials.find(self._trial).stopped:
            return None
        start = time.perf_counter()
        report = self._report(version)
        self._looks = now, now + max(LOOK_EVERY, SHARE_OF_TIME * (time.perf_counter() - start))
        return report

    def _act(self, version: ConfigVersion, config: TrialConfig, report: Report | None) -> None:
        now = self._clock()
        if self._store.trials.find(self._trial).stopped:
            return
        since = last_change(self._store.trials.history(self._trial), "share")
        facts = Facts(float("nan") if since is None else since.time / 1e6, self._first_search(version))
        if report is not None:
            harm = report.harm
            facts = facts._replace(futile=report.futile, ended=report.ended, winner=report.winner)
            if harm is not None:
                facts = facts._replace(harm=harm.text, guard=harm.name)
        match due(now, config, facts):
            case ChangeShare(share, reason):  # unless somebody has changed this version since it was read
                try_share(
                    self._store, self._trial, version, share, partial(new_entry, self._clock, who=RAMP, reason=reason)
                )
            case StopTrial(reason, who, show):  # unless somebody has stopped it
                detail = f"({show} is shown from now on)"
                noted = new_entry(self._clock, "stopped", who=who, reason=reason, detail=detail)
                self._store.trials.stop(self._trial, show, noted, running=True)

    def _first_search(self, version: ConfigVersion) -> float:
        """Time of the first search of a version; nan if there was none yet."""
        if self._began[0] != version.id:
            began = self._store.count(version.id, 0).began
            if not began:
                return float("nan")
            self._began = version.id, began / 1e6
        return self._began[1]

    # --- messages -------------------------------------------------------------------------------------------------------

    def _tell(self, report: Report | None) -> None:
        """Write what there is to tell into the outbox."""
        now, told = self._clock(), messages.last_told(row.message for row in self._store.outbox.messages(self._trial))
        news = [*messages.of_history(self._trial, self._store.trials.history(self._trial), now)]
        if report is not None:
            news.extend(messages.of_report(report))
        self._write(messages.untold(news, told, now), now)

    def _write(self, found: Sequence[tuple[News, int]], now: float) -> None:
        if found:
            secret = self._store.trials.find(self._trial).secret
            self._store.outbox.add(messages.messages_of(self._trial, found, list(self._hooks), secret, now))

    def _send(self) -> None:
        """Send what is due to those who are known here; what is sent is noted, or when it is to be sent again."""
        for row in self._store.outbox.messages(self._trial, due=int(self._clock() * 1e6)):
            hook = self._hooks.get(row.message.hook)
            if hook is None:
                continue
            if self._closing.is_set() or not self._leads():
                return
            self._deliver(hook, row)

    def _deliver(self, hook: Webhook, row: MessageRow) -> None:
        message, now = row.message, self._clock()
        try:
            hook.send(message.id, message.body, now)
        except NotDelivered as problem:
            failed = message.attempts + 1
            wait = min(max(FIRST_RETRY * 2.0 ** min(message.attempts, 20), problem.retry_after), LONGEST_RETRY)
            last = now + wait > message.time / 1e6 + GIVE_UP
            self._store.outbox.retry(row.row, None if last else int((now + wait) * 1e6), failed)
            more = "it is not sent again" if last else f"it is sent again in {span_text(wait)}"
            log.warning("a message to %s was not taken: %s; %s", hook.name, problem, more)
        else:
            self._store.outbox.retry(row.row, None, message.attempts)

    def _in_trouble(self, problem: StoreUnavailable) -> None:
        """Tell of a store that takes nothing: at once and by every process, for there is nowhere to agree on who does."""
        now, trouble = self._clock(), self._trouble
        with trouble.lock:  # one of the trials of this process
            trouble.since = now if trouble.since is None else trouble.since
            if trouble.told is not None or now - trouble.since < PATIENCE:
                return
            trouble.told = f"store {int(now // 3_600)}"
        id = messages.message_id(blake2b(self._store.place.encode()).digest(), trouble.told, 1)
        text = f"{self._trial}: the store is in trouble, and A's list is shown until it is well again. {problem}"
        news = News("store", "trouble", "store in trouble", text)
        for hook in self._hooks.values():
            try:
                hook.send(id, messages.body_of(id, self._trial, news, now), now)
            except NotDelivered as refusal:
                log.warning("a message to %s was not taken: %s", hook.name, refusal)

    def _well_again(self) -> None:
        """Tell of the end of a trouble that was told of."""
        with self._trouble.lock:
            self._trouble.since = None
            if self._trouble.told is not None:
                text = f"{self._trial}: the store is well again."
                self._write([(News(self._trouble.told, "well", "store well again", text), 1)], self._clock())
                self._trouble.told = None


def _watched(config: TrialConfig) -> bool:
    """True if a report is needed to know whether a trial is to stop."""
    return config.watches or config.then != "tell"


def unsettled(store: Store, trial: str, now: float) -> bool:
    """True if there is something to tell or to send about a trial that is stopped."""
    known = store.outbox.messages(trial)
    news = messages.of_history(trial, store.trials.history(trial), now)
    told = messages.last_told(row.message for row in known)
    return any(row.message.due is not None for row in known) or bool(messages.untold(news, told, now))
