"""The draw of a search, which nothing but its arguments decides."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ranktrial.log.designs import Design
from ranktrial.log.known import Known
from ranktrial.methods import AB, Beliefs, LogOpt, Method
from ranktrial.segments import Segments
from ranktrial.store.base import Bias
from ranktrial.trial.drawing import Drawn, Policy, Search, draw, make_design

A, B = ["w", "x", "y", "z"], ["y", "w", "v", "x"]
THETA = (1.0, 0.5, 0.25)
BIAS = Bias(3, 0, THETA, False, "", 0.5, "{}")
SEARCH = Search("q", A, B, "u")


def policy(method: Method, **more: object) -> Policy:
    given = {"secret": b"secret", "version": 1, "bias": BIAS, **more}
    return Policy(method=method, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [LogOpt(), AB()])
def test_probabilities_of_all_rankings_add_up_to_one_and_are_how_often_they_are_drawn(method: Method) -> None:
    known, searches = policy(method), 20_000
    drawn = [draw(SEARCH._replace(unit=f"u{number}"), known) for number in range(searches)]
    design = drawn[0].design
    every = {tuple(one.ranking): one.probability for one in (Drawn(design, row) for row in range(len(design.weights)))}
    assert sum(every.values()) == pytest.approx(1, abs=1e-12)
    times = Counter(tuple(one.ranking) for one in drawn)
    for ranking, probability in every.items():
        error = np.sqrt(probability * (1 - probability) / searches)
        assert times[ranking] / searches == pytest.approx(probability, abs=5 * error + 1e-12)


def test_the_same_search_draws_the_same_wherever() -> None:
    one, other = draw(SEARCH, policy(LogOpt())), draw(SEARCH, policy(LogOpt()))
    assert (one.design.digest, one.place) == (other.design.digest, other.place)
    units = [f"u{number}" for number in range(200)]
    places = {
        changed: [draw(SEARCH._replace(unit=unit), policy(LogOpt(), **options)).place for unit in units]
        for changed, options in (("nothing", {}), ("secret", {"secret": b"other"}), ("version", {"version": 2}))
    }
    assert len({tuple(some) for some in places.values()}) == 3


def test_a_design_that_is_known_is_not_made_again() -> None:
    asked: list[tuple[object, ...]] = []
    design = draw(SEARCH, policy(LogOpt())).design

    def known(*made_from: object) -> Design:
        asked.append(made_from)
        return design

    effects = Known()
    drawn = draw(SEARCH, policy(LogOpt(), known=effects), known)
    assert drawn.design is design
    assert drawn.place == draw(SEARCH, policy(LogOpt())).place
    ((query, a, b, method, beliefs, bias, given),) = asked
    assert (query, a, b, method, bias, given) == ("q", A, B, LogOpt(), 3, effects)
    assert isinstance(beliefs, Beliefs)
    assert beliefs.theta.tolist() == list(THETA)


def test_searches_of_a_segment_are_drawn_by_its_own_beliefs() -> None:
    segments = Segments.of({"device": ["desktop", "phone"]})
    thetas = [list(THETA), [1.0, 0.9, 0.8], [1.0, 0.2, 0.1]]
    more = f'{{"attribute": "device", "thetas": {thetas}}}'
    split = policy(LogOpt(), bias=Bias(3, 0, THETA, True, "", 0.5, more), segments=segments)
    for code, theta in enumerate(thetas):
        design = draw(SEARCH._replace(segment=code), split).design
        assert design.digest == make_design("q", A, B, LogOpt(), Beliefs(np.array(theta), 0.5, True), 3).digest
