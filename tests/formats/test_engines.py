"""Sums added up by an engine give what the log in memory gives: estimate, interval, position bias."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import sqlglot

from postgres_server import PASSWORD
from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.analysis.hostile import most_worth as most_worth_in_memory
from ranktrial.analysis.ladder import AB_TRAFFIC, POSITION_BASED, EstimatorResult, _hausman, disagreements
from ranktrial.formats.answers import by_sums
from ranktrial.formats.database import SQLLog, connect
from ranktrial.formats.estimating import (
    Added,
    SummedEstimate,
    against_means,
    clicks_of_both,
    difference_in_means,
    estimate_sums,
    most_worth,
)
from ranktrial.formats.exporting import export
from ranktrial.formats.layout import LogFolder, create_tables
from ranktrial.formats.loading import load_postgres
from ranktrial.formats.sql import DIALECTS, Sums, _group, translated
from ranktrial.interval import Interval
from ranktrial.log import Log, UnitSums
from ranktrial.rankings import RequirementError
from ranktrial.trial import Trial
from simulated_trial import Ticks, World

from .engines import chdb_tables, postgres_server

NOWHERE = Interval(-np.inf, np.inf)
THETA = [1.0, 0.6, 0.45, 0.3, 0.25]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, LogFolder]:
    """A trial with designs of two thetas, units that come again, pages of unequal length, in memory and exported."""
    folder = tmp_path_factory.mktemp("trial")
    world = World.make(queries=12)
    world.a["q0"], world.b["q1"] = world.a["q0"][:3], world.b["q1"][:2]
    method = "LogOpt(holdback=0.5, schedule=(500, 1500))"
    with Trial.create(folder / "trial.db", k=5, background=False, clock=Ticks(), method=method, seed=3) as trial:
        world.run(trial, 1200, seed=1, users=900)
        trial.update()
        world.run(trial, 1800, seed=2, users=900)
        export(trial.store, trial.name, folder / "log")
        return trial.log(), LogFolder(folder / "log")


@pytest.fixture(scope="module", params=["duckdb", "postgres", "clickhouse"])
def engine(request: pytest.FixtureRequest, exported: tuple[Log, LogFolder]) -> Iterator[SQLLog]:
    folder = exported[1]
    if request.param == "duckdb":
        yield SQLLog(duckdb.connect(), folder.scan("impressions"), folder.scan("designs"))
    elif request.param == "clickhouse":
        dbapi = pytest.importorskip("chdb.dbapi", reason="needs chdb, which runs ClickHouse in the process")
        yield SQLLog(dbapi.connect(), *chdb_tables(folder))
    else:
        psycopg = pytest.importorskip("psycopg", reason="needs psycopg")
        with postgres_server() as address, psycopg.connect(address) as connection:
            load_postgres(connection, folder)
            yield SQLLog(connection)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["constant", "means"])
def test_the_same_as_in_memory_with_theta_given(
    estimator: str, engine: SQLLog, exported: tuple[Log, LogFolder]
) -> None:
    inside = estimate(exported[0], theta=THETA, estimator=estimator)
    there = estimate_sums(engine, theta=THETA)
    if estimator == "means":
        there = means_of(there)
    for name in ("delta", "standard_error", "effective_clicks", "largest_weight"):
        assert getattr(there, name) == pytest.approx(getattr(inside, name), rel=1e-11)
    assert (there.impressions, there.units) == (inside.impressions, inside.units)
    assert there.confidence_interval(0.9) == pytest.approx(inside.confidence_interval(0.9), rel=1e-10)
    assert there.anytime_interval(0.9) == pytest.approx(inside.anytime_interval(0.9), rel=1e-10)


def means_of(upper: SummedEstimate) -> SummedEstimate:
    assert upper.added is not None
    found = difference_in_means(upper.added)
    assert found is not None
    return found


@pytest.mark.slow
def test_the_same_as_in_memory_with_theta_fitted(engine: SQLLog, exported: tuple[Log, LogFolder]) -> None:
    inside = estimate(exported[0], theta="estimated", estimator="constant")
    there = estimate_sums(engine)
    assert inside.bias is not None
    assert there.bias is not None
    for name in ("theta", "standard_error", "covariance"):
        np.testing.assert_allclose(getattr(there.bias, name), getattr(inside.bias, name), rtol=1e-9, atol=1e-12)
    assert there.replicates is not None
    assert inside.replicates is not None
    np.testing.assert_allclose(there.replicates, inside.replicates, rtol=1e-10)
    assert there.delta == pytest.approx(inside.delta, rel=1e-11)
    assert there.standard_error == pytest.approx(inside.standard_error, rel=1e-9)
    assert there.clicks_alone == pytest.approx(inside.clicks_alone, rel=1e-9)
    assert there.confidence_interval() == pytest.approx(inside.confidence_interval(), rel=1e-9)
    assert there.anytime_interval() == pytest.approx(inside.anytime_interval(), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("fitted", [False, True], ids=["theta given", "theta fitted"])
def test_the_test_of_the_click_model_is_that_of_the_ladder(
    fitted: bool, engine: SQLLog, exported: tuple[Log, LogFolder]
) -> None:
    log = exported[0]
    fit, estimated = fit_position_bias(log) if fitted else None, partial(estimate, log, independent="cohorts")
    results = [
        EstimatorResult(POSITION_BASED, estimated(theta=fit or THETA, estimator="constant"), NOWHERE, ""),
        EstimatorResult(AB_TRAFFIC, estimated(estimator="means"), NOWHERE, ""),
    ]
    inside = _hausman(log, results[0], results[1], fit, 10_000)
    upper = estimate_sums(engine, theta=None if fitted else THETA)
    there = against_means(engine, upper)
    assert there is not None
    for name in ("difference", "standard_error", "reach"):
        assert getattr(there, name) == pytest.approx(getattr(inside, name), rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", [POSITION_BASED, AB_TRAFFIC])
def test_what_hostile_clicks_add_is_that_of_the_log(name: str, engine: SQLLog, exported: tuple[Log, LogFolder]) -> None:
    """On A/B pages each click counts one over the share of them that is its ranker's: here as they were, not as drawn."""
    log, upper = exported[0], estimate_sums(engine, theta=THETA)
    if name == AB_TRAFFIC:
        filled = (log.rankings[log.row] >= 0).sum(1)
        assert most_worth(means_of(upper)) == pytest.approx(
            [filled[log.arm == side].mean() for side in (1, -1)], rel=1e-12
        )
    else:
        result = EstimatorResult(name, estimate(log, theta=THETA, estimator="constant"), NOWHERE, "")
        inside = [most_worth_in_memory(log, result, side) for side in (1, -1)]
        assert most_worth(upper) == pytest.approx(inside, rel=1e-11)


@pytest.mark.slow
def test_clicks_of_both_rankers_are_those_of_the_log(engine: SQLLog, exported: tuple[Log, LogFolder]) -> None:
    log, added = exported[0], Added.of(engine, np.array(THETA))
    gain = estimate(log, theta=THETA, estimator="ips", of="gain", independent="cohorts").sums
    inside = UnitSums(gain.units, gain.impressions, log.cohorts.by(log.clicks_each) - gain.totals, gain.count)
    there = clicks_of_both(engine, added, np.array(THETA))
    assert there is not None
    assert (there.mean, there.standard_error) == pytest.approx((inside.mean, inside.standard_error), rel=1e-11)
    by_arms, difference = clicks_of_both(engine, added, None), difference_in_means(added)
    assert by_arms is not None
    assert difference is not None
    pages = [log.clicks_each[log.arm == side].mean() for side in (1, -1)]
    assert by_arms.mean == pytest.approx(np.mean(pages), rel=1e-12)
    # Two independent means: their errors add up as those of their difference do.
    assert by_arms.standard_error == pytest.approx(difference.standard_error / 2, rel=0.1)


@pytest.mark.slow
def test_exposure_disagreement_and_counts_are_those_of_the_log(engine: SQLLog, exported: tuple[Log, LogFolder]) -> None:
    log, added = exported[0], Added.of(engine, np.array(THETA))
    assert added["apart"] == pytest.approx(disagreements(log, np.array(THETA))[log.design].sum(), rel=1e-12)
    assert (added["impressions"], added["clicks"]) == (len(log), log.clicks.sum())
    assert added["units"] == len(np.unique(log.unit))


def test_exposure_disagreement_by_hand(tmp_path: Path) -> None:
    """Disagreement of xy and yz with theta 1, 1/2: |1 - 0| + |1/2 - 1| + |0 - 1/2| = 2 of 3. Same lists have 0, others 1."""
    theta = np.array([1.0, 0.5])
    lists = [(["x", "y"], ["y", "z"]), (["x", "y"], ["x", "y"]), (["x"], ["y", "z"])]
    with Trial.create(tmp_path / "t.db", k=2, background=False, clock=Ticks(), method="AB()", seed=1) as trial:
        for number, (a, b) in enumerate([lists[0], lists[0], lists[1], lists[2]]):
            trial.rank(f"q{lists.index((a, b))}", a, b, unit=f"u{number % 3}", wait=True)
        export(trial.store, trial.name, tmp_path / "log")
        log = trial.log()
    folder = LogFolder(tmp_path / "log")
    there = SQLLog(duckdb.connect(), folder.scan("impressions"), folder.scan("designs"))
    found = Added.of(there, theta)
    expected = 2 / 3 + 2 / 3 + 0 + 1
    assert found["apart"] == pytest.approx(expected, rel=1e-12)
    assert disagreements(log, theta)[log.design].mean() == pytest.approx(expected / 4, rel=1e-12)
    assert (found["impressions"], found["units"], found["clicks"]) == (4, 3, 0)


def test_only_sums_leave_the_engine(exported: tuple[Log, LogFolder]) -> None:
    log = SQLLog(duckdb.connect(), exported[1].scan("impressions"), exported[1].scan("designs"))
    rows = []
    fetch = log.sums

    def watched(query: str) -> dict[str, Any]:
        found = fetch(query)
        rows.append(len(next(iter(found.values()))))
        return found

    log.sums = watched  # type: ignore[method-assign]
    estimate_sums(log, theta=THETA)
    assert rows == [1, 5]


def test_a_theta_of_another_length_is_refused(exported: tuple[Log, LogFolder]) -> None:
    log = SQLLog(duckdb.connect(), exported[1].scan("impressions"), exported[1].scan("designs"))
    with pytest.raises(ValueError, match="theta has 2 ranks, the log k = 5"):
        estimate_sums(log, theta=[1.0, 0.5])


def test_a_document_that_could_not_be_seen_is_named(exported: tuple[Log, LogFolder]) -> None:
    connection = duckdb.connect()
    folder = exported[1]
    connection.execute(f"CREATE TABLE impressions AS FROM {folder.scan('impressions')}")
    connection.execute(f"CREATE TABLE designs AS FROM {folder.scan('designs')}")
    connection.execute("UPDATE designs SET documents = list_append(documents, 'ghost'), rank_a = list_append(rank_a, 5), "
                       "rank_b = list_append(rank_b, 0) WHERE query = 'q3'")  # fmt: skip
    with pytest.raises(RequirementError, match="query q3: document ghost"):
        estimate_sums(SQLLog(connection), theta=THETA)
    added = Added.of(SQLLog(connection), np.array(THETA))
    by_arms, by_model = (clicks_of_both(SQLLog(connection), added, one) for one in (None, np.array(THETA)))
    assert by_arms is not None
    assert by_model is not None
    assert by_model.mean == by_arms.mean  # a page with the ghost has clicks that the click model cannot tell
    left_out = estimate_sums(SQLLog(connection), theta=THETA, uncovered="leave out")
    inside = estimate(exported[0], theta=THETA, estimator="constant")
    assert left_out.delta == pytest.approx(inside.delta, rel=1e-11)
    connection.execute("UPDATE impressions SET arm = NULL")
    answer = by_sums(SQLLog(connection), theta=THETA, uncovered="leave out")
    assert np.isnan(answer.decision.lift.share)
    assert answer.note.startswith("These sums do not tell the difference in per cent")


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_query_can_be_read_in_every_dialect(dialect: str) -> None:
    sums, theta = Sums(1, k=2, rankings=3, documents=4), np.array([1.0, 0.5])
    queries = [
        sums.sizes,
        sums.moments(theta, folds=5),
        sums.largest(theta),
        sums.counts(20),
        sums.replicates([theta, theta], 2, [0.1, 0.2]),
        sums.moments(theta, folds=1, both=True),
        sums.largest(theta, both=True),
        sums.group_sizes(20),
    ]
    for query in queries:
        text = translated(query, dialect, "shop.impressions", "shop.designs")
        assert "log_" not in text
        assert sqlglot.parse_one(text, read=dialect).sql(dialect)
    for statement in create_tables(dialect).values():
        sqlglot.parse_one(statement, read=dialect)


@pytest.mark.slow
def test_a_clickhouse_that_cannot_make_tables_once_gives_the_same(exported: tuple[Log, LogFolder]) -> None:
    dbapi = pytest.importorskip("chdb.dbapi", reason="needs chdb, which runs ClickHouse in the process")
    log = SQLLog(dbapi.connect(), *chdb_tables(exported[1]))
    assert log._once
    log._once = False
    there, inside = estimate_sums(log, theta=THETA), estimate(exported[0], theta=THETA, estimator="constant")
    assert there.delta == pytest.approx(inside.delta, rel=1e-11)
    assert there.standard_error == pytest.approx(inside.standard_error, rel=1e-9)


def test_tables_are_made_once_where_clickhouse_can() -> None:
    query = "WITH a AS (SELECT 1 AS n) SELECT b.n FROM a AS b JOIN a AS c ON b.n = c.n"
    assert "a AS MATERIALIZED (" in translated(query, "clickhouse")
    assert "enable_materialized_cte" in translated(query, "clickhouse")
    for text in (translated(query, "clickhouse", once=False), translated(query, "postgres")):
        assert "materialized" not in text.lower()


def test_elements_count_from_zero_where_arrays_do() -> None:
    query = "SELECT d.rankings[p.place * 2 + 1], l.clicked[3] FROM log_designs AS d"
    for dialect, elements in (
        ("bigquery", "d.rankings[SAFE_OFFSET((p.place * 2 + 1) - 1)], l.clicked[SAFE_OFFSET(2)]"),
        ("snowflake", "d.rankings[(p.place * 2 + 1) - 1], l.clicked[2]"),
        ("postgres", "d.rankings[p.place * 2 + 1], l.clicked[3]"),
    ):
        assert translated(query, dialect) == f"SELECT {elements} FROM designs AS d"


def test_units_are_grouped_as_in_memory_whatever_their_sign() -> None:
    units = np.array([0, 7, -1, -20, 2**63 - 1, -(2**63), -13], np.int64)
    connection = duckdb.connect()
    connection.register("given", {"unit": units})
    told = connection.execute(f"SELECT {_group('unit', 20)} FROM given").fetchall()
    assert [group for (group,) in told] == (units.view(np.uint64) % np.uint64(20)).tolist()


def test_what_a_database_refuses_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"duckdb refuses a query of the log: .*Table with name nothing does not exist"
    ):
        SQLLog(duckdb.connect(), "nothing")
    pytest.importorskip("psycopg", reason="needs psycopg")
    address = f"postgresql://somebody:{PASSWORD}@/shop?host={tmp_path}"
    with pytest.raises(ValueError, match="PostgreSQL cannot be reached: ") as refusal:
        connect(address)
    assert PASSWORD not in str(refusal.value)
