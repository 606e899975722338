"""Metrics of the service, for Prometheus."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counters and gauges of one application: each has a registry of its own."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("ranktrial_requests", "Answers.", ("method", "route", "status"), registry=registry)
        self._seconds = Histogram(
            "ranktrial_request_seconds", "Time to answer.", ("route",), buckets=SECONDS, registry=registry
        )
        # To look up labels takes longer than to count.
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._ranked = Counter("ranktrial_impressions", "Impressions that are stored.", ("trial",), registry=registry)
        self._fallbacks = Counter(
            "ranktrial_fallbacks", "A's list shown because of a fault.", ("trial", "reason"), registry=registry
        )
        self._events = Counter("ranktrial_events", "What became of events.", ("outcome",), registry=registry)
        self._misplaced = Counter(
            "ranktrial_misplaced_events", "Clicks whose position is not where the document stood.", registry=registry
        )
        self.in_flight = Gauge("ranktrial_requests_in_flight", "Requests being worked on.", registry=registry)
        Gauge("ranktrial_rows_waiting", "Rows that wait to be written.", registry=registry).set_function(waiting)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        known = self._answers.get((method, route, status))
        if known is None:
            known = self._requests.labels(method, route, str(status)), self._seconds.labels(route)
            self._answers[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)

    def ranked(self, trial: str, fallback: str | None) -> None:
        """Count an impression, or a fallback by its reason."""
        if fallback is None:
            self._ranked.labels(trial).inc()
        else:
            self._fallbacks.labels(trial, fallback).inc()

    def took(self, counts: Counts[str], misplaced: int) -> None:
        """Count the events of a batch by what became of them."""
        for outcome, count in counts.items():
            self._events.labels(outcome).inc(count)
        self._misplaced.inc(misplaced)

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self._registry)
