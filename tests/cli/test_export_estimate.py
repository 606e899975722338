"""`ranktrial export` and `ranktrial estimate`: a trial's log leaves the store, and says what the trial says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from postgres_server import PASSWORD, binaries, shared_server, url
from ranktrial.cli import app
from ranktrial.inference import estimate
from ranktrial.live import Trial
from ranktrial.logs.layout import LogFolder
from simulated_trial import Ticks, World

runner = CliRunner()
METHOD = 'AB(estimate="rank-aware")'


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("trial")
    store = folder / "t.db"
    world = World.make(queries=8)
    with Trial.create(
        store, name="shoes", k=5, background=False, clock=Ticks(), method='AB(estimate="rank-aware")'
    ) as trial:
        world.run(trial, 3000, seed=1)
    told = runner.invoke(app, ["export", str(store), "--to", str(folder / "log")])
    assert told.exit_code == 0, told.output
    assert "3,000 new impressions of 8 new designs" in " ".join(told.stdout.split())
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
    assert "100 new impressions of 8 new designs" in " ".join(told.stdout.split())
    assert PASSWORD not in told.output


@pytest.mark.slow
def test_every_reading_in_memory_and_the_sums(exported: tuple[Path, Path]) -> None:
    store, folder = exported
    with Trial.open(store, background=False) as trial:
        log = trial.log()
    read, summed = said(str(folder)), said(str(folder), "--sums")
    assert [one["name"] for one in read["readings"]] == [
        "difference in means",
        "A/B",
        "direct",
        "affine",
        "position-based",
    ]
    assert read["headline"] == "position-based"
    assert read["gain"] > 1
    means = estimate(log, estimator="means")
    for told in (read["readings"][0], summed["readings"][0]):
        assert told["delta"] == pytest.approx(means.delta, rel=1e-12)
        assert told["interval"] == pytest.approx(list(means.confidence_interval()), rel=1e-12)
    constant = estimate(log, estimator="constant")
    assert summed["readings"][1]["delta"] == pytest.approx(constant.delta, rel=1e-11)
    assert summed["readings"][1]["bias"]["theta"] == pytest.approx(read["readings"][-1]["bias"]["theta"], rel=1e-9)


def test_the_text_says_who_wins_and_what_both_lists_are_worth(exported: tuple[Path, Path]) -> None:
    result = runner.invoke(app, ["estimate", str(exported[1]), "--theta", "1,.62,.46,.38,.32"])
    text = " ".join(result.stdout.split())
    assert "A gets 0." in text
    assert "The difference in means alone would need" in text
    assert "reckoned in memory, from 3,000 impressions" in text


def test_sums_are_tested_against_the_difference_in_means(exported: tuple[Path, Path]) -> None:
    """A theta far from the truth is contradicted by clicks that need none, and the difference in means speaks."""
    right, wrong = (
        said(str(exported[1]), "--sums", "--estimator", "ips", "--theta", theta)
        for theta in ("1,.62,.46,.38,.32", ".02,.02,.02,.02,1")
    )
    assert right["headline"] == "position-based, ips"
    assert "could hide" in right["readings"][1]["missing"]
    assert wrong["headline"] == "difference in means"
    assert "more than chance explains" in wrong["readings"][1]["missing"]


def test_a_table_of_a_database(exported: tuple[Path, Path], tmp_path: Path) -> None:
    folder, file = LogFolder(exported[1]), tmp_path / "warehouse.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE SCHEMA shop")
        for table in ("impressions", "designs"):
            connection.execute(f"CREATE TABLE shop.{table} AS FROM {folder.scan(table)}")
    theta = ["--theta", "1,.62,.46,.38,.32"]
    there = said("shop.impressions", "--designs", "shop.designs", "--connect", str(file), *theta)
    here = said(str(exported[1]), "--sums", *theta)
    assert there["readings"][1]["delta"] == pytest.approx(here["readings"][1]["delta"], rel=1e-12)


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
    """Only rank 1 is ever clicked: the difference in means speaks, as it does for the log in memory."""
    lists = {"query": "q", "a": ["x", "y"], "b": ["z", "y"]}
    lines = []
    for at in range(400):
        arm = "ab"[at % 2]
        clicked = lists[arm][:1] if at % (3 if arm == "a" else 5) == 0 else []
        lines.append(json.dumps({**lists, "arm": arm, "shown": lists[arm], "clicked": clicked}))
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    for how in ("--sums", "--in-memory"):
        told = said(str(tmp_path / "log.jsonl"), how)
        by_name = {one["name"]: one for one in told["readings"]}
        top = by_name["position-based, constant" if how == "--sums" else "position-based"]
        assert "position bias cannot be told: " in top["missing"]
        assert by_name["difference in means"]["delta"] == pytest.approx((67 - 40) / 200)
