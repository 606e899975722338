"""Files for operators: gauges, a dashboard and alert rules that name metrics there are, manifests for Kubernetes."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families

from live_server import click, rank, send, serving, start, wait_until
from ranktrial.cli import app
from ranktrial.service.metrics import Metrics
from ranktrial.trial import Webhook

DEPLOY = Path(__file__).parents[1] / "deploy"
OF_PROMETHEUS = {"up"}
yaml = pytest.importorskip("yaml")


def there_are() -> set[str]:
    """Names of all series that the service has."""
    counted = Metrics(lambda: 0)
    counted.requests("GET", "/", 200).inc()
    counted.seconds("/").observe(0.0)
    counted.searches("trial").inc()
    counted.fallbacks("trial", "reason").inc()
    counted.outside("trial").inc()
    text = counted.text().decode()
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    return names | set(re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE)) | {"ranktrial_events_total"}


def series(expression: str) -> set[str]:
    """Names of the series in an expression of PromQL: what is neither a function, a label nor a text."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|without) \([^)]*\)", "", bare)
    return set(re.findall(r"\b[a-z_]\w*\b(?!\s*\()", bare)) - {"and", "or", "unless"}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def pod(name: str, kind: str) -> dict[str, Any]:
    (found,) = [one for one in documents(name) if one["kind"] == kind]
    template: dict[str, Any] = found["spec"]["template"]["spec"]
    return template


# --- metrics ------------------------------------------------------------------------------------------------------------------


def test_series_are_found_in_an_expression() -> None:
    told = 'sum by (trial) (rate(a_total{reason!~"the trial"}[10m])) > 0.01 * max by (x, y) (b) and time() - c == 0'
    assert series(told) == {"a_total", "b", "c"}


def test_every_metric_that_the_dashboard_names_exists() -> None:
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = set().union(*map(series, expressions))
    assert named <= there_are()
    variables = {one["name"] for one in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(board))) <= variables
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert {name for name in there_are() if name.startswith("ranktrial_trial_")} - named == {
        "ranktrial_trial_stopped", "ranktrial_trial_quiet", "ranktrial_trial_searches",
    }  # fmt: skip


def test_every_metric_that_an_alert_names_exists() -> None:
    (group,) = yaml.safe_load((DEPLOY / "grafana" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert series(rule["expr"]) <= there_are() | OF_PROMETHEUS, rule["alert"]
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= {"trial"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert re.fullmatch(r"\d+[mh]", rule["for"])


@pytest.mark.slow
def test_gauges_of_a_trial(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", webhooks=[Webhook("http://127.0.0.1:9/")]) as client:
        start(client, guards={"clicks": 0.1}, share=1.0)
        for user in range(30):
            shown = rank(client, f"u{user}")
            send(client, click(shown["id"], shown["ranking"][0]))
        client.app.state.trials.opened["t"].watcher.step()  # type: ignore[attr-defined]

        def values() -> dict[tuple[str, ...], float]:
            while (answer := client.get("/metrics")).status_code == 429:  # too many questions a second
                threading.Event().wait(0.1)
            families = text_string_to_metric_families(answer.text)
            samples = [one for family in families for one in family.samples if one.name.startswith("ranktrial_trial_")]
            return {
                (
                    one.name.removeprefix("ranktrial_trial_"),
                    *(v for k, v in one.labels.items() if k != "trial"),
                ): one.value
                for one in samples
            }

        wait_until(lambda: ("searches",) in values())
        found = values()
        assert found["searches",] == 30
        assert (found["share",], found["stopped",], found["quiet",]) == (1, 0, 0)
        assert found["last_search_timestamp_seconds",] >= found["last_click_timestamp_seconds",] > 1.7e9
        assert found["state", "too early"] == 1
        assert sum(value for name, value in found.items() if name[0] == "state") == 1
        report = client.get("/v1/trials/t/report").json()
        assert sum(value for name, value in found.items() if name[0] == "checks") == len(report["guardrails"])
        assert found["guard_at_least", "clicks of B"] == 0
        wait_until(lambda: values()["messages_waiting",] >= 1)
        client.post("/v1/trials/t/stop")
        assert values()["stopped",] == 1


# --- Kubernetes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ranktrial.yaml", "migrate.yaml", "secrets.yaml"])
def test_manifests_follow_the_schemas_of_kubernetes(name: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    for document in documents(name):
        schemas.validate(document, schemas.latest_version(), strict=True)
    if name == "ranktrial.yaml":
        document["spec"]["replica"] = 1
        with pytest.raises(schemas.ValidationError):
            schemas.validate(document, schemas.latest_version(), strict=True)


def test_manifests_belong_together() -> None:
    (secret,) = documents("secrets.yaml")
    kinds = {one["kind"]: one for one in documents("ranktrial.yaml")}
    assert set(kinds) == {"Deployment", "Service", "PodDisruptionBudget"}
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert kinds["Service"]["spec"]["selector"] == labels
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert kinds["PodDisruptionBudget"]["spec"]["minAvailable"] < kinds["Deployment"]["spec"]["replicas"]
    for file, kind in (("ranktrial.yaml", "Deployment"), ("migrate.yaml", "Job")):
        spec = pod(file, kind)
        (container,) = spec["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
        for name in re.findall(r"\$\((\w+)\)", " ".join(container["args"])):
            assert name in secret["stringData"]
        assert "PGPASSWORD" not in " ".join(container["args"])
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "@" in secret["stringData"]["RANKTRIAL_STORE"]
    assert ":" not in secret["stringData"]["RANKTRIAL_STORE"].partition("://")[2].partition("@")[0]  # no password in it
    assert pod("migrate.yaml", "Job")["restartPolicy"] == "Never"


def test_probes_and_ports_are_those_of_the_service() -> None:
    (container,) = pod("ranktrial.yaml", "Deployment")["containers"]
    (port,) = container["ports"]
    service = next(one for one in documents("ranktrial.yaml") if one["kind"] == "Service")
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz",
    }  # fmt: skip
    assert f"EXPOSE {port['containerPort']}" in (DEPLOY / "Dockerfile").read_text()


@pytest.mark.parametrize(("file", "kind"), [("ranktrial.yaml", "Deployment"), ("migrate.yaml", "Job")])
def test_what_is_run_exists(file: str, kind: str) -> None:
    (container,) = pod(file, kind)["containers"]
    name, *rest = container["args"]
    command: Any = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    assert command.make_context(name, rest)
