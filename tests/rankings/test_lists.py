from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import click_patterns, small_worlds
from ranktrial.arrays import NO_DOCUMENT, offsets_of
from ranktrial.methods import AB, Balanced, Counterfactual, LogOpt, Method, Optimized, Probabilistic, TeamDraft
from ranktrial.rankings import Pair, Rankings, expected_clicks, exposure_of, rank_by_score, rank_inputs
from ranktrial.trec import Run
from ranktrial.users import User, position_based, rank_decay


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=4), st.integers(0, 5))
def test_ranking_by_score_sorts_every_query_on_its_own(scores: list[list[int]], seed: int) -> None:
    offsets = offsets_of([len(s) for s in scores])
    flat = np.array([x for query in scores for x in query], float)
    rankings = rank_by_score(flat, offsets, seed=seed)
    for query in range(len(scores)):
        ranked = rankings[query]
        assert sorted(ranked) == list(range(offsets[query], offsets[query + 1]))
        assert np.all(np.diff(flat[ranked]) <= 0)


def test_ties_are_broken_at_random_and_reproducibly() -> None:
    offsets = offsets_of([3] * 6000)
    first = rank_by_score(np.zeros(18000), offsets, seed=1)
    again = rank_by_score(np.zeros(18000), offsets, seed=1)
    assert np.array_equal(first.documents, again.documents)
    orders = (first.documents.reshape(-1, 3) % 3) @ [9, 3, 1]
    counts = np.unique(orders, return_counts=True)[1]
    assert len(counts) == 6
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(6000 * 1 / 6 * 5 / 6))


def test_top_pads_short_lists() -> None:
    rankings = rank_by_score([0.1, 0.9, 0.5], offsets_of([2, 1]))
    assert rankings.top(3).tolist() == [[1, 0, NO_DOCUMENT], [2, NO_DOCUMENT, NO_DOCUMENT]]


@pytest.mark.parametrize("scores", [[0.0], [0.0, np.nan]])
def test_bad_scores_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match=r"score"):
        rank_by_score(scores, offsets_of([2]))


def test_pair_from_lists_names_the_ranker_the_query_and_the_duplicate() -> None:
    with pytest.raises(ValueError, match=r"query 1: ranker B lists document 'x' twice"):
        Pair.from_lists([["a"], ["x"]], [["a"], ["x", "y", "x"]], k=2)


def test_a_pair_of_many_queries_prints_in_a_line() -> None:
    lists = [[f"q{query}-{place}" for place in range(4)] for query in range(5000)]
    assert repr(Pair.from_lists(lists, lists, k=3)) == "Pair(5,000 queries, k=3, 20,000 documents)"


def test_pair_refuses_different_numbers_of_queries() -> None:
    with pytest.raises(ValueError, match="A ranks 2 queries, B 1"):
        Pair.from_lists([["a"], ["x"]], [["a"]], k=2)


@pytest.mark.parametrize("k", [0, 65, 2.5, True])
def test_pair_refuses_cutoffs_out_of_range(k: int) -> None:
    with pytest.raises(ValueError, match=f"k is {k}"):
        Pair.from_lists([["a"]], [["a"]], k=k)


def test_a_pair_needs_a_query() -> None:
    with pytest.raises(ValueError, match="number of queries is 0, must be at least 1"):
        Pair.from_lists([], [], k=3)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([0, 1, 1], "query 1: ranker A lists document 1, but the query owns documents 2 to 2"),
        ([0, -1, 2], "query 0: ranker A lists document -1"),
        ([0, 0, 2], "query 0: ranker A lists document 0 twice"),
    ],
)
def test_lists_of_another_query_or_with_repeats_are_refused(documents: list[int], message: str) -> None:
    offsets = offsets_of([2, 1])
    good = rank_by_score([1.0, 0, 0], offsets)
    with pytest.raises(ValueError, match=message):
        Pair(Rankings(offsets, np.array(documents, np.int32)), good, offsets, 2)


def test_runs_are_joined_on_their_queries() -> None:
    a = Run(("q1", "q2"), np.array([0, 2, 3]), ("x", "y", "z"), np.array([2.0, 1, 1]), "a")
    b = Run(("q3", "q1"), np.array([0, 1, 3]), ("u", "y", "w"), np.array([1.0, 2, 1]), "b")
    pair = Pair.from_runs(a, b, k=2)
    queries, documents = pair.queries, pair.ids
    assert queries == ("q1", "q2", "q3")
    named = [[[documents[d] for d in row if d >= 0] for row in table] for table in (pair.top_a, pair.top_b)]
    assert named == [[["x", "y"], ["z"], []], [["y", "w"], [], ["u"]]]


def test_lambda_of_the_papers_example() -> None:
    pair = Pair.from_lists(["ABC"], ["BCA"], k=3)
    ids = pair.ids
    assert ids == ("A", "B", "C")
    np.testing.assert_allclose(pair.lam(np.array([1, 0.9, 0.8])), [0.2, -0.1, -0.1])


@given(small_worlds(queries=2))
def test_clicks_and_ctr_agree_with_enumeration(world: tuple[Pair, User]) -> None:
    pair, user = world
    expected = np.zeros(pair.top_a.shape)
    for row, ranking in zip(expected, pair.top_a):
        shown = ranking[ranking != NO_DOCUMENT]
        for clicks, probability in click_patterns(user, shown):
            row[: len(shown)] += probability * np.array(clicks, float)
    np.testing.assert_allclose(expected_clicks(pair.top_a, user), expected, atol=1e-12)
    assert pair.ctr(user)[0] == pytest.approx(expected.sum() / 2, abs=1e-12)
    assert pair.delta(user) == pytest.approx(pair.delta_by_query(user).mean(), abs=1e-12)


@given(small_worlds(queries=2))
def test_delta_is_lambda_times_zeta_for_position_based_users(world: tuple[Pair, User]) -> None:
    pair, other = world
    user = position_based(other.zeta, other.slope)
    assert pair.delta(user) == pytest.approx(pair.lam(user.slope) @ user.zeta / 2, abs=1e-12)
    assert pair.swapped().delta(user) == pytest.approx(-pair.delta(user), abs=1e-15)


def test_exposure_of_a_table() -> None:
    table = np.array([[0, 1], [2, NO_DOCUMENT]], np.int32)
    assert exposure_of(table, rank_decay(2), 4).tolist() == [1, 0.5, 1, 0]


def test_a_user_with_too_few_ranks_is_refused() -> None:
    pair = Pair.from_lists(["ABC"], ["BCA"], k=3)
    with pytest.raises(ValueError, match="knows 2 ranks, must know all k = 3"):
        pair.delta(position_based([0.1, 0.2, 0.3], [1, 0.5]))


def test_a_user_with_too_few_documents_is_refused_everywhere() -> None:
    """Kernels index zeta unchecked, so every way in must look first."""
    pair = Pair.from_lists(["ABC"], ["BCA"], k=3)
    pair = pair.knowing(theta=[1, 0.5, 0.3])
    short = position_based([0.1], [1, 0.5, 0.3])
    with pytest.raises(ValueError, match="zeta for 1 documents, must have it for all 3"):
        pair.delta(short)
    methods: list[Method] = [AB(), TeamDraft(), Probabilistic(), Optimized(), Balanced(), Counterfactual()]
    for method in [*methods, Counterfactual(logging="ab"), LogOpt()]:
        for shortcut in (True, False):
            with pytest.raises(ValueError, match="zeta"):
                method.simulate(pair, short, [10], seed=1, shortcut=shortcut)
    for method in methods:
        with pytest.raises(ValueError, match="zeta for 1 documents"):
            method.moments(pair, short)


def test_inputs_from_lists_by_hand() -> None:
    """1 / rank and -log rank in A and in B, a document not listed standing past the end and past k; then of the better rank."""
    pair = Pair.from_lists(["abc", "x"], ["ca", "y"], k=2)
    ids = pair.ids
    ranks = {"a": (1, 2), "b": (2, 3), "c": (3, 1), "x": (1, 3), "y": (3, 1)}
    expected = [
        [1 / ranks[d][0], 1 / ranks[d][1], *-np.log(ranks[d]), 1 / min(ranks[d]), -np.log(min(ranks[d]))] for d in ids
    ]
    np.testing.assert_allclose(rank_inputs(*pair.ranks), expected)


def test_a_pair_of_the_listed_documents_alone_is_the_same_comparison() -> None:
    random = np.random.default_rng(3)
    offsets = offsets_of([30, 0, 4, 12])
    pair = Pair.from_scores(random.normal(size=46), random.normal(size=46), offsets, 5).knowing(
        theta=rank_decay(5), features=random.normal(size=(46, 2)).astype(np.float32)
    )
    user = position_based(random.random(46), rank_decay(5))
    some = pair.of_listed()
    assert np.array_equal(np.where(some.top_a < 0, -1, pair.listed[some.top_a]), pair.top_a)
    assert np.array_equal(np.where(some.top_b < 0, -1, pair.listed[some.top_b]), pair.top_b)
    assert np.array_equal(some.lam(pair.known_theta), pair.lam(pair.known_theta)[pair.listed])
    assert np.array_equal(np.minimum(some.ranks, 5), np.minimum(pair.ranks[:, pair.listed], 5))
    assert some.features is None
    assert some.delta(user.of(pair.listed)) == pair.delta(user)
    assert np.array_equal(some.of_listed().top_a, some.top_a)
