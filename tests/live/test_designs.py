"""A query's mixture of rankings: exact, kept to the last bit, and what is drawn from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktrial.design.closed_form import closed_form
from ranktrial.live import tokens
from ranktrial.live.designs import CorruptDesign, Design, Maker, make_design, page_of
from ranktrial.live.known import Known
from ranktrial.methods import AB, Beliefs, LogOpt, Method, parse_method
from ranktrial.rankings import Pair

THETA = np.array([1, 0.5, 0.25])


KNOWN = Known.of(["query"], ["x", "d3"], np.array([0, 0]), np.array([0.25, 0.1]))
LOGOPT = LogOpt(loss=0.0)
BELIEFS = Beliefs(THETA, 0.2, fitted=True, note="as it was")
MAKER = Maker(LOGOPT, BELIEFS, KNOWN)
CONSTANT = LogOpt(relevance="constant", estimate="constant", loss=None, keep=0, floor=0.5)


def design_of(a: str, b: str, method: Method = CONSTANT) -> Design:
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


@pytest.mark.parametrize("bias", [0, 3])
def test_stored_and_read_back_it_is_the_same_to_the_last_bit(bias: int) -> None:
    """Also where only what it was made from is stored, because the store knows the beliefs."""
    design = make_design("query", "wxyzq", "ywvup", LOGOPT, BELIEFS, bias=bias, known=KNOWN)
    again = Design.from_parts(design.digest, design.parts, MAKER)
    assert again.weights.tobytes() == design.weights.tobytes()
    assert again.rankings.tolist() == design.rankings.tolist()
    assert again.documents == design.documents
    assert again.digest == design.digest
    assert (again.whole, again.rest.tolist()) == (bias == 0, design.rest.tolist())
    assert [bool(part) for part in design.parts[3:]] == [bias == 0] * 4 + [True, bias > 0]


@pytest.mark.parametrize("known", [KNOWN, Known()])
@pytest.mark.parametrize(
    "method",
    ["LogOpt()", "LogOpt(loss=None, keep=1, floor=0.9)", 'LogOpt(estimate="ips", holdback=0)', "AB(split=0.3)"],
)
def test_many_at_once_are_as_one_by_one(method: str, known: Known) -> None:
    maker, random = Maker(parse_method(method), BELIEFS, known), np.random.default_rng(3)
    lists = [[list(random.permutation(list("tuvwxyz"))[: random.integers(0, 6)]) for _ in range(2)] for _ in range(40)]
    lists += [[[], ["x"]], [["x", "y"], []]]
    designs = [maker.make("query", a, b, 3) for a, b in lists if a or b]
    rows = [(design.digest, design.parts) for design in designs]
    rows[5] = (b"another digest..", rows[5][1])
    found = Design.many(rows, maker)
    assert [at for at, design in enumerate(found) if design is None] == [5]
    for design, again in zip(designs, found):
        if again is not None:
            assert (again.parts, again.weights.tobytes()) == (design.parts, design.weights.tobytes())
            assert (again.a.tolist(), again.b.tolist()) == (design.a.tolist(), design.b.tolist())
            assert np.array_equal(again.rankings, design.rankings)


@pytest.mark.parametrize(
    "ids", ["xyz", ["[x", "y"], ["x", "[y"], ["x\ny", "x", "y"], ["", "x"], ["é", "x\0"], ['["x"]'], ["\n"]]
)
def test_ids_of_any_kind_come_back(ids: list[str]) -> None:
    for bias in (0, 3):
        design = make_design("query", ids, ids[::-1], LOGOPT, BELIEFS, bias=bias, known=KNOWN)
        assert Design.from_parts(design.digest, design.parts, MAKER).documents == tuple(ids)


def test_a_design_whose_beliefs_are_not_known_or_others_is_not_taken_for_what_was_stored() -> None:
    design = make_design("query", "wxyzq", "ywvup", LOGOPT, BELIEFS, bias=3, known=KNOWN)
    with pytest.raises(CorruptDesign, match="was made with beliefs 3, which are not in the store"):
        Design.from_parts(design.digest, design.parts)
    for other in (
        Maker(LOGOPT, replace(BELIEFS, theta=THETA**1.5), KNOWN),
        Maker(LOGOPT, BELIEFS, Known()),
        Maker(AB(), BELIEFS, KNOWN),
    ):
        with pytest.raises(CorruptDesign, match="does not match its digest"):
            Design.from_parts(design.digest, design.parts, other)


@pytest.mark.parametrize(
    ("method", "digest"),
    [
        ("LogOpt()", "082897eef812d966"),
        ("LogOpt(loss=None)", "1e2ba6750311a23f"),
        ("LogOpt(floor=0.9, keep=1, holdback=0.3)", "1389b1b3a04d75ab"),
        ('LogOpt(relevance="constant", estimate="ips")', "17975c6fe1975003"),
        ("AB(split=0.3)", "761056f4e2afcc89"),
    ],
)
def test_designs_of_earlier_versions_can_still_be_made(method: str, digest: str) -> None:
    """A change that fails here makes every log of running trials unreadable: their designs must be stored whole before it."""
    beliefs = replace(BELIEFS, theta=1 / np.arange(1, 11))
    made = blake2b(digest_size=8)
    for number in range(20):
        order = np.random.default_rng(number).permutation(14)
        a, b = ([f"d{i}" for i in some] for some in (np.sort(order[:10]), order[2 : 4 + number % 9]))
        made.update(make_design("query", a, b, parse_method(method), beliefs, bias=3, known=KNOWN).digest)
    assert made.hexdigest() == digest


@pytest.mark.parametrize("bias", [0, 3])
@pytest.mark.parametrize("part", range(9))
def test_damage_anywhere_is_noticed(part: int, bias: int) -> None:
    design = make_design("query", "wxyzq", "ywvup", LOGOPT, BELIEFS, bias=bias, known=KNOWN)
    parts: list[object] = list(design.parts)
    old = parts[part]
    if isinstance(old, bytes):
        parts[part] = bytes([old[0] ^ 1]) + old[1:] if old else b"\1"
    else:
        parts[part] = old + 1 if isinstance(old, int) else f"{old}."
    if old == b"" and bias:
        assert Design.from_parts(design.digest, parts, MAKER).digest == design.digest  # nobody reads that
    else:
        with pytest.raises(CorruptDesign):
            Design.from_parts(design.digest, parts, MAKER)
    parts[part] = None
    with pytest.raises(CorruptDesign):
        Design.from_parts(design.digest, parts, MAKER)


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
    assert tokens.lists_digest(["a", "b"], ["c"]) != tokens.lists_digest(["a"], ["b", "c"])
    assert tokens.lists_digest(["a"], ["", "b"]) != tokens.lists_digest(["a", ""], ["b"])
