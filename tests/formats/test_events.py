"""Attributes of searches, covariates and events: in files, frames and folders, and in the log that is read from these."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ranktrial import Log
from ranktrial.formats import examine, read_log, read_source, save
from ranktrial.trec.files import FormatError

START = 1_767_225_600
SEARCH = {"query": "q", "a": ["x", "y"], "b": ["y", "z"], "clicked": []}
ROWS: list[dict[str, Any]] = [
    {**SEARCH, "impression": "s1", "shown": ["x", "y"], "time": START, "device": "phone"},
    {**SEARCH, "impression": "s2", "shown": ["y", "z"], "time": START + 10, "device": "desktop"},
    {**SEARCH, "impression": "s3", "shown": ["y", "z"], "time": START + 20, "device": None},
    {**SEARCH, "impression": "s4", "shown": ["x", "y"], "time": START + 30, "device": "phone"},
]
EVENTS: list[dict[str, Any]] = [
    {"impression": "s2", "document": "z", "action": "order", "value": "39.90", "time": START + 70},
    {"impression": "s2", "document": "z", "action": "order", "value": "-9.9", "time": START + 90},
    {"impression": "s1", "document": "y", "action": "cart", "value": None, "time": START + 5},
    {"impression": "s9", "document": "y", "action": "cart", "value": None, "time": START + 5},
    {"impression": "s1", "document": "z", "action": "cart", "value": None, "time": START + 5},
]


def happened(log: Log) -> list[tuple[int, int, str, int, int]]:
    """Impression, rank, action, amount in millionths, delay in seconds."""
    events = log.events
    numbers = (column.tolist() for column in (events.at, events.rank, events.amount, events.delay // 1_000_000))
    rows = zip(*numbers, (log.actions[action] for action in events.action))
    return [(at, rank, action, amount, delay) for at, rank, amount, delay, action in rows]


WHOLE = [(0, 1, "cart", 0, 5), (1, 1, "order", 39_900_000, 60), (1, 1, "order", -9_900_000, 80)]


def test_events_of_a_file_of_their_own(tmp_path: Path) -> None:
    """Amounts are exact; what happened after other searches, or to results not shown, is left out and counted."""
    source = read_source(pl.DataFrame(ROWS), events=pl.DataFrame(EVENTS))
    assert source.notes == ("events left out: 1 of searches that are not in the log, 1 on results that were not shown",)
    files = []
    for name, rows in (("searches", ROWS), ("events", EVENTS)):
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_log(files[0], events=files[1], segments=["device"])
    assert happened(log) == WHOLE
    assert log.read_at == (START + 90) * 1_000_000  # the last time in the log
    assert read_log(files[0], events=files[1], read_at=START + 1_000).read_at == (START + 1_000) * 1_000_000
    assert log.attributes.attributes == (("device", ("phone", "desktop")),)
    assert log.levels("device").tolist() == [1, 2, 0, 1]


def test_events_and_attributes_within_the_rows_of_searches(tmp_path: Path) -> None:
    by_search: dict[str, list[Any]] = {}
    for row in EVENTS:
        by_search.setdefault(row["impression"], []).append({**row, "impression": None})
    rows = [
        {**row, "events": by_search.get(row["impression"], []), "segment": {"device": row["device"], "new": True}}
        for row in ROWS
    ]
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_log(file)
    assert happened(log) == WHOLE
    assert log.attributes.attributes == (("device", ("phone", "desktop")), ("new", ("true",)))
    assert log.levels("device").tolist() == [1, 2, 0, 1]
    told = [{**row, "segment": json.dumps(row["segment"]), "events": json.dumps(row["events"])} for row in rows]
    for row in told:
        del row["device"]
    frame = read_log(pl.DataFrame(told))
    assert happened(frame) == WHOLE
    assert frame.levels("device").tolist() == [1, 2, 0, 1]


def test_a_folder_keeps_them(tmp_path: Path) -> None:
    save(read_source(pl.DataFrame(ROWS), events=pl.DataFrame(EVENTS), segments=["device"]), tmp_path / "log")
    log = read_log(tmp_path / "log")
    assert happened(log) == WHOLE
    assert (log.levels("device").tolist(), log.read_at) == ([1, 2, 0, 1], (START + 90) * 1_000_000)


KNOWN: list[dict[str, Any]] = [{"age": 30, "clicks": 2.5}, {"age": None, "clicks": 0.1}, {}, {"clicks": 4.0}]
COVARIATES = [[30, 2.5], [np.nan, 0.1], [np.nan, np.nan], [np.nan, 4]]


def test_covariates_are_keys_of_a_column_or_columns(tmp_path: Path) -> None:
    """In files, frames and folders, and as of records; what is empty or not a number of a frame is missing."""
    rows = [{**row, "covariates": known} for row, known in zip(ROWS, KNOWN)]
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for log in (
        read_log(file),
        read_log(pl.DataFrame([{**row, "covariates": json.dumps(row["covariates"])} for row in rows])),
        read_log(
            pl.DataFrame([{**row, **known} for row, known in zip(ROWS, KNOWN)], strict=False),
            covariates=["age", "clicks"],
        ),
        read_log(pd.DataFrame([{**row, **known} for row, known in zip(ROWS, KNOWN)]), covariates=["age", "clicks"]),
        read_log(
            pl.DataFrame(
                [{**row, "years": known.get("age"), **known} for row, known in zip(ROWS, KNOWN)], strict=False
            ),
            columns={"age": "years"},
            covariates=["age", "clicks"],
        ),
    ):
        assert log.covariate_names == ("age", "clicks")
        np.testing.assert_array_equal(log.covariates, COVARIATES)
    assert read_log(file, covariates=["clicks"]).covariate_names == ("clicks",)
    assert read_log(file, covariates=["clicks"]).covariates.tolist()[1] == [0.1]
    save(read_source(file), tmp_path / "log")
    assert read_log(tmp_path / "log").covariate_names == ("age", "clicks")
    np.testing.assert_array_equal(read_log(tmp_path / "log").covariates, COVARIATES)
    records = [{**row, "covariates": known} for row, known in zip(ROWS, [{"age": 30, "clicks": 2.5}, {"clicks": 0.1}])]
    records = [{key: row[key] for key in row if key not in ("device", "impression")} for row in records]
    np.testing.assert_array_equal(Log.from_records(records, k=2).covariates, COVARIATES[:2])


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"age": "old"}], {"covariates": ["age"]}, "data frame:1: age is old, must be a number"),
        ([{"age": "1e31"}], {"covariates": ["age"]}, "data frame:1: age is 1e31, must be a number"),
        ([{"covariates": '{"a": [1]}'}], {}, "data frame:1: a is [1], must be a number"),
        ([{"covariates": "3"}], {}, "data frame:1: covariates are 3, must be an object of numbers"),
        ([{}], {"covariates": ["age"]}, "there is no column 'age' to adjust by"),
        ([{"covariates": json.dumps(dict.fromkeys("abcdef", 1))}], {}, "must be at most 5, each once"),
        ([{}], {"covariates": ["age", "age"]}, "must be at most 5, each once"),
    ],
)
def test_wrong_covariates_are_named(rows: list[Any], options: Any, message: str) -> None:
    frame = pl.DataFrame([{**row, **more} for row, more in zip(ROWS, rows)], infer_schema_length=None)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_source(frame, **options)


def test_covariates_are_of_searches_with_both_lists() -> None:
    row = {"query": "q", "document": "x", "position": 1, "clicked": 1, "age": 3}
    with pytest.raises(
        FormatError, match=r"covariates are of searches with both lists \(format impressions\), not flat"
    ):
        read_source(pl.DataFrame([row]), covariates=["age"])


def test_check_says_whether_covariates_can_be_used() -> None:
    rows = [
        {**row, "unit": unit, "age": age, "now": now, "same": 1, "none": None}
        for row, unit, age, now in zip(ROWS, ["u", "u", "v", "w"], [3, 3, 5, None], [1, 2, 3, 4])
    ]
    found = examine(pl.DataFrame(rows), covariates=["age", "now", "same", "none"]).findings
    told = {one.name: (one.status, one.text) for one in found if one.name.startswith("covariate")}
    assert told["covariate age"] == ("note", "known of 2 of 3 visitors, mean 4, standard deviation 1")
    assert told["covariate now"][0] == "warn"
    assert "it changes between searches of 1 of them" in told["covariate now"][1]
    assert [told[f"covariate {name}"][0] for name in ("same", "none")] == ["warn", "warn"]
    assert told["covariate same"][1].endswith("it tells nobody from others, and nothing is adjusted by it")


def test_the_same_row_twice_is_one_event_and_two_ids_are_two() -> None:
    twice = [EVENTS[0], EVENTS[0]]
    assert len(read_log(pl.DataFrame(ROWS), events=pl.DataFrame(twice)).events) == 1
    ids = [{**EVENTS[0], "event_id": id} for id in ("1", "2", "2")]
    assert len(read_log(pl.DataFrame(ROWS), events=pl.DataFrame(ids)).events) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": "Order!"}, "data frame:2: action is Order!, must be 1 to 40 lower-case letters, digits, _ or -"),
        ({"value": "much"}, "data frame:2: value is much, must be a number"),
        ({"document": None}, "data frame:2: an event without a document"),
        ({"time": -5}, "data frame:2: time is -5, must be seconds since 1970, or a date and time"),
        ({"time": START - 90}, "data frame:2: an event 100 s before its search"),
    ],
)
def test_wrong_events_are_named(change: dict[str, Any], message: str) -> None:
    rows = pl.DataFrame([EVENTS[2], {**EVENTS[0], **change}], infer_schema_length=None)
    with pytest.raises(FormatError) as refusal:
        read_source(pl.DataFrame(ROWS), events=rows)
    assert str(refusal.value) == message
    assert read_source(pl.DataFrame(ROWS), events=rows, skip=True).skipped == 1


def test_what_events_and_attributes_need_is_said() -> None:
    frame, events = pl.DataFrame(ROWS), pl.DataFrame(EVENTS)
    with pytest.raises(FormatError, match="there is no column 'action', which events need; columns: impression"):
        read_source(frame, events=events.drop("action"))
    with pytest.raises(FormatError, match="there is no column 'impression', by which events name their search"):
        read_source(frame.drop("impression"), events=events)
    with pytest.raises(FormatError, match="there is no column 'country' to answer by; columns: query, a, b"):
        read_source(frame, segments=["country"])
    with pytest.raises(FormatError, match="data frame:1: events must be a list of objects"):
        read_source(frame.with_columns(events=pl.lit("x")))


def test_rare_values_are_other() -> None:
    """At most 60 values in all, the most frequent; what no attribute may have is never one."""
    rows = [{**ROWS[0], "device": f"model {n}" if n else "other"} for n in range(70)] + [
        {**ROWS[0], "device": "model 69"}
    ]
    source = read_source(
        pl.DataFrame([{**row, "impression": f"{n}"} for n, row in enumerate(rows)]), segments=["device"]
    )
    values = source.latest.attributes.values("device")
    assert (values[:2], len(values)) == (("other", "model 69"), 61)
