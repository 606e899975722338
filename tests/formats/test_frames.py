"""Data frames in and out: the same digits from every library, dtypes that people have, and errors with column and row."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from benchmarks.purchases import Purchases

from ranktrial import (
    AB,
    Log,
    LogOpt,
    Pair,
    Trial,
    estimate,
    fit_position_bias,
    pair_from_frame,
    plan,
    read_log,
    to_frame,
)
from ranktrial.analysis.decision import Lift
from ranktrial.analysis.estimators.results import SegmentBias
from ranktrial.analysis.segments import SegmentAnswer
from ranktrial.formats import examine, export, position_bias, read_source
from ranktrial.interval import Interval
from ranktrial.segments import Segments
from ranktrial.trec.files import FormatError
from ranktrial.users import position_based
from simulated_trial import Ticks, World

THETA = [1.0, 0.6, 0.4]


def searches(n: int = 400) -> list[dict[str, Any]]:
    rng, records = np.random.default_rng(7), []
    lists = {f"q{q}": [rng.permutation([f"d{q}-{i}" for i in range(6)]).tolist() for _ in range(2)] for q in range(5)}
    for at in range(n):
        query = f"q{rng.integers(5)}"
        a, b = lists[query]
        arm = "a" if rng.random() < 0.5 else "b"
        shown = (a if arm == "a" else b)[:3]
        clicked = [d for d, seen in zip(shown, THETA) if rng.random() < 0.5 * seen]
        record = {"query": query, "a": a, "b": b, "shown": shown, "clicked": clicked, "arm": arm}
        records.append({**record, "unit": int(rng.integers(150)), "time": 1_767_225_600 + at})
    return records


RECORDS = searches()
KINDS: dict[str, Callable[[Sequence[dict[str, Any]]], Any]] = {
    "pandas": lambda rows: pd.DataFrame(list(rows)),
    "polars": lambda rows: pl.DataFrame(list(rows)),
    "lazy polars": lambda rows: pl.LazyFrame(list(rows)),
    "pyarrow": lambda rows: pa.Table.from_pylist(list(rows)),
    "duckdb": lambda rows: duckdb.from_arrow(pa.Table.from_pylist(list(rows))),
}


def pages(source: Any) -> list[Any]:
    found = source.connection.execute("SELECT time, unit, query, shown, clicked FROM impressions ORDER BY ALL")
    return list(found.fetchall())


# --- in -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_digits_from_all_of_them_and_from_files(tmp_path: Path) -> None:
    told: dict[str, Any] = {name: kind(RECORDS) for name, kind in KINDS.items()}
    pyarrow.parquet.write_table(told["pyarrow"], tmp_path / "log.parquet")
    told["pandas"].to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    logs = {name: read_log(frame, k=3) for name, frame in told.items()}
    logs |= {f"file {suffix}": read_log(tmp_path / f"log{suffix}", k=3) for suffix in (".parquet", ".jsonl")}
    found = {}
    for name, log in logs.items():
        bias = fit_position_bias(log).bias
        results = [estimate(log, estimator=one) for one in ("means", "rank-aware")]
        found[name] = [*bias.theta, *(number for one in results for number in (one.delta, one.standard_error))]
    assert all(one == found["pandas"] for one in found.values()), found
    assert len(logs["duckdb"]) == len(RECORDS)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_have_the_names_that_files_may_have(kind: str) -> None:
    rows = [{"term": one["query"], "sku": d, "rank": r, "click": int(d in one["clicked"]), "serp": at, "who": one["unit"]}
            for at, one in enumerate(RECORDS) for r, d in enumerate(one["shown"], 1)]  # fmt: skip
    columns = {"query": "term", "impression": "serp", "unit": "who"}
    source = read_source(KINDS[kind](rows), columns=columns)
    assert (source.format, source.kind, source.name, source.rows) == ("flat", "pages", "data frame", len(rows))
    assert position_bias(source).k == 3
    with pytest.raises(FormatError, match="data frame: there is no column 'words'; columns: term, sku"):
        read_source(KINDS[kind](rows), columns={"query": "words"})


FLAT = {"query": ["q", "q", "r"], "document": ["1", "2", "1"], "position": [1, 2, 1], "clicked": [1, 0, 0]}
FLAT |= {"impression": [1, 1, 2], "unit": ["u", "u", "v"], "time": [1_767_225_600.25] * 2 + [1_767_225_601.0]}
TIMES = pd.to_datetime(["2026-01-01 00:00:00.25"] * 2 + ["2026-01-01 00:00:01.0"])
DTYPES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "categories": lambda frame: frame.assign(
        query=frame["query"].astype("category"), unit=pd.Categorical(frame["unit"])
    ),
    "nullable integers": lambda frame: frame.astype({"position": "Int64", "clicked": "Int8", "impression": "UInt32"}),
    "strings of numbers": lambda frame: frame.astype({"position": str, "clicked": str, "time": str}),
    "numbers for text": lambda frame: frame.astype({"document": int}),
    "floats because one is missing": lambda frame: frame.astype({"document": float, "position": float}),
    "booleans": lambda frame: frame.astype({"clicked": bool}),
    "nullable booleans": lambda frame: frame.astype({"clicked": "boolean"}),
    "objects": lambda frame: frame.astype(object),
    "Arrow strings": lambda frame: frame.astype({"query": "string[pyarrow]", "document": "string[pyarrow]"}),
    "milliseconds": lambda frame: frame.assign(time=(frame["time"] * 1000).astype("int64")),
    "times without a zone": lambda frame: frame.assign(time=TIMES),
    "times with a zone": lambda frame: frame.assign(time=TIMES.tz_localize("UTC").tz_convert("America/New_York")),
    "nanoseconds": lambda frame: frame.assign(time=TIMES.astype("datetime64[ns]")),
    "an index": lambda frame: frame.set_index(np.array([7, 7, 9])),
    "an index with a name": lambda frame: frame.set_index("query"),
}


@pytest.mark.parametrize("dtypes", DTYPES)
def test_dtypes_that_people_have(dtypes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    plain = pd.DataFrame(FLAT)
    assert pages(read_source(DTYPES[dtypes](plain))) == pages(read_source(plain))


def test_categories_of_polars() -> None:
    frame = pl.DataFrame(FLAT)
    cast = frame.with_columns(pl.col("query").cast(pl.Categorical), pl.col("unit").cast(pl.Enum(["u", "v"])))
    assert pages(read_source(cast)) == pages(read_source(frame))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("row", "change", "message"),
    [
        (3, {"position": 0}, "data frame:3: position is 0, must count from 1"),
        (2, {"clicked": 7}, "data frame:2: clicked must be 1 or 0"),
        (1, {"document": None}, "data frame:1: document is missing"),
        (3, {"time": -1.0}, "data frame:3: time must be seconds since 1970, or a date and time"),
        (2, {"document": "1"}, "data frame:1: impression 1 shows 1 twice (and 1 more rows are wrong)"),
    ],
)
def test_what_is_wrong_has_its_column_and_row(kind: str, row: int, change: dict[str, Any], message: str) -> None:
    rows: list[dict[str, Any]] = [dict(zip(FLAT, values)) for values in zip(*FLAT.values())]
    rows[row - 1] |= change
    with pytest.raises(FormatError) as refusal:
        read_source(KINDS[kind](rows))
    assert str(refusal.value) == message
    assert read_source(KINDS[kind](rows), skip=True).skipped == message.count("more") + 1


def test_a_column_of_several_types_is_named_with_its_row() -> None:
    frame = pd.DataFrame(FLAT).assign(document=[None, 7, "x"])
    with pytest.raises(
        FormatError, match="data frame:3: document is 'x', str, and int in the rows before: must be of one"
    ):
        read_source(frame)


def test_what_is_no_frame_is_refused() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["query", "query"])
    with pytest.raises(FormatError, match="data frame: Expected unique column names"):
        read_source(twice)
    with pytest.raises(TypeError, match="a log is a path or a data frame, not list"):
        read_log([{"query": "q"}])  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="data frame: there is no row in it"):
        read_source(pd.DataFrame(FLAT).head(0))


def test_the_doctor_looks_at_frames() -> None:
    found = examine(pd.DataFrame(RECORDS))
    assert found.sound
    assert found.findings[0].text == "400 rows, read as impressions; none is wrong"


def test_insights_of_users_in_two_frames() -> None:
    queries = pl.DataFrame({"query_id": ["1"], "user_query": ["shoes"], "query_response_hit_ids": [["x", "y"]]})
    attributes = [{"object": {"object_id": "y"}, "position": {"ordinal": 2}}]
    events = pl.DataFrame({"action_name": ["click"], "query_id": ["1"], "event_attributes": attributes})
    source = read_source(queries, events=events)
    assert pages(source)[0][2:] == ("shoes", ["x", "y"], [0, 1])


# --- pairs --------------------------------------------------------------------------------------------------------------

LISTS = [{"query": "q", "a": ["x", "y"], "b": ["y", "z"]}, {"query": "p", "a": ["u"], "b": []}]
RESULTS = [
    {"query": one["query"], "ranker": name, "sku": document, "rank": rank}
    for one in LISTS
    for name in "ba"
    for rank, document in enumerate(one[name], 1)
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [LISTS, RESULTS], ids=["lists", "results"])
def test_a_pair_of_rankers(kind: str, rows: list[dict[str, Any]]) -> None:
    pair = pair_from_frame(KINDS[kind](rows), k=2)
    assert pair.queries == ("q", "p")
    assert pair.ids == ("x", "y", "z", "u")
    assert pair.top_a.tolist() == [[0, 1], [3, -1]]
    assert pair.top_b.tolist() == [[1, 2], [-1, -1]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*LISTS, LISTS[0]], "data frame:3: query q is in row 1 already"),
        ([{**LISTS[0], "b": ["y", "y"]}], "data frame:1: b has an id twice, or an empty one"),
        ([*RESULTS, {**RESULTS[0], "ranker": "c"}], "data frame:6: ranker must be a or b"),
        ([*RESULTS, {**RESULTS[0], "sku": "w"}], "data frame:1: query q has two results of b at rank 1 (and 1 more"),
        ([*RESULTS, {**RESULTS[0], "rank": 9}], "data frame:1: query q has y twice of b (and 1 more"),
        ([{"query": "q", "a": ["x"]}], "data frame: columns are query, a, must be query, a, b; or query, document"),
    ],
)
def test_what_is_wrong_with_a_pair(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(FormatError) as refusal:
        pair_from_frame(pl.DataFrame(rows), k=2)
    assert str(refusal.value).startswith(message)


# --- out ----------------------------------------------------------------------------------------------------------------


def as_dict(frame: Any) -> dict[str, list[Any]]:
    """Columns of a frame, with None where a value is missing."""
    if isinstance(frame, pd.DataFrame):
        return as_dict(pa.Table.from_pandas(frame, preserve_index=False))
    if isinstance(frame, pa.Table):
        return {str(name): frame[name].to_pylist() for name in frame.column_names}
    assert isinstance(frame, pl.DataFrame)
    return dict(frame.to_dict(as_series=False))


PAIR = Pair.from_lists([["a", "b", "c"], ["p", "q"]], [["b", "c", "a"], ["q", "r"]], k=2).knowing(theta=[1.0, 0.6])
VISITORS = position_based([0.5, 0.3, 0.2, 0.6, 0.4, 0.1], [1.0, 0.6])


def results(tmp_path: Path) -> dict[str, Any]:
    log = Log.simulated(PAIR, AB().policy(PAIR), VISITORS, 5_000, seed=1)
    with Trial.create(tmp_path / "t.db", k=2) as trial:
        shown = trial.rank("red shoes", a=["1", "2"], b=["2", "3"], unit="user-17")
        trial.click(shown.id, shown.ranking[0])
        report = trial.report()
    fit = fit_position_bias(log)
    planned = plan(PAIR, VISITORS, methods=[AB()])
    return {"report": report, "estimate": estimate(log), "plan": planned, "theta": fit, "bias": fit.bias, "pair": PAIR,
            "log": log.first(20)}  # fmt: skip


def test_every_result_is_a_frame_of_every_library(tmp_path: Path) -> None:
    for name, result in results(tmp_path).items():
        frames = [as_dict(to_frame(result, backend)) for backend in ("pandas", "polars", "pyarrow")]
        assert repr(frames[1]) == repr(frames[2]), name
        assert list(frames[0]) == list(frames[1]), name
        assert {len(column) for column in frames[0].values()} == {len(next(iter(frames[1].values())))}, name


def test_what_frames_of_results_say(tmp_path: Path) -> None:
    told = results(tmp_path)
    found = as_dict(to_frame(told["estimate"], "polars"))
    assert (found["delta"], found["standard_error"]) == ([told["estimate"].delta], [told["estimate"].standard_error])
    assert found["low"] == [told["estimate"].confidence_interval().low]
    theta = as_dict(to_frame(told["theta"], "polars"))
    assert theta == as_dict(to_frame(told["bias"], "polars"))
    assert theta["rank"] == [1, 2]
    assert theta["theta"] == told["bias"].theta.tolist()
    assert as_dict(to_frame(told["plan"], "polars"))["method"] == [row.method for row in told["plan"].rows]
    report = to_frame(told["report"], "polars")
    assert (
        report.row(by_predicate=pl.col("name") == "clicks per search shown", named=True)["value"] == told["report"].ctr
    )
    with pytest.raises(TypeError, match=r"a frame is made of Report, Estimate, .*, not of int"):
        to_frame(7)
    with pytest.raises(ValueError, match="backend is 'duckdb', must be"):
        to_frame(told["bias"], "duckdb")


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("method", [AB(), LogOpt()], ids=str)
def test_a_log_that_became_a_frame_is_read_again(method: Any, backend: str) -> None:
    log = Log.simulated(PAIR, method.policy(PAIR), VISITORS, 2_000, seed=3)
    again = read_log(to_frame(log, backend), k=2)
    assert len(again) == len(log)
    fits = [fit_position_bias(one).bias.theta for one in (again, log)]
    np.testing.assert_allclose(fits[0], fits[1], rtol=1e-9)
    for options in ({"estimator": "ips"}, {"prediction": 0.3}):
        found, told = (estimate(one, theta=[1.0, 0.6], **options) for one in (again, log))
        np.testing.assert_allclose([found.delta, found.standard_error], [told.delta, told.standard_error], rtol=1e-12)


def test_a_pair_that_became_a_frame_is_read_again() -> None:
    again = pair_from_frame(to_frame(PAIR), k=2)
    assert again.ids == PAIR.ids
    assert again.queries == ("0", "1")
    np.testing.assert_array_equal(again.top_b, PAIR.top_b)


@pytest.mark.slow
def test_importing_formats_loads_no_library_of_frames() -> None:
    code = (
        "import ranktrial.formats, sys; sys.exit(bool({'narwhals', 'pyarrow', 'pandas', 'polars'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_frame_says_which_extra_it_wants() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from ranktrial import to_frame, Pair\n"
    code += "to_frame(Pair.from_lists([['x']], [['y']], k=1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "a data frame needs pyarrow: pip install 'ranktrial[frames]'" in done.stderr


# --- methods and arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_and_fits_take_frames(kind: str) -> None:
    log = read_log(KINDS[kind](RECORDS), k=3)
    rows = [{**one, "term": one["query"]} for one in RECORDS]
    for row in rows:
        del row["query"]
    frame = KINDS[kind](rows)
    named = {"query": "term"}
    found, told = estimate(frame, columns=named, estimator="means"), estimate(log, estimator="means")
    assert (found.delta, found.standard_error) == (told.delta, told.standard_error)
    assert fit_position_bias(frame, columns=named).bias.theta.tolist() == fit_position_bias(log).bias.theta.tolist()
    assert repr(Log.from_frame(frame, columns=named)) == repr(log)


def test_what_is_no_frame_and_no_log_is_refused_by_estimates() -> None:
    with pytest.raises(TypeError, match="log is list, must be a Log or a data frame"):
        estimate(RECORDS)
    with pytest.raises(ValueError, match="columns name those of a data frame, not of a Log"):
        fit_position_bias(Log.from_frame(pd.DataFrame(RECORDS)), columns={"query": "term"})
    wrong = pd.DataFrame(RECORDS).assign(clicked=[["nothing"]] + [[]] * (len(RECORDS) - 1))
    with pytest.raises(FormatError, match="data frame:1: clicked nothing is not among the 3 results shown"):
        estimate(wrong)


def test_methods_are_the_functions(tmp_path: Path) -> None:
    for name, result in results(tmp_path).items():
        assert repr(as_dict(result.to_frame("polars"))) == repr(as_dict(to_frame(result, "polars"))), name
    assert Pair.from_frame(to_frame(PAIR), k=2).ids == PAIR.ids


@pytest.mark.slow
def test_the_same_digits_from_the_store_its_export_and_frames_of_it(tmp_path: Path) -> None:
    """With theta fitted to the log its error is by groups of visitors: frames number these anew, an export does not."""
    devices = {"device": ["phone", "desktop"]}
    store, world = tmp_path / "t.db", World.make(queries=8)
    options: dict[str, Any] = {"background": False, "clock": Ticks(), "seed": 2, "method": 'AB(estimate="rank-aware")'}
    with Trial.create(store, k=5, segments=devices, **options) as trial:
        world.run(trial, 300, seed=1, users=100)
        log = trial.log()
        export(trial.store, trial.name, tmp_path / "log")
    logs = {"folder": read_log(tmp_path / "log")}
    logs |= {backend: Log.from_frame(log.to_frame(backend)) for backend in ("pandas", "polars", "pyarrow")}
    pyarrow.parquet.write_table(log.to_frame("pyarrow"), tmp_path / "log.parquet")
    logs["Parquet"] = read_log(tmp_path / "log.parquet")

    def digits(log: Log) -> list[float]:
        theta = fit_position_bias(log).bias.theta
        found = [estimate(log, theta=theta, estimator=one) for one in ("ips", "rank-aware", "direct", "adjusted")]
        return [*theta, *(number for one in found for number in (one.delta, one.standard_error))]

    told = digits(log)
    assert all(digits(one) == told for one in logs.values())
    assert estimate(logs["folder"]).standard_error == estimate(log).standard_error
    assert estimate(logs["polars"]).delta == estimate(log).delta


def test_a_frame_of_a_log_keeps_attributes_covariates_and_events() -> None:
    log = Log.simulated(PAIR, AB().policy(PAIR), VISITORS, 500, seed=3)
    attributes = Segments.of({"device": ["phone", "desktop"], "new": ["yes"]})
    codes = np.arange(500) % attributes.size
    log = replace(log, time=log.time * 1_000_000 + 17, attributes=attributes, segment=codes)
    known = np.random.default_rng(5).normal(size=(500, 2))
    log = replace(log, covariates=np.where(known > 1, np.nan, known), covariate_names=("age", 'clicks "last" month'))
    log = Purchases(rate=0.6, amount=9.99, spread=1.0, delay=3_600).after(log, seed=4)
    again = Log.from_frame(log.to_frame("polars"), k=2)
    assert again.covariate_names == log.covariate_names
    np.testing.assert_array_equal(again.covariates, log.covariates)
    for name in ("at", "rank", "amount", "delay"):
        np.testing.assert_array_equal(getattr(again.events, name), getattr(log.events, name))
    for name in attributes.names:
        values = ([one.attributes.values(name)[level] for level in one.levels(name)] for one in (again, log))
        assert next(values) == next(values)


def test_theta_and_answers_by_segment_are_frames() -> None:
    values = ("other", "phone", "desktop")
    thetas = np.array([[1, 0.5], [1, 0.3], [1, 0.7]])
    without = np.stack([thetas, thetas], axis=1)
    found = as_dict(SegmentBias("device", values, thetas, without, (1, 2), 0.001).to_frame("polars"))
    assert found["value"] == ["phone", "phone", "desktop", "desktop"]
    assert (found["rank"], found["theta"]) == ([1, 2, 1, 2], [1, 0.3, 1, 0.7])
    answer = SegmentAnswer("device", "phone", 10, 9, 8, 0.5, 0.1, Interval(-0.1, 0.3), Lift(0.2), 0.05)
    told = as_dict(to_frame([answer, answer], "polars"))
    assert (told["value"], told["low"], told["lift"]) == (["phone"] * 2, [-0.1] * 2, [0.2] * 2)
