"""`ranktrial export` and `ranktrial estimate`: a trial's log leaves the store, and says what the trial says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from postgres_server import PASSWORD, binaries, shared_server, url
from ranktrial.analysis import decide, estimate
from ranktrial.cli import app
from ranktrial.formats import LogFolder, read_source
from ranktrial.methods import LogOpt
from ranktrial.trial import Trial
from simulated_trial import Ticks, World

runner = CliRunner()
METHOD = 'AB(estimate="rank-aware")'


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("trial")
    store = folder / "t.db"
    world = World.make(queries=8)
    with Trial.create(
        store, name="shoes", k=5, background=False, clock=Ticks(), seed=2, method='AB(estimate="rank-aware")'
    ) as trial:
        world.run(trial, 3000, seed=1)
    told = runner.invoke(app, ["export", str(store), "--to", str(folder / "log")])
    assert told.exit_code == 0, told.output
    assert "3,000 new searches of 8 new designs" in " ".join(told.stdout.split())
    return store, folder / "log"


def said(*arguments: str) -> dict[str, Any]:
    result = runner.invoke(app, ["estimate", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_a_second_export_finds_nothing_new(exported: tuple[Path, Path]) -> None:
    store, log = exported
    told = json.loads(runner.invoke(app, ["export", str(store), "--to", str(log), "--json"]).stdout)
    assert set(told.values()) == {0}


@pytest.mark.slow
@pytest.mark.skipif(binaries() is None, reason="no PostgreSQL server is installed (Debian: apt install postgresql)")
def test_a_store_in_postgresql_is_exported_too(tmp_path: Path) -> None:
    store = url(shared_server().folder, "export")
    with Trial.create(store, name="shoes", k=5, background=False, clock=Ticks(), method=METHOD) as trial:
        World.make(queries=8).run(trial, 100, seed=1)
    told = runner.invoke(app, ["export", store, "--to", str(tmp_path / "log")])
    assert told.exit_code == 0, told.output
    assert "100 new searches of 8 new designs" in " ".join(told.stdout.split())
    assert PASSWORD not in told.output


def test_the_log_of_a_trial_says_what_its_report_says(tmp_path: Path) -> None:
    """The same winner, interval and checks; and no winner where a check fails that a log can make."""
    with Trial.create(tmp_path / "t.db", name="shoes", k=5, background=False, clock=Ticks(), seed=2) as trial:
        World.make(queries=8).run(trial, 2_000, seed=1)
        report, log = trial.report(), trial.log()
    told = runner.invoke(app, ["export", str(tmp_path / "t.db"), "--to", str(tmp_path / "log")])
    assert told.exit_code == 0, told.output
    read, inside = said(str(tmp_path / "log")), decide(log)
    of_trial = {check.name: check.status for check in report.guardrails}
    for checked in ({one["name"]: one["status"] for one in read["checks"]}, {c.name: c.status for c in inside.checks}):
        assert set(of_trial) - set(checked) == {
            "the page shows what was drawn", "clicks", "duplicate clicks", "fallbacks", "latency",
        }  # fmt: skip
        assert checked == {name: of_trial[name] for name in checked}
    assert report.winner == "A"
    assert inside.decision == report.decision
    assert read["decision"]["winner"] == "A"
    assert read["decision"]["interval"] == pytest.approx(report.decision.interval, rel=1e-9)
    assert read["text"]["headline"] == report.text.headline
    lost = decide(log.take(np.flatnonzero((log.arm <= 0) | (np.arange(len(log)) % 2 == 0))))  # half of A's own pages
    assert lost.decision.state == "not trusted"
    assert lost.decision.ahead == "A"
    assert lost.text.headline.startswith(f'Do not rely on these numbers: "{lost.decision.failed[0]}"')


@pytest.fixture(scope="module")
def warehouse(exported: tuple[Path, Path]) -> list[str]:
    """The exported tables in a DuckDB file, as arguments of ``ranktrial estimate``."""
    folder, file = LogFolder(exported[1]), exported[1].parent / "warehouse.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE SCHEMA shop")
        for table in ("impressions", "designs"):
            connection.execute(f"CREATE TABLE shop.{table} AS FROM {folder.scan(table)}")
    return ["shop.impressions", "--designs", "shop.designs", "--connect", str(file)]


@pytest.mark.slow
def test_every_estimate_in_memory_and_the_sums(exported: tuple[Path, Path], warehouse: list[str]) -> None:
    store, folder = exported
    with Trial.open(store, background=False) as trial:
        log = trial.log()
    read, summed = said(str(folder)), said(*warehouse)
    assert [one["name"] for one in read["estimates"]] == ["A/B", "direct", "affine", "position-based"]
    assert [one["name"] for one in summed["estimates"]] == ["A/B", "position-based"]
    assert read["decision"]["estimator"] == summed["decision"]["estimator"] == "position-based"
    assert read["gain"] > 1
    as_in_trial: dict[str, Any] = {"cross_fit": "past", "refits": LogOpt().traits.learns_at}
    for told, name, how in ((read["estimates"][0], "adjusted", as_in_trial), (summed["estimates"][0], "means", {})):
        found = estimate(log, estimator=name, **how)
        low, high = found.anytime_interval(0.995)  # the A/B estimate has a tenth of 5 %
        assert told["difference"] == pytest.approx(-found.delta, rel=1e-12)
        assert told["interval"] == pytest.approx([-high, -low], rel=1e-12)
    constant = estimate(log, estimator="constant")
    assert summed["estimates"][1]["difference"] == pytest.approx(-constant.delta, rel=1e-11)
    assert summed["estimates"][1]["bias"]["theta"] == pytest.approx(read["estimates"][-1]["bias"]["theta"], rel=1e-9)
    # Other estimates than in memory decide, so that lift and hostile share are near, and as sure.
    inside, there = (one["decision"]["lift"] for one in (read, summed))
    assert there["share"] == pytest.approx(inside["share"], abs=0.01)
    assert np.ptp(there["interval"]) == pytest.approx(np.ptp(inside["interval"]), rel=0.3)
    assert summed["decision"]["overturned_by"] == pytest.approx(read["decision"]["overturned_by"], rel=0.3)
    assert summed["unchecked"].startswith("By sums nothing is checked but the estimates against each other")
    assert summed["checks"] == []


def test_a_winner_of_sums_must_stand_against_hostile_searches(warehouse: list[str]) -> None:
    theta = ["--theta", "1,.62,.46,.38,.32"]
    told = [said(*warehouse, *theta, "--contamination", share) for share in ("0.001", "0.4")]
    assert [one["decision"]["state"] for one in told] == ["decided", "withheld"]
    assert told[1]["decision"]["reasons"] == ["hostile"]
    assert "hostile visitors of" in told[0]["text"]["trust"]
    assert told[0]["verdict"].startswith("B gets ")
    assert "% fewer clicks than A" in told[0]["verdict"]


def test_fixed_is_for_one_look_and_says_so(exported: tuple[Path, Path]) -> None:
    theta = ["--theta", "1,.62,.46,.38,.32"]
    fixed, anytime = said(str(exported[1]), *theta, "--fixed"), said(str(exported[1]), *theta)
    assert (fixed["decision"]["anytime"], anytime["decision"]["anytime"]) == (False, True)
    narrow, wide = (one["decision"]["interval"] for one in (fixed, anytime))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    assert "for one look at a number of searches fixed beforehand" in fixed["text"]["details"]
    assert "however often you look" not in fixed["verdict"]
    assert "however often you look" in anytime["text"]["details"]
    assert "fixed beforehand" not in anytime["verdict"]


def test_the_text_says_who_wins_and_what_both_lists_are_worth(exported: tuple[Path, Path]) -> None:
    result = runner.invoke(app, ["estimate", str(exported[1]), "--theta", "1,.62,.46,.38,.32"])
    text = " ".join(result.stdout.split())
    assert re.match(r"B gets \d+% fewer clicks than A\. B against A: -0\.\d{4} clicks per search ", text)
    assert " Keep A. B against A: -" in text
    assert "The A/B estimate alone would need" in text
    assert "worked out in memory, from 3,000 searches" in text


def test_sums_are_tested_against_the_ab_estimate(warehouse: list[str]) -> None:
    """A theta far from the truth is contradicted by clicks that need none, and the A/B estimate is used."""
    right, wrong = (said(*warehouse, "--theta", theta) for theta in ("1,.62,.46,.38,.32", ".02,.02,.02,.02,1"))
    assert right["decision"]["used"] == ["A/B", "position-based"]
    assert "could hide" in right["estimates"][1]["tests"][0]
    assert wrong["decision"]["used"] == ["A/B"]
    assert wrong["decision"]["interval"] == wrong["estimates"][0]["interval"]
    assert "more than chance explains" in wrong["estimates"][1]["tests"][0]


@pytest.mark.parametrize("option", [["--metric", "Orders()"], ["--by", "device"]])
def test_sums_have_clicks_only(option: list[str], warehouse: list[str]) -> None:
    result = runner.invoke(app, ["estimate", *warehouse, *option])
    assert result.exit_code == 2
    assert "sums of a database have clicks only" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "no such file"),
        (["t", "--connect", "ftp://x"], "must be postgresql://"),
        (["t", "--connect", "no_such_module:connect"], "no_such_module is not installed"),
    ],
)
def test_refusals(arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["estimate", *arguments])
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_sums_of_a_log_that_tells_no_position_bias(tmp_path: Path) -> None:
    """Only rank 1 is ever clicked: the A/B estimate is used, as it is for the log in memory."""
    lists = {"query": "q", "a": ["x", "y"], "b": ["z", "y"]}
    lines = []
    for at in range(400):
        arm = "ab"[at % 2]
        clicked = lists[arm][:1] if at % (3 if arm == "a" else 5) == 0 else []
        lines.append(json.dumps({**lists, "arm": arm, "shown": lists[arm], "clicked": clicked}))
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    with duckdb.connect(str(tmp_path / "log.duckdb")) as connection:
        read_source(tmp_path / "log.jsonl", connection=connection)
    for log in ([str(tmp_path / "log.jsonl")], ["impressions", "--connect", str(tmp_path / "log.duckdb")]):
        told = said(*log)
        by_name = {one["name"]: one for one in told["estimates"]}
        assert by_name["position-based"]["waits_for"].startswith("position bias")
        assert by_name["A/B"]["difference"] == pytest.approx((40 - 67) / 200)
        assert "A/B" in told["decision"]["used"]
        assert told["decision"]["searches"] == 400
    assert told["decision"]["lift"]["share"] == pytest.approx(40 / 67 - 1)  # from A/B traffic alone
