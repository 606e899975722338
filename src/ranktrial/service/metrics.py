"""Metrics of the service, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric

from ranktrial.service.gauges import TrialGauges, Watched

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counters and gauges of one application: each has a registry of its own.

    Counters by label are functions of the labels, which are kept: to look them up takes longer than to count.

    Attributes:
        in_flight: Requests being worked on.
        requests: Counter of answers, by method, route and status.
        seconds: Histogram of the time to answer, by route.
        searches: Counters of what ``rank`` answered: impressions, by trial,
        outside: searches of units that take no part,
        fallbacks: and A's list because of a fault, by trial and reason.
        events: Counter of events, by what became of them.
        misplaced: Counter of clicks whose position is not where the document stood.
    """

    def __init__(self, waiting: Callable[[], float], watched: Callable[[], dict[str, Watched]] = dict) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(TrialGauges(watched))

        def counter(name: str, told: str, *labels: str) -> Callable[..., Counter]:
            return cache(Counter(f"ranktrial_{name}", told, labels, registry=registry).labels)

        took = Histogram("ranktrial_request_seconds", "Time to answer.", ("route",), buckets=SECONDS, registry=registry)
        self.requests, self.seconds = counter("requests", "Answers.", "method", "route", "status"), cache(took.labels)
        self.searches = counter("impressions", "Impressions that are stored.", "trial")
        self.fallbacks = counter("fallbacks", "A's list shown because of a fault.", "trial", "reason")
        self.outside = counter("outside_share", "Searches of units that take no part.", "trial")
        self.events = counter("events", "What became of events.", "outcome")
        self.misplaced = Counter(
            "ranktrial_misplaced_events", "Clicks whose position is not where the document stood.", registry=registry
        )
        self.in_flight = 0
        under_way = Gauge("ranktrial_requests_in_flight", "Requests being worked on.", registry=registry)
        under_way.set_function(lambda: self.in_flight)
        Gauge("ranktrial_rows_waiting", "Rows that wait to be written.", registry=registry).set_function(waiting)

    def families(self) -> Iterable[Metric]:
        """All of them as they are now."""
        return self._registry.collect()

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self._registry)
