"""Limits of the service: everything that a request may ask for has a bound, so memory has one."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ranktrial import checks

SECONDS = ("body_timeout", "timeout", "write_timeout")
BURST = 5  # seconds' worth of an address's rate that may come at once


@dataclass(frozen=True)
class Limits:
    """Bounds of the service; ids, texts and lists are bounded by their models.

    Attributes:
        body: Bytes of a request's body.
        batch: Events in one request.
        body_timeout: Seconds in which a body must arrive; beyond it the answer is 408.
        in_flight: Requests that are worked on at once; beyond it the answer is 429.
        kept_for_rank: Of these, how many are kept for ``rank``: others cannot take its place.
        rows: Rows that may wait to be written; beyond it events get 429, and ``rank`` shows A's list.
        timeout: Seconds that ``rank`` waits for the disk before it shows A's list.
        write_timeout: Seconds that events wait for the disk before the answer is 503.
        beacon_body: Bytes of a body that a page sends: browsers send no more while a page is left.
        beacon_batch: Events in it.
        probes_in_flight: Questions how the service is that are worked on at once, beside all other requests.
        beacon_in_flight: Requests of pages that are worked on at once, from all addresses,
        beacon_address_in_flight: and from one.
        beacon_rate: Requests a second that one address may send, many visitors' if they share it; five seconds' worth at once.
    """

    body: int = 2**20
    batch: int = 1_000
    body_timeout: float = 5.0
    in_flight: int = 256
    kept_for_rank: int = 64
    rows: int = 10_000
    timeout: float = 0.25
    write_timeout: float = 10.0
    beacon_body: int = 2**16
    beacon_batch: int = 50
    probes_in_flight: int = 16
    beacon_in_flight: int = 64
    beacon_address_in_flight: int = 16
    beacon_rate: float = 20.0

    def __post_init__(self) -> None:
        for name, bound in vars(self).items():
            if name == "beacon_rate":
                checks.between(name, bound, 0.1, 1e6)
            elif name in SECONDS:
                checks.between(name, bound, 0, threading.TIMEOUT_MAX)
            else:
                checks.whole(name, bound, 0)
