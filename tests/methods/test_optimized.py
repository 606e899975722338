from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from oracles import allowed_rankings as plain_allowed_rankings
from oracles import small_pairs
from ranktrial.arrays import NO_DOCUMENT, BoolArray, FloatArray, sum_by_group
from ranktrial.methods import Linear, Optimized
from ranktrial.methods._kernels.optimized import allowed_rankings, balanced_distribution
from ranktrial.methods.list_tables import ListTables
from ranktrial.rankings import Pair
from ranktrial.users import position_based

ORDERS = st.permutations(range(10))


def allowed(pair: Pair, query: int = 0) -> set[tuple[int, ...]]:
    tables = ListTables.of(pair.top_a, pair.top_b)
    codes = allowed_rankings(query, tables, pair.k, 1 << 20)
    documents = np.concatenate([pair.top_a[query][: tables.length_a[query]], pair.top_b[query], [NO_DOCUMENT]])
    return {tuple(d for d in documents[row].tolist() if d != NO_DOCUMENT) for row in codes}


@given(small_pairs())
def test_the_allowed_rankings_are_all_of_them(pair: Pair) -> None:
    assert allowed(pair) == plain_allowed_rankings(pair.a[0].tolist(), pair.b[0].tolist(), pair.k)


def solve(credits: FloatArray, gain: FloatArray) -> tuple[float, float]:
    """Greatest gain and least violation by a general solver."""
    n, k = credits.shape
    slacks = np.hstack([np.eye(k), -np.eye(k)])
    rows = np.vstack([np.hstack([credits.T, slacks]), np.r_[np.ones(n), np.zeros(2 * k)]])
    right = np.r_[np.zeros(k), 1]
    violation = linprog(np.r_[np.zeros(n), np.ones(2 * k)], A_eq=rows, b_eq=right).fun
    best = linprog(-gain, A_eq=rows[:, :n], b_eq=right)
    return (-best.fun if best.status == 0 else np.nan), violation


@pytest.mark.slow
@given(ORDERS, ORDERS, st.integers(1, 10), st.integers(1, 10), st.booleans())
def test_the_programme_is_solved_as_a_general_solver_does(
    a: list[int], b: list[int], length_a: int, length_b: int, inverse: bool
) -> None:
    """Any lengths and overlap at k = 10: feasible exactly when HiGHS says so, with its gain; else its least violation."""
    pair = Pair.from_lists([a[:length_a]], [b[:length_b]], k=10)
    method = Optimized(credit="inverse" if inverse else "linear")
    displays = method.displays(pair)
    assert isinstance(displays.value, Linear)
    tables = ListTables.of(pair.top_a, pair.top_b)
    codes = allowed_rankings(0, tables, 10, 1 << 20)
    in_b = np.append(
        np.where(tables.a_in_b[0] >= 0, tables.a_in_b[0] + 1, length_b + 1)[:length_a], np.arange(1, length_b + 1)
    )
    in_a = np.append(np.arange(1, length_a + 1), np.full(length_b, length_a + 1))
    by_code = 1 / in_a - 1 / in_b if inverse else (in_b - in_a).astype(float)
    counts = (codes >= 0) & (np.arange(10) < min(length_a, length_b))
    credits = np.where(counts, by_code[np.maximum(codes, 0)], 0)
    gain = sensitivity(credits, codes >= 0)
    best, least = solve(credits, gain)
    p, violation = balanced_distribution(np.ascontiguousarray(credits.T), gain)
    assert p.sum() == pytest.approx(1)
    assert np.all(p >= 0)
    assert np.abs(p @ credits).sum() == pytest.approx(least, abs=1e-8)
    if least < 1e-8:
        assert violation == 0
        assert displays.note == ""
        assert p @ gain == pytest.approx(best, abs=1e-8)
        found = sensitivity(displays.value.values, displays.mixture.rankings >= 0)
        assert displays.mixture.weights @ found == pytest.approx(best, abs=1e-8)
    else:
        assert violation == pytest.approx(least, abs=1e-8)
        assert displays.note == "1 of 1 queries could not be balanced"


@given(st.lists(st.tuples(ORDERS, ORDERS, st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=6))
def test_queries_alike_are_solved_as_if_alone(lists: list[tuple[list[int], list[int], int, int]]) -> None:
    both = [[a[:n] for a, _, n, _ in lists * 2], [b[:n] for _, b, _, n in lists * 2]]
    pair = Pair.from_lists(both[0], both[1], k=3)
    together, first = Optimized().displays(pair), pair.offsets
    for query, (a, b) in enumerate(zip(*both)):
        alone = Optimized().displays(Pair.from_lists([a], [b], k=3))
        rows = slice(*together.mixture.offsets[query : query + 2])
        own = np.where(alone.mixture.rankings < 0, NO_DOCUMENT, alone.mixture.rankings + first[query])
        assert together.mixture.rankings[rows].tolist() == own.tolist()
        assert together.mixture.weights[rows].tolist() == alone.mixture.weights.tolist()
        assert isinstance(together.value, Linear)
        assert isinstance(alone.value, Linear)
        assert together.value.values[rows].tolist() == alone.value.values.tolist()


def sensitivity(credits: FloatArray, filled: BoolArray) -> FloatArray:
    """Chance that a click (probability falling as 1/rank) is credited, times the entropy of whom it favours."""
    click = np.where(filled, 1 / np.arange(1, credits.shape[1] + 1), 0.0)
    for_a, for_b = (click * (credits > 0)).sum(1), (click * (credits < 0)).sum(1)
    credited = np.maximum(for_a + for_b, 1e-300)
    share = np.clip(for_a / credited, 1e-300, 1)
    other = np.clip(for_b / credited, 1e-300, 1)
    entropy = -(share * np.log(share) + other * np.log(other))
    return np.asarray(np.where((for_a > 0) & (for_b > 0), entropy * credited / click.sum(1), 0.0))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("ABCDEFGHIJ", "ABCDEFGHIJ"),
        ("A", "A"),
        ("A", "B"),
        ("ABCDEFGHIJ", "BCDEFGHIJA"),
        ("BCDEFGHIJA", "ABCDEFGHIJ"),
        ("ABCDEFGHIJ", "KLMNOPQRST"),
        ("ABC", "DEFGHIJKLM"),
        ("", "ABC"),
        ("ABCDEFGHIJ", "A"),
        ("ABCDEFGHIJ", "JIHGFEDCBA"),
    ],
    ids=lambda text: text or "nothing",
)
@pytest.mark.parametrize("credit", ["inverse", "linear"])
def test_it_never_fails(a: str, b: str, credit: str) -> None:
    pair = Pair.from_lists([a], [b], k=10)
    displays = Optimized(credit=credit).displays(pair)
    assert displays.mixture.weights.sum() == pytest.approx(1)
    assert displays.note == ""
    assert isinstance(displays.value, Linear)
    np.testing.assert_allclose(displays.mixture.weights @ displays.value.values, 0, atol=1e-12)


@pytest.mark.parametrize("credit", ["inverse", "linear"])
def test_a_document_is_never_credited_to_the_ranker_that_does_not_list_it(credit: str) -> None:
    pair = Pair.from_lists(["ab"], ["abcde"], k=5)
    displays = Optimized(credit=credit).displays(pair)
    assert isinstance(displays.value, Linear)
    assert np.all(displays.value.values == 0)


def test_the_authors_constraints_give_another_distribution() -> None:
    pair = Pair.from_lists(["ABCD"], ["DCAB"], k=4)
    ids = pair.ids
    blind = position_based(np.full(len(ids), 0.5), [1.0, 0.5, 0.3, 0.2])
    assert abs(Optimized().moments(pair, blind).mean) < 1e-12
    assert abs(Optimized(constraints="linear").moments(pair, blind).mean) > 1e-3


def test_many_random_queries_at_full_size_are_all_balanced() -> None:
    rng = np.random.default_rng(0)
    base = [rng.normal(size=24) for _ in range(300)]
    lists = [[np.argsort(-(s + rng.normal(size=24))).tolist() for s in base] for _ in range(2)]
    pair = Pair.from_lists(lists[0], lists[1], k=10)
    for credit in ("inverse", "linear"):
        displays = Optimized(credit=credit).displays(pair)
        assert displays.note == ""
        assert isinstance(displays.value, Linear)
        offsets = displays.mixture.offsets
        for rank in range(10):
            per_query = sum_by_group(displays.mixture.weights * displays.value.values[:, rank], offsets)
            np.testing.assert_allclose(per_query, 0, atol=1e-11)
        assert np.diff(offsets).max() <= 11


def test_the_papers_distribution_is_the_only_one() -> None:
    pair = Pair.from_lists(["ABC"], ["BCA"], k=3)
    ids = pair.ids
    displays = Optimized(credit="linear").displays(pair)
    found = {"".join(ids[d] for d in d.documents): (d.probability, d.credits) for d in displays.of_query(0)}
    assert {r: c for r, (_, c) in found.items()} == {"ABC": (2, -1, -1), "BAC": (-1, 2, -1), "BCA": (-1, -1, 2)}
    assert [p for p, _ in found.values()] == pytest.approx([1 / 3] * 3)


def test_too_many_rankings_are_refused_with_the_query() -> None:
    pair = Pair.from_lists([["x"], list(range(20))], [["x"], list(range(20, 40))], k=20)
    with pytest.raises(ValueError, match="query 1 has more than 65,536 allowed rankings at k = 20"):
        Optimized().displays(pair)


@pytest.mark.parametrize("options", [{"credit": "log"}, {"constraints": "none"}])
def test_unknown_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must be one of"):
        Optimized(**options)
