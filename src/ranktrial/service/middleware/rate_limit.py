"""Rate limit, a guard of beacons: what one address may send without a key, in memory that does not grow with the addresses."""

from __future__ import annotations

import math
import os
import time
from array import array
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.client_address import Network, client_address
from ranktrial.service.problems import Refusal, response

SLOTS = 2**16


class RateLimiter:
    """A leaky bucket for each address, in a table of fixed size (GCRA: a bucket is the time at which it will be empty).

    Addresses fall into slots by a keyed hash, so that nobody can choose whose bucket to share. Two that share one share its
    rate: of visitors, one in 65,536 for each other address that is at its limit.

    Args:
        rate: Requests a second, in the long run.
        burst: Requests at once.
        clock: Seconds.

    >>> limiter = RateLimiter(rate=2, burst=3, clock=lambda: 100.0)
    >>> [limiter.wait("192.0.2.1") for _ in range(5)]
    [0.0, 0.0, 0.0, 0.5, 0.5]
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._tolerance, self._clock = 1 / rate, (burst - 1) / rate, clock
        self._empty_at = array("d", bytes(8 * SLOTS))
        self._secret = os.urandom(16)

    def wait(self, address: str) -> float:
        """Seconds until a request of this address may come; it is counted if they are 0."""
        digest = blake2b(address.encode(), digest_size=4, key=self._secret).digest()
        slot, now = int.from_bytes(digest, "big") % SLOTS, self._clock()
        empty_at = max(self._empty_at[slot], now)
        wait = empty_at - now - self._tolerance
        if wait > 1e-9:
            return wait
        self._empty_at[slot] = empty_at + self._interval
        return 0.0


class RateLimitMiddleware:
    """Answers 429 to an address that sends beacons too often, or too many at once; says when to come back.

    Args:
        limiter: How often.
        at_once: Requests of an address that are worked on at once: slow ones may not take all places.
        proxies: Networks whose word is taken for whom they ask.
    """

    def __init__(self, app: ASGIApp, limiter: RateLimiter, at_once: int, proxies: tuple[Network, ...] = ()) -> None:
        self._app, self._limiter, self._at_once, self._proxies = app, limiter, at_once, proxies
        self._under_way = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = client_address(scope, self._proxies)
        if self._under_way[address] >= self._at_once:
            refusal = Refusal(429, f"more than {self._at_once} requests at once from one address", headers=_retry(1))
            return await response(refusal)(scope, receive, send)
        if wait := self._limiter.wait(address):
            refusal = Refusal(429, "too many requests from one address", headers=_retry(wait))
            return await response(refusal)(scope, receive, send)
        self._under_way[address] += 1
        try:
            return await self._app(scope, receive, send)
        finally:
            self._under_way[address] -= 1
            if not self._under_way[address]:
                del self._under_way[address]


def _retry(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(math.ceil(seconds))}
