"""Designs as columns: the same arrays as from the designs themselves, whatever they are called and whenever they come."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ranktrial.inference.log_sources import flatten
from ranktrial.live import SQLiteStore, columns
from ranktrial.live.design_columns import LATER_PAGE, NOT_SHOWN, DesignColumns
from ranktrial.live.designs import Design, checksum, make_design
from ranktrial.live.stores.base import Impression
from ranktrial.methods import Beliefs, LogOpt

K = 4
LONG = "x" * 300
NAMES = ["a", "b", "é", "ab", "a b", "", "sku-10", "sku-9", "ends\0", "ends", LONG, LONG[:-1], *map(str, range(30))]


def designs() -> list[Design]:
    random = np.random.default_rng(1)
    made = []
    for number in range(60):
        a, b = ([NAMES[i] for i in random.permutation(len(NAMES))[:size]] for size in (number % 6, 5))
        query = ["shoes", "", "hats", f"query {number}"][number % 4]
        made.append(make_design(query, a, b, LogOpt(), Beliefs(1 / np.arange(1, K + 1))))
    return made


@pytest.fixture(params=[0, columns.LARGE], ids=["in files", "in memory"])
def store(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteStore]:
    monkeypatch.setattr(columns, "LARGE", request.param)
    with contextlib.closing(SQLiteStore(tmp_path / "t.db")) as made:
        for number, design in enumerate(designs()):
            made.put(
                Impression(b"%010d" % number, 1, design, 0, number, number)
            ).result()  # so that ids are in this order
        yield made


def test_columns_are_the_arrays_of_the_designs_in_use(store: SQLiteStore) -> None:
    columns, made = DesignColumns(store, K), designs()
    in_use = np.empty(0, np.int64)
    for some in ([7, 3, 3, 50], [1, 50, 2], range(20, 60)):  # met in this order
        in_use = np.concatenate([in_use, columns.numbers(np.array(some) + 1)])
        columns.flat(in_use)  # what comes next is sorted in
    for used in (in_use[:4], in_use[4:], in_use):
        number, arrays = columns.flat(used)
        known = {int(one): made[id] for one, id in zip(in_use, (7, 3, 3, 50, 1, 50, 2, *range(20, 60)))}
        in_order = list(dict.fromkeys(used.tolist()))  # as they were first used
        assert number[in_order].tolist() == list(range(len(in_order)))
        expected = flatten([known[one] for one in in_order], K)
        assert arrays.keys() == expected.keys()
        for name in expected.keys() - {"queries", "documents", "document_query", "query", "document"}:
            np.testing.assert_array_equal(arrays[name], expected[name], name)
        for made_of in (arrays, expected):  # in any order, but by query
            assert (np.diff(made_of["document_query"]) >= 0).all()
        for names, of in (("queries", "query"), ("documents", "document")):
            assert sorted(arrays[names]) == sorted(expected[names])
            assert [arrays[names][at] for at in arrays[of]] == [expected[names][at] for at in expected[of]]
        of_document = [arrays["queries"][at] for at in arrays["document_query"][arrays["document"]]]
        assert of_document == [expected["queries"][at] for at in expected["document_query"][expected["document"]]]
    for empty in (columns, DesignColumns(store, K)):
        nothing = empty.flat(in_use[:0])[1]
        assert {name: len(nothing[name]) for name in nothing} == {name: len(of) for name, of in flatten([], K).items()}


def test_clicks_find_their_slot_a_later_page_or_nothing(store: SQLiteStore) -> None:
    columns, made = DesignColumns(store, K), designs()
    asked = [(design, name) for design in made for name in (*NAMES, "no such")]
    number = columns.numbers(np.arange(len(made)) + 1)
    found = columns.cells(np.repeat(number, len(NAMES) + 1), [name for _, name in asked])
    for (design, name), cell in zip(asked, found.tolist()):
        if name in design.documents:
            assert design.documents[cell] == name
        else:
            assert cell == checksum(name) + (LATER_PAGE if checksum(name) in design.rest_sums else NOT_SHOWN)
    assert (found >= NOT_SHOWN).any()
    assert ((found >= LATER_PAGE) & (found < NOT_SHOWN)).any()


def test_a_damaged_design_shows_nothing(store: SQLiteStore) -> None:
    store._execute("UPDATE designs SET weights = ? WHERE id = 2", (b"\0" * 8,))
    columns = DesignColumns(store, K)
    number = columns.numbers(np.array([1, 2, 3, 99]))
    assert columns.may_show(number, np.zeros(4, np.int64)).tolist() == [True, False, True, False]
    assert columns.may_show(number[:1], np.array([-1])).tolist() == [False]
    assert columns.may_show(number[:1], np.array([len(designs()[0].weights)])).tolist() == [False]
    assert columns.cells(number[1:2], ["a"]).tolist() == [checksum("a") + NOT_SHOWN]
