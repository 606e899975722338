from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import sign, team_draft
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.methods import Displays, Linear, Majority, TeamDraft, TooManyDisplaysError
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import position_based


def drafts(pair: Pair) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    displays = TeamDraft(outcome="sum").displays(pair)
    assert isinstance(displays.value, Linear)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = defaultdict(float)
    for row, credits, weight in zip(displays.mixture.rankings, displays.value.values, displays.mixture.weights):
        shown = row[row != NO_DOCUMENT]
        found[tuple(shown.tolist()), tuple(int(c) for c in credits[: len(shown)])] += float(weight)
    return found


@given(st.permutations(range(7)), st.permutations(range(7)), st.integers(1, 7), st.integers(1, 7), st.integers(1, 8))
def test_every_draft_agrees_with_the_documented_one(a: list[int], b: list[int], cut_a: int, cut_b: int, k: int) -> None:
    pair = Pair.from_lists([a[:cut_a]], [b[:cut_b]], k)
    ids = pair.ids
    number = {d: i for i, d in enumerate(ids)}
    expected = team_draft([number[d] for d in a[:cut_a]], [number[d] for d in b[:cut_b]], k)
    found = drafts(pair)
    assert found.keys() == expected.keys()
    for draft, probability in expected.items():
        assert found[draft] == pytest.approx(probability, abs=1e-12)


@given(st.permutations(range(8)), st.permutations(range(8)), st.integers(0, 8), st.integers(1, 8), st.integers(1, 8))
def test_random_clicks_favour_neither_however_short_the_lists(
    a: list[int], b: list[int], cut_a: int, cut_b: int, k: int
) -> None:
    pair = Pair.from_lists([a[:cut_a]], [b[:cut_b]], k)
    ids = pair.ids
    blind = position_based(np.full(len(ids), 0.6), np.linspace(1, 0.3, k))
    assert TeamDraft().moments(pair, blind).mean == pytest.approx(0, abs=1e-12)
    assert TeamDraft(outcome="sum").moments(pair, blind).mean == pytest.approx(0, abs=1e-12)


def test_a_common_prefix_is_credited_to_nobody() -> None:
    pair = Pair.from_lists(["ABCD"], ["ABDC"], k=4)
    assert all(credits[:2] == (0, 0) and set(credits[2:]) == {1, -1} for _, credits in drafts(pair))


def test_agreement_after_the_common_prefix_counts_for_whoever_picks() -> None:
    """Both want x in the second round: it counts for the one that picks first, and the other picks its next document."""
    pair = Pair.from_lists(["axcd"], ["bxef"], k=4)
    x = pair.ids.index("x")
    assert {(shown[2], credits[2]) for shown, credits in drafts(pair)} == {(x, 1), (x, -1)}


@pytest.mark.parametrize(
    ("a", "b", "k", "counted"),
    [("a", "bcd", 4, 0), ("abc", "defgh", 6, 2), ("abc", "def", 3, 3), ("abcd", "efg", 4, 2)],
)
def test_rounds_count_as_a_whole(a: str, b: str, k: int, counted: int) -> None:
    """A round counts if its last rank is within the shorter list; one that the page cuts short ends where the page does."""
    for _, credits in drafts(Pair.from_lists([a], [b], k)):
        assert [abs(credit) for credit in credits] == [1] * counted + [0] * (len(credits) - counted)


def test_the_papers_four_drafts() -> None:
    pair = Pair.from_lists(["ABC"], ["BCA"], k=3)
    a, b, c = 0, 1, 2
    assert drafts(pair) == {
        ((a, b, c), (1, -1, 1)): 0.25,
        ((a, b, c), (1, -1, -1)): 0.25,
        ((b, a, c), (-1, 1, 1)): 0.25,
        ((b, a, c), (-1, 1, -1)): 0.25,
    }


def test_the_sign_of_credited_clicks_is_the_value() -> None:
    pair = Pair.from_lists(["ABCD"], ["DCBA"], k=4)
    displays = TeamDraft().displays(pair)
    assert isinstance(displays.value, Majority)
    for display in range(len(displays.mixture.rankings)):
        credits = displays.value.to_a[display, 0] - displays.value.to_b[display, 0]
        for mask in range(16):
            clicks = [bool(mask >> r & 1) for r in range(4)]
            assert displays.value_of(display, clicks) == sign(float(credits @ np.array(clicks)))


def test_a_click_on_an_empty_rank_is_refused() -> None:
    pair = Pair.from_lists(["A"], ["A"], k=3)
    with pytest.raises(ValueError, match="shows nothing at rank 2"):
        TeamDraft().displays(pair).value_of(0, [False, True])


def test_the_shortcut_draws_the_law_of_the_kernel_at_full_size() -> None:
    """k = 10, queries shorter and longer than k: three moments of each within 4.5 standard errors of exact."""
    rng = np.random.default_rng(0)
    lists = [[rng.permutation(n).tolist() for n in (4, 10, 15, 24)] for _ in range(2)]
    pair = Pair.from_lists(lists[0], lists[1], k=10)
    ids = pair.ids
    user = position_based(rng.uniform(0, 1, len(ids)), 1 / np.arange(1, 11))
    exact = TeamDraft().moments(pair, user)
    n = 1_000_000
    for shortcut in (True, False):
        run = TeamDraft().simulate(pair, user, [n], seed=5, shortcut=shortcut)
        square = exact.variance + exact.mean**2
        assert abs(run.estimate[0] - exact.mean) < 4.5 * np.sqrt(exact.variance / n)
        assert abs(run.mean_square[0] - square) < 4.5 * np.sqrt(square * (1 - square) / n)
        assert abs(run.ctr[0] - exact.ctr) < 4.5 * np.sqrt(exact.ctr * 2 / n)


def test_too_many_drafts_are_refused_but_still_simulated() -> None:
    """At k = 40 a query has 2^20 drafts: they are not listed, and a run goes impression by impression."""
    pair = Pair.from_lists([list(range(40))], [list(range(40))[::-1]], k=40)
    ids = pair.ids
    user = position_based(np.full(len(ids), 0.1), 1 / np.arange(1, 41))
    with pytest.raises(TooManyDisplaysError, match=r"query 0 has 2\^20 drafts at k = 40"):
        TeamDraft().moments(pair, user)
    with pytest.raises(TooManyDisplaysError, match="too many to list"):
        TeamDraft().outcome_law(pair, user)
    run = TeamDraft().simulate(pair, user, [20_000], seed=1)
    assert run.ctr[0] == pytest.approx(0.1 * user.slope.sum(), rel=0.05)


def test_equal_displays_are_shown_once() -> None:
    """Where both coins lead to the same page with the same credits a person sees it once, with its full probability."""
    pair = Pair.from_lists(["a"], ["bcd"], k=3)
    displays = TeamDraft().displays(pair)
    doubled = Displays(Mixture.of_tables([displays.mixture.rankings[:1]] * 2, (0.5, 0.5), 4), Linear(np.zeros((2, 3))))
    assert [d.probability for d in doubled.of_query(0)] == [1.0]
    assert sum(d.probability for d in displays.of_query(0)) == 1.0
