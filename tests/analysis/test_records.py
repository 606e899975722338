"""Events and attributes in records of a site: as in files, exact, each once, and refused where they make no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranktrial.analysis.estimators.metric_values import metric_values
from ranktrial.formats import read_log
from ranktrial.log import Log
from ranktrial.metrics import Orders, Revenue
from ranktrial.segments import MOST_VALUES

START = 1_767_225_600
SEARCH: dict[str, Any] = {"query": "q", "a": ["x", "y", "w"], "b": ["y", "z", "v"], "clicked": []}
ROWS: list[dict[str, Any]] = [
    {
        **SEARCH, "shown": ["y", "z", "v"], "time": START + 60, "segment": {"device": "phone", "new": "yes"},
        "events": [
            {"document": "z", "action": "order", "value": "39.90", "time": START + 90, "event_id": "4711"},
            {"document": "z", "action": "order", "value": "9.90", "time": START + 80, "event_id": "4711"},
            {"document": "z", "action": "order", "value": -0.1, "time": START + 70},
            {"document": "v", "action": "order", "value": 5, "time": START + 70},
        ],
    },
    {
        **SEARCH, "shown": ["x", "y", "w"], "time": START, "segment": {"device": "phone", "new": None},
        "events": [{"document": "y", "action": "cart", "time": START - 30}] * 2,
    },
    {**SEARCH, "shown": ["x", "y", "w"], "time": START + 30, "segment": {"device": "desktop"}, "events": None},
]  # fmt: skip


def test_events_and_attributes_are_those_of_the_same_rows_in_a_file(tmp_path: Path) -> None:
    """Searches are ordered by time; what happened on results beyond the first k does not count."""
    log = Log.from_records(ROWS, k=2)
    assert log.actions == ("cart", "order")
    assert log.events.at.tolist() == [0, 2, 2]
    assert log.events.rank.tolist() == [1, 1, 1]
    assert log.events.amount.tolist() == [0, -100_000, 39_900_000]
    assert log.events.delay.tolist() == [0, 10_000_000, 30_000_000]
    assert log.read_at == (START + 90) * 1_000_000
    assert [log.attributes.decoded(int(code)) for code in log.segment] == [
        {"device": "phone", "new": "other"}, {"device": "desktop", "new": "other"}, {"device": "phone", "new": "yes"},
    ]  # fmt: skip
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    read = read_log(file, k=2)
    assert (read.actions, read.read_at, read.attributes) == (log.actions, log.read_at, log.attributes)
    assert read.segment.tolist() == log.segment.tolist()
    for metric in (Orders(window="25s"), Revenue(window="25s"), Revenue(window="1min")):
        found, expected = metric_values(read, metric), metric_values(log, metric)
        assert (found.each.tolist(), found.waiting) == (expected.each.tolist(), expected.waiting)


def test_without_times_of_events_all_of_them_count() -> None:
    orders = [
        {"document": "y", "action": "order", "value": value, "event_id": value} for value in ("39.90", "0.1", "0.2")
    ]
    again = {**orders[0], "value": 7, "document": "x"}  # replaces nothing
    row = {**SEARCH, "shown": ["x", "y", "w"], "time": START, "events": [*orders, again]}
    log = Log.from_records([row, {**row, "events": orders[:1]}], k=2)
    assert log.read_at is None
    assert metric_values(log, Revenue()).each.tolist() == [40.2, 39.9]
    until = Log.from_records([row, row], k=2, read_at="2026-01-08")
    assert until.read_at == (START + 7 * 86_400) * 1_000_000
    assert metric_values(until, Orders(window="7d")).each.tolist() == [3, 3]
    assert metric_values(until, Orders(window="8d")).waiting == 2


def test_records_without_events_and_attributes_have_none() -> None:
    log = Log.from_records([{**SEARCH, "shown": ["x", "y", "w"]}] * 2, k=2)
    assert (len(log.events), log.actions, log.read_at, bool(log.attributes), len(log.segment)) == (
        0,
        (),
        None,
        False,
        0,
    )


def test_the_most_frequent_values_of_attributes_count() -> None:
    numbers = np.repeat(np.arange(MOST_VALUES + 5), 2 + (np.arange(MOST_VALUES + 5) > 4))
    rows = [{**SEARCH, "shown": ["x", "y", "w"], "segment": {"shop": f"shop {number}"}} for number in numbers]
    log = Log.from_records(rows, k=2)
    assert (log.levels("shop") == 0).tolist() == (numbers < 5).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"events": [{"action": "order"}]}, "record 1: event 1: there is no 'document'"),
        ({"events": [{"document": "x", "action": "Order"}]}, "event 1: action is 'Order', must be 1 to 40 lower-case"),
        ({"events": [{"document": "x", "action": "click"}]}, "clicks are not events"),
        ({"events": [{"document": "z", "action": "order"}]}, "document 'z' is not among the 3 results shown"),
        ({"events": [{"document": "x", "action": "order", "value": "much"}]}, "value is 'much', must be a number"),
        (
            {"events": [{"document": "x", "action": "order", "amount": 1}]},
            "the key 'amount' is not known; keys are document",
        ),
        ({"events": [{"document": "x", "action": "order", "time": START}]}, "it has a time, its search has none"),
        (
            {"time": START, "events": [{"document": "x", "action": "order", "time": START - 61}]},
            "it happened 61 s before its search",
        ),
        ({"segment": "phone"}, "record 1: segment is 'phone', must be attributes and their values"),
        ({"segment": {"device": 7}}, "record 1: segment is .'device': 7., must be"),
    ],
)
def test_events_and_attributes_without_sense_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Log.from_records([{**SEARCH, "shown": ["x", "y", "w"], **change}], k=2)
