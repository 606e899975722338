"""A query's mixture of rankings: exact, kept to the last bit, and what is drawn from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktrial import tokens
from ranktrial.design.closed_form import closed_form
from ranktrial.log.designs import CorruptDesign, Design, sound_designs
from ranktrial.log.known import Known
from ranktrial.methods import AB, Beliefs, LiveMethod, LogOpt
from ranktrial.rankings import Pair
from ranktrial.store.base import DesignRow
from ranktrial.trial.drawing import make_design
from ranktrial.trial.showing import page_of

THETA = np.array([1, 0.5, 0.25])


KNOWN = Known.of(["query"], ["x", "d3"], np.array([0, 0]), np.array([0.25, 0.1]))
LOGOPT = LogOpt(loss=0.0)
BELIEFS = Beliefs(THETA, 0.2, fitted=True, note="as it was")
CONSTANT = LogOpt(relevance="constant", estimate="constant", loss=None, keep=0, floor=0.5)


def design_of(a: str, b: str, method: LiveMethod = CONSTANT) -> Design:
    return make_design("query", list(a), list(b), method, Beliefs(THETA), bias=3)


def test_is_the_closed_form_with_plain_lists_mixed_in() -> None:
    design = design_of("wxyz", "ywvu")
    pair = Pair.from_lists([["w", "x", "y"]], [["y", "w", "v"]], k=3)
    ids = pair.ids
    expected = 0.5 * closed_form(pair, THETA, floor=0.5).placement()
    for ranked in ("wxy", "ywv"):
        for rank, document in enumerate(ranked):
            expected[ids.index(document), rank] += 0.25
    placement = np.zeros_like(expected)
    for row, weight in enumerate(design.weights):
        for rank, document in enumerate(design.top(row)):
            placement[ids.index(document), rank] += weight
    np.testing.assert_allclose(placement, expected, atol=1e-15)


def test_ab_shows_nothing_but_the_two_lists() -> None:
    design = design_of("wxyz", "ywvu", AB(split=0.3))
    assert [design.top(row) for row in range(len(design.weights))] == [list("wxy"), list("ywv")]
    assert design.weights.tolist() == [0.3, 0.7]


@pytest.mark.parametrize(
    ("a", "b", "longest"),
    [("", "xy", 2), ("x", "y", 2), ("x", "x", 1), ("xyzw", "", 3), ("x", "yzwv", 3), ("xyz", "xyz", 3)],
)
def test_short_and_unequal_lists_fill_what_they_can(a: str, b: str, longest: int) -> None:
    design = design_of(a, b)
    assert design.weights.sum() == pytest.approx(1)
    assert [design.top(row) for row in (-2, -1)] == [list(a[:3]), list(b[:3])]
    for row in range(len(design.weights) - 2):
        shown = design.top(row)
        assert len(shown) == len(set(shown)) == longest
        assert set(shown) <= set(a + b)


def test_identical_lists_are_shown_as_they_are() -> None:
    design = design_of("zyx", "zyx")
    assert {tuple(design.top(row)) for row in range(len(design.weights))} == {("z", "y", "x")}


def row_of(design: Design, **changed: object) -> DesignRow:
    return DesignRow(1, design.digest, *design.parts)._replace(**changed)  # type: ignore[arg-type]


def stored_design() -> Design:
    return make_design("query", "wxyzq", "ywvup", LOGOPT, BELIEFS, bias=3, known=KNOWN)


def test_stored_and_read_back_it_is_the_same_to_the_last_bit() -> None:
    design = stored_design()
    again = Design.from_row(row_of(design))
    assert again.parts == design.parts
    assert again.weights.tobytes() == design.weights.tobytes()
    assert again.digest == design.digest
    assert [again.top(row) for row in range(len(again.weights))] == [
        design.top(row) for row in range(len(design.weights))
    ]


def test_a_stored_design_does_not_depend_on_what_made_it() -> None:
    """It is drawn from as it was, whatever the closed form of the day would make of the same lists."""
    design = stored_design()
    other = replace(design, weights=np.roll(design.weights, 1))
    assert Design.from_row(row_of(other)).weights.tolist() == np.roll(design.weights, 1).tolist()
    assert other.digest != design.digest


@pytest.mark.parametrize(
    "ids", ["xyz", ["[x", "y"], ["x", "[y"], ["x\ny", "x", "y"], ["", "x"], ["é", "x\0"], ['["x"]'], ["\n"]]
)
def test_ids_of_any_kind_come_back(ids: list[str]) -> None:
    design = make_design("query", ids, ids[::-1], LOGOPT, BELIEFS, bias=3, known=KNOWN)
    assert Design.from_row(row_of(design)).documents == tuple(ids)


@pytest.mark.parametrize("part", DesignRow._fields[1:])
def test_damage_anywhere_is_noticed(part: str) -> None:
    design = stored_design()
    old = getattr(row_of(design), part)
    damaged: object = old + 1 if isinstance(old, int) else f"{old}."
    if isinstance(old, bytes):
        damaged = bytes([old[0] ^ 1]) + old[1:]
    with pytest.raises(CorruptDesign, match="does not match its digest"):
        Design.from_row(row_of(design, **{part: damaged}))
    if part != "digest":
        with pytest.raises(CorruptDesign):
            Design.from_row(row_of(design, **{part: None}))


def test_of_many_rows_those_that_match_are_read() -> None:
    design = stored_design()
    rows = [row_of(design), row_of(design, id=2, rest=b"    ")]
    assert list(sound_designs(rows)) == [1]


def test_where_a_document_stands() -> None:
    design = design_of("wxyz", "ywvu")
    row = len(design.weights) - 2  # A's own list
    where = {document: design.rank_of(row, document) for document in "wxyvzu?"}
    assert where == {"w": 0, "x": 1, "y": 2, "v": -1, "z": -1, "u": -1, "?": None}


def test_draws_come_as_often_as_the_weights_say() -> None:
    design = design_of("wxyz", "ywvu")
    n = 20_000
    drawn = Counter(design.row(tokens.draw(b"secret", 1, f"user {i}", "query")) for i in range(n))
    for row, weight in enumerate(design.weights):
        assert abs(drawn[row] - n * weight) <= 5 * np.sqrt(n * weight * (1 - weight)) + 1e-9


@given(st.floats(0, 1, exclude_max=True))
def test_no_draw_shows_what_has_no_weight(chance: float) -> None:
    design = design_of("wx", "xw")
    weights = np.array([0.0, *design.weights[1:-2], 0.0, 0.0])
    design = replace(design, weights=weights / weights.sum())
    assert design.weights[design.row(chance)] > 0


def test_later_pages_take_turns() -> None:
    def page(offset: int, size: int | None) -> str:
        return "".join(page_of(["y", "w"], list("wxyz"), list("ywvut"), 2, offset, size))

    assert page(0, None) == "ywxvzut"
    assert [page(offset, 3) for offset in (0, 3, 6, 9)] == ["ywx", "vzu", "t", ""]
    assert [page(offset, 2) for offset in (0, 1, 2)] == ["yw", "wx", "xv"]


def test_nothing_takes_the_place_of_what_a_short_list_lacks() -> None:
    def page(offset: int, size: int | None) -> str:
        return "".join(page_of(["x"], ["x"], list("yz"), 3, offset, size))

    assert [page(0, None), page(0, 3), page(0, 10), page(1, 2)] == ["x", "x", "x", ""]
    assert [page(3, None), page(3, 1), page(4, 5)] == ["yz", "y", "z"]


def test_ids_cannot_be_forged() -> None:
    token = tokens.Token(7, 1_700_000_000, b"0123456789")
    text = token.sign(b"secret")
    assert len(text) == 32
    assert tokens.read_token(text, b"secret") == token
    assert tokens.version_of(text) == 7
    assert tokens.read_token(text, b"other") is None
    for i in range(len(text)):
        changed = text[:i] + ("A" if text[i] != "A" else "B") + text[i + 1 :]
        assert tokens.read_token(changed, b"secret") is None
    for nonsense in ("", "x", "é" * 32, text + "AAAA", text[:-4]):
        assert tokens.read_token(nonsense, b"secret") is None


def test_keys_of_different_texts_differ_however_they_are_cut() -> None:
    assert tokens.draw(b"s", 1, "ab", "c") != tokens.draw(b"s", 1, "a", "bc")
    lists = [(["a", "b"], ["c"]), (["a"], ["b", "c"]), (["a"], ["", "b"]), (["a", ""], ["b"])]
    assert len({tokens.impression_key(b"s", 1, "u", "q", a, b) for a, b in lists}) == 4
