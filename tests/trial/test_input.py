"""Input of a trial: ids of every make, reasons of fallbacks that say what is wrong, clicks that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import Clock
from live_server import A, B
from ranktrial.client import Client
from ranktrial.trial import Trial
from ranktrial.trial.clicks import ClickOutcome

pandas = pytest.importorskip("pandas")


class Sku(StrEnum):
    ONE = "sku-1"
    TWO = "sku-2"


@pytest.fixture
def trial(tmp_path: Path, clock: Clock) -> Iterator[Trial]:
    with Trial.create(tmp_path / "t.db", k=3, seed=5, background=False, timeout=60.0, clock=clock) as made:
        yield made


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        (np.array(["x", "y", "z"]), ["x", "y", "z"]),
        (np.array([7, 8, 9]), ["7", "8", "9"]),
        ([np.str_("x"), np.int64(8), np.uint8(9)], ["x", "8", "9"]),
        ((7, "x", 8), ["7", "x", "8"]),
        (pandas.Series(["x", "y", "z"], index=[5, 3, 4]), ["x", "y", "z"]),
        (pandas.Series([7, 8, 9]), ["7", "8", "9"]),
        (pandas.Series(["x", "y"], dtype="category"), ["x", "y"]),
        (pandas.Index([3, 1]), ["3", "1"]),
        (list(Sku), ["sku-1", "sku-2"]),
        ([2**70, -1], [str(2**70), "-1"]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_ids_are_text_or_whole_numbers_of_any_make(trial: Trial, ids: Any, texts: list[str]) -> None:
    shown = trial.rank("q", ids, list(reversed(texts)), unit="u", wait=True)
    assert (shown.fallback, sorted(shown.ranking)) == (None, sorted(texts))
    assert {type(id) for id in shown.ranking} == {str}
    assert trial.rank("q", texts, list(ids)[::-1], unit="u").id == shown.id  # they are the same lists
    assert trial.click(shown.id, next(iter(ids))).rank is not None


@pytest.mark.parametrize("unit", [17, np.int64(17), np.str_("17"), "17"])
def test_units_are_too(trial: Trial, unit: Any) -> None:
    shown = trial.rank(np.str_("q"), A, B, unit=unit, offset=np.int64(0), size=np.int64(2), wait=True)  # type: ignore[arg-type]
    assert (shown.fallback, len(shown.ranking)) == (None, 2)
    assert trial.rank("q", A, B, unit="17").id == shown.id


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"a": ["x", "y", None]}, "A's 3rd id is None, must be text or a whole number"),
        ({"b": ["x", 1.0]}, "B's 2nd id is 1.0, must be text or a whole number"),
        ({"b": pandas.Series(["x", None])}, "B's 2nd id is nan, must be text or a whole number"),
        ({"b": [True]}, "B's 1st id is True, must be text or a whole number"),
        ({"b": np.array([True])}, "B's 1st id is np.True_, must be text or a whole number"),
        ({"b": np.array([[1, 2]])}, "B's 1st id is array([1, 2]), must be text or a whole number"),
        ({"b": [b"x"]}, "B's 1st id is b'x', must be text or a whole number"),
        ({"a": ["x", "\ud800"]}, "A's 2nd id is '\\ud800', which is not valid Unicode"),
        ({"a": None}, "A's list is None, must be a list of ids"),
        ({"b": "xyz"}, "B's list is 'xyz', must be a list of ids"),
        ({"unit": float("nan")}, "unit is nan, must be text or a whole number"),
        ({"query": None}, "query is None, must be text"),
        ({"offset": -1}, "offset is -1, must be a whole number, at least 0"),
        ({"size": 2.5}, "size is 2.5, must be a whole number, at least 0"),
    ],
)
def test_a_fallback_says_what_was_wrong(trial: Trial, given: dict[str, Any], reason: str) -> None:
    shown = trial.rank(**{"query": "q", "a": A, "b": B, "unit": "u", **given})
    assert shown.fallback == f"bad input: {reason}"
    assert trial.report().tallies == {"fallback: bad input": 1}  # however many reasons there are


def test_the_client_says_so_too_and_shows_a() -> None:
    with Client("http://127.0.0.1:9") as client:
        shown = client.rank("t", "q", ["x", None, "y"], B)  # type: ignore[list-item]
        assert shown.fallback == "bad input: A's 2nd id is None, must be text or a whole number"
        assert shown.ranking == ["x", "None", "y"]
        assert client.rank("t", "q", np.array(["x"]), [None]).ranking == ["x"]  # type: ignore[list-item]
        assert client.rank("t", "q", pandas.Series([7]), pandas.Series([8])).fallback == "no answer"
        assert client.fallbacks == {"bad input": 2, "no answer": 1}


def test_the_rank_of_the_first_result_is_1(trial: Trial) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    assert [trial.click(shown.id, document).rank for document in shown.ranking[:4]] == [1, 2, 3, None]


@pytest.mark.parametrize(
    ("position", "what"), [(0, "at least 1$"), (-1, "at least 1$"), (1.0, "a whole number"), (True, "a whole number")]
)
def test_positions_count_from_1(trial: Trial, position: Any, what: str) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    with pytest.raises(ValueError, match=f"position is {position}, must be {what}"):
        trial.click(shown.id, shown.ranking[0], position=position)
    assert trial.report().clicks == 0


def test_a_click_cannot_come_before_its_impression(trial: Trial, clock: Clock) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    early = trial.click(shown.id, shown.ranking[0], time=clock.now - 3600)
    assert early.outcome == ClickOutcome.EARLY
    assert trial.click(shown.id, shown.ranking[1], time=clock.now - 30).outcome == ClickOutcome.COUNTED  # another clock
    report = trial.report()
    assert (report.clicks, report.tallies) == (1, {"clicks before their impression": 1})


def test_a_report_is_short_where_it_is_looked_at(trial: Trial) -> None:
    trial.rank("q", A, B, unit="u", wait=True)
    assert repr(trial.report()) == "<Report on trial (version 1; running): B against A>\nNo clicks yet after 1 search."
