"""Columns that grow: what is in a file is as what is in memory, and an index finds what was put, whenever runs were merged."""

from __future__ import annotations

import errno
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ranktrial.live import columns
from ranktrial.live.columns import Column, Index, Numbers, Offsets, Texts


@pytest.fixture(params=[0, 50, 10**9], ids=["in files", "in files later", "in memory"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(columns, "LARGE", request.param)
    monkeypatch.setattr(columns, "PIECE", 7)
    return int(request.param)


def test_rows_stay_where_they_are(large: int) -> None:
    random, column, offsets = np.random.default_rng(1), Column("i4", 3), Offsets()
    expected, sizes = np.empty((0, 3), np.int32), np.empty(0, np.int64)
    views = []
    for n in (0, 1, 4, 0, 9, 100):
        more = random.integers(-9, 9, (n, 3))
        column.append(more)
        offsets.append(more[:, 0] ** 2)
        expected, sizes = np.concatenate([expected, more]).astype(np.int32), np.append(sizes, more[:, 0] ** 2)
        views.append((column.values, expected))
        np.testing.assert_array_equal(offsets.values, [0, *np.cumsum(sizes)])
    for view, then in views:  # also those from before there was more
        np.testing.assert_array_equal(view, then)
    assert (column._file is None) == (large > 10**6)


def test_texts_are_those_that_were_added(large: int) -> None:
    texts, expected = Texts(), ["", "é", "a\0b", "ends\0", "x" * 300, "\ud800", *map(str, range(99))]
    for start in range(0, len(expected), 10):
        texts.append([text.encode(errors="surrogatepass") for text in expected[start : start + 10]])
    assert list(texts) == expected
    assert (texts[-1], list(texts[3:5])) == (expected[-1], expected[3:5])
    some = texts.chosen(np.array([7, 1, 1]))
    assert (some, list(some[1:]), some[-1]) == (["1", "é", "é"], ["é", "é"], "é")
    with pytest.raises(IndexError):
        texts[len(expected)]


@pytest.mark.parametrize("kind", ["i8", "u8", "S10"])
def test_an_index_finds_all_that_was_put(large: int, kind: str) -> None:
    random, index, known = np.random.default_rng(2), Index(kind), dict[bytes, int]()
    every = np.array([b"%010d" % n for n in random.permutation(1_000)]).astype("S10")
    keys = every if kind == "S10" else every.astype("i8").astype(kind)
    put = 0
    for n in (0, 1, 1, 30, 2, 5, 200, 1, 1, 1, 1, 300, 40):
        index.put(keys[put : put + n], np.arange(put, put + n))
        put += n
        known = {key: number for number, key in enumerate(keys[:put].tolist())}
        assert index.find(keys).tolist() == [known.get(key, -1) for key in keys.tolist()]
        assert len(index) == put
    lengths = [len(run) for run, _ in index._runs]
    assert all(later < earlier / 2 for earlier, later in pairwise(lengths))
    for limit in (0, 100, put):
        assert index.below(limit).tolist() == [n for _, n in sorted(known.items()) if n < limit]


def test_numbers_are_given_out_once(large: int) -> None:
    random, numbers, met = np.random.default_rng(3), Numbers("i8"), list[int]()
    for n in (5, 50, 3, 200):
        keys = random.integers(0, 100, n)
        met += keys[numbers.add(keys)].tolist()
    assert len(set(met)) == len(met) == len(numbers)
    assert numbers.find(np.array(met)).tolist() == list(range(len(met)))


def test_a_full_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(columns, "LARGE", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(OSError, match=f"No space left on device: columns of a long log are kept in {tmp_path}; TMPDIR"):
        Column("i8").append([1])
