"""Traces and metrics by OpenTelemetry, where its packages are installed and somewhere is named to send them to.

A span for every request but probes, with the span of whoever called as its parent, and the histogram
``http.server.request.duration``, by the names of its conventions for HTTP; within it spans of the draw and of the wait for the
disk; and all gauges and counters of ``/metrics``, by the names that they have there. Where the variables
``OTEL_EXPORTER_OTLP_...`` name a receiver and nobody has set up providers in this process, they are set up here. Otherwise the
service does not even import the packages.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranktrial import extras, spans
from ranktrial.service.metrics import Metrics
from ranktrial.service.middleware.routing import Purpose, RouteMatch

RECEIVERS = {  # by kind: variables that name one
    kind: (f"OTEL_EXPORTER_OTLP_{kind}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") for kind in ("TRACES", "METRICS")
}
DURATION = "http.server.request.duration"
SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]  # as the conventions have them
NAME = "ranktrial"


def asked_for() -> bool:
    """True if the environment names a receiver, or another program has set up providers for this one."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    named = any(os.environ.get(one) for both in RECEIVERS.values() for one in both)
    return named or "OTEL_PYTHON_TRACER_PROVIDER" in os.environ


def set_up() -> Callable[[], None]:
    """Set up providers that send to the receivers that are named, unless there are some; returns what sends the rest.

    Raises MissingExtra without the packages.
    """
    if refusal := extras.missing("otel", "OpenTelemetry"):
        raise refusal
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    def named(kind: str) -> bool:
        return any(os.environ.get(one) for one in RECEIVERS[kind])

    # The service's name first, so that what the environment says of it counts.
    resource = Resource.create({} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": NAME})
    ends: list[Any] = []
    if named("TRACES") and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        spans = TracerProvider(resource=resource)
        spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(spans)
        ends.append(spans)
    if named("METRICS") and not isinstance(metrics.get_meter_provider(), MeterProvider):
        numbers = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
        metrics.set_meter_provider(numbers)
        ends.append(numbers)

    def shut_down() -> None:
        for one in ends:
            one.shutdown()

    return shut_down


@contextlib.contextmanager
def sending(known: Metrics, renew: Callable[[], object], tracers: Any = None, meters: Any = None) -> Iterator[None]:
    """Send gauges and counters with the other metrics, and draws and waits for the disk as spans within those of requests.

    Args:
        renew: Called whenever numbers are sent, so that the next ones are new.
        tracers: Provider of tracers, the process's own by default.
        meters: Provider of meters, the process's own by default.
    """
    from opentelemetry import metrics, trace

    _observe(known, renew, metrics.get_meter(NAME, meter_provider=meters))
    spans.note = trace.get_tracer(NAME, tracer_provider=tracers).start_as_current_span
    try:
        yield
    finally:
        spans.note = contextlib.nullcontext


def _observe(known: Metrics, renew: Callable[[], object], meter: Any) -> None:
    from opentelemetry.metrics import Observation

    make = {"gauge": meter.create_observable_gauge, "counter": meter.create_observable_counter}

    def observer(name: str, *, first: bool) -> Callable[[Any], Iterator[Any]]:
        def observe(_: Any) -> Iterator[Any]:
            if first:
                with contextlib.suppress(RuntimeError):  # the loop is closed, and these are the last
                    renew()
            for family in known.families():
                for sample in family.samples if family.name == name else ():
                    if math.isfinite(sample.value) and not sample.name.endswith("_created"):
                        yield Observation(sample.value, sample.labels)

        return observe

    families = [family for family in known.families() if family.type in make]
    for number, family in enumerate(families):
        make[family.type](family.name, [observer(family.name, first=number == 0)], description=family.documentation)


class TelemetryMiddleware:
    """Makes a span of every routed request but probes, and notes how long it took.

    Args:
        tracers: Provider of tracers, the process's own by default.
        meters: Provider of meters, the process's own by default.
    """

    def __init__(self, app: ASGIApp, tracers: Any = None, meters: Any = None) -> None:
        from opentelemetry import metrics, propagate, trace

        self._app, self._trace, self._parent = app, trace, propagate.extract
        self._tracer = trace.get_tracer(NAME, tracer_provider=tracers)
        self._took = metrics.get_meter(NAME, meter_provider=meters).create_histogram(
            DURATION, "s", "Duration of HTTP server requests.", explicit_bucket_boundaries_advisory=SECONDS
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked: RouteMatch | None = scope.get("asked")
        if asked is None or asked.purpose is Purpose.PROBE:
            return await self._app(scope, receive, send)
        route = None if asked.route is None else asked.route.path
        known = {"http.request.method": scope["method"] if route else "_OTHER"} | (
            {"http.route": route} if route else {}
        )
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        start, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._tracer.start_as_current_span(
            " ".join(known.values()), self._parent(headers), self._trace.SpanKind.SERVER, known
        ) as span:
            if trial := asked.parameters.get("name"):
                span.set_attribute("ranktrial.trial", trial)
            try:
                return await self._app(scope, receive, noted)
            finally:
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(self._trace.StatusCode.ERROR)
                self._took.record(time.perf_counter() - start, known | {"http.response.status_code": status})
