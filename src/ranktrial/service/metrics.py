"""Metrics of the service, for Prometheus."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric

from ranktrial.service.gauges import TrialGauges, Watched
from ranktrial.trial.showing import NOT_IN_SHARE

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counters and gauges of one application: each has a registry of its own."""

    def __init__(self, waiting: Callable[[], float], watched: Callable[[], dict[str, Watched]] = dict) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(TrialGauges(watched))
        requests = Counter("ranktrial_requests", "Answers.", ("method", "route", "status"), registry=registry)
        took = Histogram("ranktrial_request_seconds", "Time to answer.", ("route",), buckets=SECONDS, registry=registry)
        ranked = Counter("ranktrial_impressions", "Impressions that are stored.", ("trial",), registry=registry)
        fallbacks = Counter(
            "ranktrial_fallbacks", "A's list shown because of a fault.", ("trial", "reason"), registry=registry
        )
        outside = Counter(
            "ranktrial_outside_share", "Searches of units that take no part.", ("trial",), registry=registry
        )
        events = Counter("ranktrial_events", "What became of events.", ("outcome",), registry=registry)
        # By label; kept, because to look a label up takes longer than to count.
        self._requests, self._seconds = cache(requests.labels), cache(took.labels)
        self._ranked, self._fallbacks, self._events = map(cache, (ranked.labels, fallbacks.labels, events.labels))
        self._outside = cache(outside.labels)
        self._misplaced = Counter(
            "ranktrial_misplaced_events", "Clicks whose position is not where the document stood.", registry=registry
        )
        self.in_flight = 0
        under_way = Gauge("ranktrial_requests_in_flight", "Requests being worked on.", registry=registry)
        under_way.set_function(lambda: self.in_flight)
        Gauge("ranktrial_rows_waiting", "Rows that wait to be written.", registry=registry).set_function(waiting)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer to a request that was in flight."""
        self.in_flight -= 1
        self._requests(method, route, status).inc()
        self._seconds(route).observe(seconds)

    def ranked(self, trial: str, fallback: str | None) -> None:
        """Count an impression, a search outside the share, or a fallback by its reason, without the detail after a colon."""
        if fallback is None:
            self._ranked(trial).inc()
        elif fallback == NOT_IN_SHARE:
            self._outside(trial).inc()
        else:
            self._fallbacks(trial, fallback.partition(": ")[0]).inc()

    def took(self, counts: Counts[str], misplaced: int) -> None:
        """Count the events of a batch by what became of them."""
        for outcome, count in counts.items():
            self._events(outcome).inc(count)
        self._misplaced.inc(misplaced)

    def families(self) -> Iterable[Metric]:
        """All of them as they are now."""
        return self._registry.collect()

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self._registry)
