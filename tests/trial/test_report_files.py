"""A report's numbers as a table that spreadsheets open, over HTTP, on the command line and in Python."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from live_server import is_problem, rank, serving, start
from ranktrial.cli import app
from ranktrial.report.files import COLUMNS, file_stem, report_csv
from ranktrial.report.schema import Report
from ranktrial.service.api_keys import KeyFile
from ranktrial.times import seconds
from ranktrial.trial import Trial
from simulated_trial import World, minutes

WORLD = World.make(queries=10, k=5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "t.db"
    with Trial.create(path, "shoes", k=5, seed=1, background=False, clock=minutes(), names=("old", "=new")) as trial:
        WORLD.run(trial, 2_000, seed=1)
        for number in range(300):
            shown = trial.rank("=cmd|' /C calc'!A0", ["x", "y"], ["y", "x"], unit=f"v{number}", wait=True)
            trial.click(shown.id, "x", wait=False)
        trial.exclude("u1", "a robot", who="ann")
    return path


@pytest.fixture(scope="module")
def report(store: Path) -> Report:
    with Trial.open(store, background=False) as trial:
        return trial.report(query_units=1)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.slow
def test_every_number_of_the_report_is_in_the_table(report: Report) -> None:
    table = rows(report_csv(report))
    assert tuple(table[0]) == COLUMNS

    def part(name: str) -> list[dict[str, str]]:
        return [row for row in table if row["part"] == name]

    by_name = {row["name"]: row for row in part("result")}
    difference = by_name["clicks per search, B - A"]
    assert [float(difference[name]) for name in ("value", "low", "high")] == [report.difference, *report.interval]
    assert (int(difference["impressions"]), int(difference["units"])) == (report.impressions, report.units)
    share, lift = by_name["clicks of B against A, share"], report.decision.lift
    assert [float(share[name]) for name in ("value", "low", "high")] == [lift.share, *lift.interval]
    assert by_name["verdict"]["status"] == report.decision.state
    assert by_name["what to do next"]["text"] == report.text.next
    assert by_name["what it rests on"]["text"] == report.text.trust
    assert float(by_name["allowance, clicks per search"]["value"]) == report.decision.allowance
    assert [(row["name"], float(row["value"]), row["status"]) for row in part("estimate")] == [
        (one.name, one.difference, "used" if one.used else "contradicted" if one.contradicted else "")
        for one in report.estimates
    ]
    assert seconds("began", by_name["began"]["time"]) == pytest.approx(report.pace.began, abs=1)
    assert [(row["name"], row["status"]) for row in part("guardrail")] == [
        (check.name, check.status) for check in report.guardrails
    ]
    band = part("over time")
    assert [int(row["units"]) for row in band] == [point.units for point in report.band]
    assert [float(row["value"]) for row in band] == [point.difference for point in report.band]
    assert float(band[0]["low"]) == report.band[0].low
    assert float(band[-1]["high"]) == report.band[-1].high
    assert len(part("query")) == len(report.contributors)
    assert len(part("position bias")) == 5
    assert [row["text"] for row in part("history")] == [str(entry) for entry in report.history]
    assert [int(row["name"]) for row in part("version")] == [1]


def test_no_spreadsheet_takes_a_query_for_a_formula(report: Report) -> None:
    names = [row["name"] for row in rows(report_csv(report)) if row["part"] == "query"]
    assert "'=cmd|' /C calc'!A0" in names
    for row in rows(report_csv(report)):
        assert not any(row[name].startswith(("=", "+", "@", "-")) for name in ("part", "name", "status", "text"))


def test_an_empty_trial_has_a_table_too(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", "über/../x", background=False) as trial:
        empty = trial.report()
    assert "nan" not in report_csv(empty)
    assert "inf" not in report_csv(empty).replace("information", "")
    assert file_stem(empty) == "ber-..-x"


def test_on_the_command_line(store: Path, report: Report, tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    told = CliRunner().invoke(app, ["report", str(store), "--csv", str(file), "--query-units", "1"])
    assert told.exit_code == 0, told.output
    expected = [row for row in rows(report_csv(report)) if "latency" not in row["name"]]
    with file.open(encoding="utf-8", newline="") as text:
        assert [row for row in csv.DictReader(text) if "latency" not in row["name"]] == expected
    assert "A (old)" in told.stdout
    assert "ann" in told.stdout


@pytest.mark.slow
def test_over_http_with_a_key_that_may_read(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys")
    reader, admin = keys.add("reader", ["read"]), keys.add("me", ["admin", "serve"])
    with serving(tmp_path / "t.db", keys=keys) as client:
        client.headers["Authorization"] = f"Bearer {admin}"
        start(client)
        rank(client, "u")
        is_problem(client.get("/v1/trials/t/report.csv"), 403)
        client.headers["Authorization"] = f"Bearer {reader}"
        for file, kind, holds in (
            ("report.csv", "text/csv", "result,verdict"),
            ("report.html", "text/html", "No clicks yet after 1 search"),
        ):
            answer = client.get(f"/v1/trials/t/{file}")
            assert (answer.status_code, answer.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
            assert answer.headers["content-disposition"] == f'attachment; filename="t-{file}"'
            assert holds in answer.text
        is_problem(client.get("/v1/trials/none/report.html"), 404)
        assert client.get("/v1/trials").json()["scopes"] == ["read"]
