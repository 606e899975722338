"""Outbox: events that a thread sends in batches, again and again until the service has stored them."""

from __future__ import annotations

import atexit
import json
import logging
import os
import random
import threading
import time
import weakref
from collections import Counter, deque
from http.client import HTTPException
from itertools import islice
from typing import Any

from ranktrial.client.http import Endpoint

BATCH = 500  # events
BATCH_BYTES = 500_000
EVENT_BYTES = 50_000
TIMEOUT = 15.0  # seconds: the service waits for its disk for 10
LONGEST_PAUSE = 30.0  # seconds
REFUSED = (400, 403, 404, 405, 413, 415, 422)  # again, whenever; a key may be known later (401), and overload passes
NEVER = float("inf")
log = logging.getLogger("ranktrial.client")


class Outbox:
    """Takes events at once, and sends them from a thread of its own, which starts with the first.

    Args:
        endpoint: The service.
        capacity: Events that may wait; beyond it new ones are lost, and counted.
        every: Seconds that an event waits for others to be sent with.
        drain: Seconds that are left for what waits when the process ends.
    """

    def __init__(self, endpoint: Endpoint, capacity: int, every: float, drain: float) -> None:
        self._endpoint, self._capacity, self._every, self._drain = endpoint, capacity, every, drain
        self.lost, self.outcomes = 0, Counter[str]()
        self._begin()
        again = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (begin := again()) and begin())

    def _begin(self) -> None:
        """Start with nothing: a forked process leaves what waits, and open connections, to its parent."""
        self._waiting = deque[bytes]()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._added = self._done = self._wanted = 0  # events so far; those that are wanted now
        self._flushes = self._singly = 0  # times; events that are to be sent one by one
        self._closing_at = NEVER
        self._endpoint.close()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, event: dict[str, Any]) -> None:
        """Take an event; one that cannot be sent is lost, and said in the log."""
        try:
            content = json.dumps(event, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as problem:
            return self._lose(1, f"it is not JSON: {problem}")
        if len(content) > EVENT_BYTES:
            return self._lose(1, f"it has {len(content):,} bytes, at most {EVENT_BYTES:,} are sent")
        with self._changed:
            full = len(self._waiting) >= self._capacity
            if not full:
                self._waiting.append(content)
                self._added += 1
                self._start()
                if len(self._waiting) in (1, BATCH):
                    self._changed.notify_all()
        return self._lose(1, f"{self._capacity:,} wait already") if full else None

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="ranktrial-client", daemon=True)
        try:
            thread.start()
        except RuntimeError as problem:  # no more threads: the next event tries again
            log.error("events wait: %s", problem)
            return
        self._thread, self._closing_at = thread, NEVER
        atexit.register(self.close)

    def flush(self, timeout: float) -> bool:
        """Send what waits now; whether that is done within so many seconds."""
        with self._changed:
            goal = self._wanted = self._added
            self._flushes += 1
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= goal, timeout)

    def close(self) -> None:
        """Send what waits, and end the thread; what cannot be sent in time is lost."""
        with self._changed:
            thread, self._closing_at = self._thread, time.monotonic() + self._drain
            self._changed.notify_all()
        if thread is not None:
            thread.join(self._drain + 1.0)
        with self._changed:
            left, self._thread = len(self._waiting), None
            self._waiting.clear()
            self._done += left
        if left:
            self._lose(left, f"the service did not take them within {self._drain:g} s")
        atexit.unregister(self.close)

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        log.error("%d event(s) lost: %s", count, why)

    # --- in the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        tries = 0
        while batch := self._next_batch():
            pause = self._deliver(batch, tries)
            with self._changed:
                if self._thread is not threading.current_thread():  # given up meanwhile
                    return
                if pause is None:
                    tries = 0
                    for _ in batch:
                        self._waiting.popleft()
                    self._done += len(batch)
                    self._singly = max(self._singly - len(batch), 0)
                    self._changed.notify_all()
                    continue
                tries += 1
                if time.monotonic() >= self._closing_at:
                    return
                self._pause(pause if self._closing_at == NEVER else min(pause, 0.2))

    def _pause(self, seconds: float) -> None:
        """Wait, unless somebody asks for all that waits to be sent."""
        flushes, closing = self._flushes, self._closing_at
        self._changed.wait_for(lambda: (self._flushes, self._closing_at) != (flushes, closing), seconds)

    def _next_batch(self) -> list[bytes]:
        """Wait for the next events to send, which stay in the queue until the service has stored them; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing_at < NEVER)
            self._changed.wait_for(
                lambda: len(self._waiting) >= BATCH or self._wanted > self._done or self._closing_at < NEVER,
                self._every,
            )
            batch, size = [], 0
            for content in islice(self._waiting, 1 if self._singly else BATCH):
                size += len(content) + 1
                if size > BATCH_BYTES:
                    break
                batch.append(content)
            return batch

    def _deliver(self, batch: list[bytes], tries: int) -> float | None:
        """Send a batch; the seconds to wait before it is sent again, None if it is dealt with."""
        timeout = max(min(TIMEOUT, self._closing_at - time.monotonic()), 0.05)
        pause = min(0.5 * 2.0**tries, LONGEST_PAUSE) * random.uniform(0.5, 1.0)
        try:
            answer = self._endpoint.post("/v1/events", b"[" + b",".join(batch) + b"]", timeout)
            if answer.status == 200:
                body = json.loads(answer.content)
                self.outcomes.update(body["counts"])
                if count := body["counts"].get("invalid"):
                    why = next((one.get("detail") for one in body["results"] if one["outcome"] == "invalid"), "")
                    log.error("%d event(s) invalid: %s", count, why)
                return None
            reason = f"{answer.status} {_detail(answer.content)}"
        except (OSError, HTTPException, ValueError, KeyError) as problem:
            log.warning("%d event(s) wait: %r", len(batch), problem)
            return pause
        if answer.status in REFUSED and len(batch) > 1:  # for the sake of the others
            self._singly = len(batch)
            return 0.0
        if answer.status in REFUSED:
            self._lose(len(batch), reason)
            return None
        log.warning("%d event(s) wait: %s", len(batch), reason)
        return max(pause, min(answer.retry_after, LONGEST_PAUSE))


def _detail(content: bytes) -> str:
    try:
        return str(json.loads(content)["detail"])
    except (ValueError, KeyError, TypeError):
        return "without a reason"
