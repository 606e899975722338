"""Designs as stored, as arrays of a log: the same as from the designs themselves, whatever they are called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ranktrial.log.designs import Design, checksum
from ranktrial.log.sources import RecordedDesign, flatten
from ranktrial.log.stored_designs import LATER_PAGE, NOT_SHOWN, StoredDesigns
from ranktrial.methods import Beliefs, LogOpt
from ranktrial.store import SQLiteStore
from ranktrial.store.base import Impression
from ranktrial.trial.drawing import make_design

K = 4
LONG = "x" * 300
NAMES = ["a", "b", "é", "ab", "a b", "", "sku-10", "sku-9", "ends\0", "ends", "two\nlines", "[", LONG, LONG[:-1]]
NAMES += [str(number) for number in range(30)]


def designs() -> list[Design]:
    random = np.random.default_rng(1)
    made = []
    for number in range(60):
        a, b = ([NAMES[i] for i in random.permutation(len(NAMES))[:size]] for size in (number % 6, 5))
        query = ["shoes", "", "hats", f"query {number}"][number % 4]
        made.append(make_design(query, a, b, LogOpt(), Beliefs(1 / np.arange(1, K + 1))))
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    with contextlib.closing(SQLiteStore(tmp_path / "t.db")) as made:
        for number, design in enumerate(designs()):  # one after the other, so that ids are in this order
            made.put(Impression(b"%010d" % number, 1, design, 0, number, number)).result()
        yield made


def test_arrays_are_those_of_the_designs(store: SQLiteStore) -> None:
    stored, made = StoredDesigns(store, K), designs()
    met = [7, 3, 3, 50, 1, 50, 2, *range(20, 60)]
    in_order = list(dict.fromkeys(met))  # as they were first used
    numbers = np.concatenate([stored.numbers(np.array(some) + 1) for some in (met[:4], met[4:7], met[7:])])
    assert numbers.tolist() == [in_order.index(number) for number in met]
    recorded = [
        RecordedDesign(*(getattr(made[number], name) for name in RecordedDesign._fields)) for number in in_order
    ]
    arrays, expected = stored.arrays, flatten(recorded, K)
    assert arrays.keys() == expected.keys()
    for name in expected.keys() - {"queries", "documents", "document_query", "query", "document"}:
        np.testing.assert_array_equal(arrays[name], expected[name], name)
    for names, of in (("queries", "query"), ("documents", "document")):
        assert sorted(arrays[names]) == sorted(expected[names])
        assert [arrays[names][at] for at in arrays[of]] == [expected[names][at] for at in expected[of]]
    of_document = [arrays["queries"][at] for at in arrays["document_query"][arrays["document"]]]
    assert of_document == [expected["queries"][at] for at in expected["document_query"][expected["document"]]]


def test_clicks_find_their_slot_a_later_page_or_nothing(store: SQLiteStore) -> None:
    stored, made = StoredDesigns(store, K), designs()
    asked = [(design, name) for design in made for name in (*NAMES, "no such")]
    number = stored.numbers(np.arange(len(made)) + 1)
    found = stored.cells(np.repeat(number, len(NAMES) + 1), [name for _, name in asked])
    for (design, name), cell in zip(asked, found.tolist()):
        if name in design.documents:
            assert design.documents[cell] == name
        else:
            assert cell == checksum(name) + (LATER_PAGE if checksum(name) in design.rest_sums else NOT_SHOWN)
    assert (found >= NOT_SHOWN).any()
    assert ((found >= LATER_PAGE) & (found < NOT_SHOWN)).any()


def test_ranks_of_slots_on_a_page(store: SQLiteStore) -> None:
    stored, made = StoredDesigns(store, K), designs()
    number = stored.numbers(np.arange(len(made)) + 1)
    row = stored.row_of(number, np.zeros(len(made), np.int64))
    for slot in range(5):
        expected = [design.rankings[0].tolist().index(slot) if slot in design.rankings[0] else -1 for design in made]
        assert stored.rank_of(row, number, np.full(len(made), slot)).tolist() == expected


def test_a_damaged_design_shows_nothing(store: SQLiteStore) -> None:
    store._file.execute("UPDATE designs SET weights = ? WHERE id = 2", (b"\0" * 8,))
    stored = StoredDesigns(store, K)
    number = stored.numbers(np.array([1, 2, 3, 99]))
    assert (stored.row_of(number, np.zeros(4, np.int64)) >= 0).tolist() == [True, False, True, False]
    assert stored.row_of(number[:1], np.array([-1])).tolist() == [-1]
    assert stored.row_of(number[:1], np.array([len(designs()[0].weights)])).tolist() == [-1]
    assert stored.cells(number[1:2], ["a"]).tolist() == [checksum("a") + NOT_SHOWN]
