"""Exposures that rankings can give, their optima and what shows that they are: shared by the tests of designs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.optimize import linprog

from ranktrial.arrays import NO_DOCUMENT, FloatArray, offsets_of
from ranktrial.design._closed_form_kernels import least_variance
from ranktrial.rankings import Mixture, Pair, Rankings
from ranktrial.users import rank_decay


def slots_of(theta: FloatArray, n: int) -> FloatArray:
    """Bias of the ranks of the page, largest first, and 0 for the documents that are not on it."""
    page = np.sort(theta[:n])[::-1]
    return np.append(page, np.zeros(n - len(page)))


def all_exposures(theta: FloatArray, n: int) -> FloatArray:
    """Exposure of every document in every ranking of n: the corners of what any distribution can reach."""
    slots = slots_of(theta, n)
    return np.array(sorted({tuple(p) for p in itertools.permutations(slots.tolist())}))


def mixture_of(
    need: FloatArray,
    theta: FloatArray,
    least: FloatArray | None = None,
    gain: FloatArray | None = None,
    candidates: Rankings | None = None,
) -> Mixture:
    """Problem of one query whose documents fill the page in order of their number, or of the queries with these candidates."""
    if candidates is None:
        candidates = Rankings(offsets_of([len(need)]), np.arange(len(need), dtype=np.int32))
    documents = candidates.documents
    each = [np.empty(0) if values is None else values[documents] for values in (least, gain)]
    rankings, weights, offsets = least_variance(
        candidates.offsets, documents, need[documents], *each, theta, documents[:0]
    )
    return Mixture(rankings, weights, offsets, len(need))


def check_valid(mixture: Mixture, candidates: list[set[int]], *, each: int = 1) -> None:
    """Weights sum to 1; every ranking is a full page of different candidates; there are no more rankings than candidates, or
    than so many for each."""
    for query, documents in enumerate(candidates):
        cells = slice(mixture.offsets[query], mixture.offsets[query + 1])
        assert mixture.weights[cells].sum() == pytest.approx(1, abs=1e-12)
        assert np.all(mixture.weights[cells] > 0)
        assert len(mixture.weights[cells]) <= max(each * len(documents), 1)
        page = min(mixture.k, len(documents))
        for row in mixture.rankings[cells]:
            assert set(row[:page]) <= documents
            assert len(set(row[:page])) == page
            assert np.all(row[page:] == NO_DOCUMENT)


def candidates_of(pair: Pair) -> list[set[int]]:
    return [{*a, *b} - {NO_DOCUMENT} for a, b in zip(pair.top_a.tolist(), pair.top_b.tolist())]


def gap(
    need: FloatArray,
    rho: FloatArray,
    corners: FloatArray,
    least: FloatArray | None = None,
    gain: FloatArray | float = 0.0,
) -> float:
    """Most by which sum need^2 / rho - gain rho could still fall, relative to it: the objective is convex, so no
    distribution is below its tangent at rho, and the tangent is least over all distributions (with the floors) by a linear
    programme."""
    active = need > 0
    value = np.sum(need[active] ** 2 / rho[active]) + np.sum(gain * rho)
    slope = np.zeros(len(need)) - gain
    slope[active] -= (need[active] / rho[active]) ** 2
    scale = float(np.abs(slope).max())
    floors = {} if least is None else {"A_ub": -corners.T, "b_ub": -least + 1e-9}
    found = linprog(corners @ slope / scale, A_eq=np.ones((1, len(corners))), b_eq=[1], **floors)
    assert found.status == 0
    return float((slope @ rho - found.fun * scale) / value)


# --- strategies -----------------------------------------------------------------------------------------------------------

thetas = st.one_of(
    st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.5, 0.5, 1.0]), min_size=1, max_size=5),
    # What is less than 1e-100 has a square that no float holds.
    st.lists(st.floats(0, 1).map(lambda x: x if x > 1e-100 else 0.0), min_size=1, max_size=5),
    st.builds(lambda k: rank_decay(k).tolist(), st.integers(1, 5)),
).map(lambda values: np.array(values, float))

amounts = st.one_of(
    st.sampled_from([0.0, 0.1, 0.2, 0.2, 0.3, 0.5, 1.0]),
    st.floats(0.01, 1),
    st.integers(-30, 0).map(lambda e: 10.0**e),
)


def needs(most: int) -> st.SearchStrategy[FloatArray]:
    return st.lists(amounts, min_size=1, max_size=most).map(np.array)


@st.composite
def floored(draw: st.DrawFn) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Needs, theta and floors that fit on the page: a share of what some distribution gives."""
    need, theta = draw(needs(5)), draw(thetas)
    corners = all_exposures(theta, len(need))
    some = [corners[draw(st.integers(0, len(corners) - 1))] for _ in range(2)]
    mix = draw(st.sampled_from(["least", "mean"]))
    least = np.minimum(*some) if mix == "least" else (some[0] + some[1]) / 2
    return need, theta, draw(st.sampled_from([0.0, 0.3, 0.9, 1.0])) * least
