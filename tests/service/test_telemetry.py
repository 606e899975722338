"""Traces and metrics by OpenTelemetry: spans of requests, with their parents and without probes; nothing where nobody asks."""

from __future__ import annotations

import http.server
import math
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from live_server import click, rank, send, serving, start, wait_until
from ranktrial.service import telemetry
from ranktrial.trial import Webhook

Samples = dict[tuple[Any, ...], float]

SERVE = """
import sys
sys.path[:0] = [sys.argv[2]]
from pathlib import Path
from live_server import serving, start, rank
with serving(Path(sys.argv[1])) as client:
    start(client)
    rank(client, "u")
print("opentelemetry.sdk" in sys.modules)
"""


def served(tmp_path: Path, **environment: str) -> str:
    """True if a service in a process of its own has imported the packages."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path / "t.db"), str(Path(__file__).parents[1])],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_a_request_is_a_span_of_who_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    with_these = partial(telemetry.TelemetryMiddleware, tracers=tracers, meters=MeterProvider([reader]))
    monkeypatch.setattr(telemetry, "sending", partial(telemetry.sending, tracers=tracers, meters=MeterProvider()))
    monkeypatch.setattr(telemetry, "asked_for", lambda: True)
    monkeypatch.setattr(telemetry, "set_up", lambda: lambda: None)
    monkeypatch.setattr(telemetry, "TelemetryMiddleware", with_these)
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with serving(tmp_path / "t.db") as client:
        start(client)
        shown = rank(client, "u")
        send(client, click(shown["id"], shown["ranking"][0]))
        client.get("/readyz")
        client.get("/v1/trials/t/report", headers={"traceparent": f"00-{trace}-{parent}-01"})
        client.get("/nothing/here")
        client.request("BREW", "/v1/trials/t/rank")
    every = spans.get_finished_spans()
    found = [span for span in every if span.name not in ("draw", "store write")]
    within = {found[1].context.span_id: ["draw", "store write"], found[2].context.span_id: ["store write"]}
    for id, names in within.items():
        assert [span.name for span in every if span.parent is not None and span.parent.span_id == id] == names
    assert [span.name for span in found] == [
        "PUT /v1/trials/{name}",
        "POST /v1/trials/{name}/rank",
        "POST /v1/events",
        "GET /v1/trials/{name}/report",
        "_OTHER",
        "_OTHER",
    ]
    assert [span.attributes["http.response.status_code"] for span in found] == [201, 200, 200, 200, 404, 405]
    assert found[1].attributes["ranktrial.trial"] == "t"
    assert found[1].parent is None
    assert (f"{found[3].context.trace_id:032x}", f"{found[3].parent.span_id:016x}") == (trace, parent)
    (resource,) = reader.get_metrics_data().resource_metrics
    (metric,) = (one for one in resource.scope_metrics[0].metrics if one.name == telemetry.DURATION)
    assert sum(point.count for point in metric.data.data_points) == 6


@pytest.mark.slow
def test_what_prometheus_scrapes_is_sent_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    monkeypatch.setattr(telemetry, "asked_for", lambda: True)
    monkeypatch.setattr(telemetry, "set_up", lambda: lambda: None)
    monkeypatch.setattr(telemetry, "TelemetryMiddleware", partial(telemetry.TelemetryMiddleware, meters=meters))
    monkeypatch.setattr(telemetry, "sending", partial(telemetry.sending, meters=meters))

    def sent() -> Samples:
        (resource,) = reader.get_metrics_data().resource_metrics
        return {
            (metric.name, *sorted(point.attributes.items())): point.value
            for metric in resource.scope_metrics[0].metrics
            if metric.name.startswith("ranktrial_")
            for point in metric.data.data_points
        }

    with serving(tmp_path / "t.db", webhooks=[Webhook("http://127.0.0.1:9/")]) as client:
        start(client, guards={"clicks": 0.1})
        for user in range(3):
            shown = rank(client, f"u{user}")
            send(client, click(shown["id"], shown["ranking"][0]))
        state = ("ranktrial_trial_state", ("state", "too early"), ("trial", "t"))
        wait_until(lambda: sent().get(state) == 1)  # the first time asks for a report
        wait_until(lambda: sent()["ranktrial_trial_messages_waiting", ("trial", "t")] >= 1)
        found, scraped = sent(), client.app.state.metrics.families()  # type: ignore[attr-defined]
        expected = {
            (family.name, *sorted(sample.labels.items())): sample.value
            for family in scraped
            if family.type in ("gauge", "counter")
            for sample in family.samples
            if math.isfinite(sample.value) and not sample.name.endswith("_created")
        }
    assert found == expected
    assert found["ranktrial_impressions", ("trial", "t")] == 3
    assert found["ranktrial_trial_searches", ("trial", "t")] == 3
    assert 0 < found["ranktrial_trial_draw_seconds", ("quantile", "0.5"), ("trial", "t")] < 60


@pytest.mark.slow
def test_what_the_environment_names_gets_spans_and_numbers(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    posted: list[tuple[str, bytes]] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}"
        assert served(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=place, OTEL_EXPORTER_OTLP_COMPRESSION="none") == "True"
        server.shutdown()
    assert {path for path, _ in posted} == {"/v1/traces", "/v1/metrics"}
    assert all(b"ranktrial" in body for _, body in posted)
    assert any(b"POST /v1/trials/{name}/rank" in body for _, body in posted)


@pytest.mark.slow
def test_nothing_is_imported_where_nobody_asks(tmp_path: Path) -> None:
    assert served(tmp_path) == "False"
    assert served(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_SDK_DISABLED="true") == "False"
