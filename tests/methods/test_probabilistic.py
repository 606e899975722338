from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import assigned_sign, small_pairs
from ranktrial.methods import Majority, Probabilistic
from ranktrial.rankings import Pair
from ranktrial.rankings._kernels import expected_sign
from ranktrial.users import position_based


def test_the_papers_table_with_its_mislabelled_column() -> None:
    """The printed column P(add(C)=1) holds B's values; ranking probabilities are right."""
    pair = Pair.from_lists(["ABC"], ["BCA"], k=3)
    ids = pair.ids
    displays = Probabilistic(tau=4).displays(pair)
    assert isinstance(displays.value, Majority)
    found = {}
    for i, row in enumerate(displays.mixture.rankings):
        by_a = {ids[d]: round(float(p), 4) for d, p in zip(row, displays.value.to_a[i, 0])}
        found["".join(ids[d] for d in row)] = (round(float(displays.mixture.weights[i]), 4), by_a)
    assert found == {
        "ABC": (0.4182, {"A": 0.9878, "B": 0.4701, "C": 0.5}),
        "ACB": (0.0527, {"A": 0.9878, "B": 0.5, "C": 0.7371}),
        "BAC": (0.2849, {"A": 0.8569, "B": 0.0588, "C": 0.5}),
        "BCA": (0.2094, {"A": 0.5, "B": 0.0588, "C": 0.0144}),
        "CAB": (0.0166, {"A": 0.9872, "B": 0.5, "C": 0.1649}),
        "CBA": (0.0182, {"A": 0.5, "B": 0.0562, "C": 0.1649}),
    }


probability_pairs = st.lists(
    st.tuples(st.integers(0, 10), st.integers(0, 10)).map(lambda t: (t[0] / 10, t[1] / 10 * (1 - t[0] / 10))),
    max_size=6,
)


@given(probability_pairs)
def test_expected_sign_agrees_with_enumerated_assignments(terms: list[tuple[float, float]]) -> None:
    to_a, to_b = np.array([a for a, _ in terms]), np.array([b for _, b in terms])
    found = expected_sign(to_a, to_b, len(terms), np.empty(2 * len(terms) + 2))
    assert found == pytest.approx(assigned_sign((True,) * len(terms), list(to_a), list(to_b)), abs=1e-12)


@given(small_pairs(max_k=4), st.integers(0, 15))
def test_the_value_is_the_expected_sign_over_assignments(pair: Pair, mask: int) -> None:
    displays = Probabilistic(tau=2).displays(pair)
    assert isinstance(displays.value, Majority)
    for i, row in enumerate(displays.mixture.rankings):
        clicks = tuple(bool(mask >> r & 1) and row[r] >= 0 for r in range(pair.k))
        expected = assigned_sign(clicks, list(displays.value.to_a[i, 0]), list(displays.value.to_b[i, 0]))
        assert displays.value_of(i, clicks) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("tau", [0, 1, 4, 12, 30])
def test_drawn_displays_have_the_enumerated_probabilities(tau: float) -> None:
    """Lists of unequal length sharing some documents; every ranking's frequency within 4.5 standard errors."""
    pair = Pair.from_lists([[0, 1, 2, 3], [9]], [[4, 2, 0], [8, 9]], k=3)
    method = Probabilistic(tau=tau)
    exact = method.displays(pair)
    draws = 100_000
    drawn = method.sampled_displays(pair, draws, seed=9)
    assert isinstance(exact.value, Majority)
    assert isinstance(drawn.value, Majority)
    credit = {}
    expected = {}
    for i, row in enumerate(exact.mixture.rankings):
        expected[tuple(row)] = exact.mixture.weights[i]
        credit[tuple(row)] = np.concatenate([exact.value.to_a[i, 0], exact.value.to_b[i, 0]])
    rows, first, counts = np.unique(drawn.mixture.rankings, axis=0, return_index=True, return_counts=True)
    seen = {tuple(row): count / draws for row, count in zip(rows, counts)}
    for row, p in expected.items():
        assert abs(seen.get(row, 0) - p) < 4.5 * np.sqrt(p * (1 - p) / draws) + 3 / draws
    for row, i in zip(rows, first):
        np.testing.assert_allclose(
            np.concatenate([drawn.value.to_a[i, 0], drawn.value.to_b[i, 0]]), credit[tuple(row)], atol=1e-9
        )


@pytest.mark.slow
def test_too_many_displays_are_refused_with_the_way_out() -> None:
    pair = Pair.from_lists([list(range(12))], [list(range(12))[::-1]], k=10)
    with pytest.raises(ValueError, match="sampled_displays"):
        Probabilistic().displays(pair)


@pytest.mark.slow
def test_sampled_displays_estimate_the_moments_at_full_size() -> None:
    """Against the per-impression kernel at k = 10 and 30 documents, within 5 standard errors of either."""
    rng = np.random.default_rng(1)
    pair = Pair.from_lists([rng.permutation(30).tolist()], [rng.permutation(30).tolist()], k=10)
    ids = pair.ids
    user = position_based(rng.uniform(0, 1, len(ids)), 1 / np.arange(1, 11))
    method = Probabilistic()
    draws, n = 20_000, 500_000
    exact_clicks = method.sampled_displays(pair, draws, seed=2).moments(user)
    run = method.simulate(pair, user, [n], seed=3)
    assert abs(run.estimate[0] - exact_clicks.mean) < 5 * np.sqrt(exact_clicks.variance * (1 / n + 1 / draws))
    assert abs(run.ctr[0] - exact_clicks.ctr) < 5 * np.sqrt(2 * exact_clicks.ctr * (1 / n + 1 / draws))


@pytest.mark.parametrize("tau", [-1, 31])
def test_tau_out_of_range_is_refused(tau: float) -> None:
    with pytest.raises(ValueError, match=f"tau is {tau}"):
        Probabilistic(tau=tau)
