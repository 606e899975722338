"""Attributes of searches: what may be declared, how values become one number, and head and tail of the traffic so far."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ranktrial.config import TrialConfig
from ranktrial.segments import HEAD, OTHER, TAIL, Segments, Traffic

DECLARED = {"device": ["phone", "desktop"], "country": ["de", "fr", "us"], "query": "head/tail"}


def test_every_combination_of_values_has_a_code_of_its_own_and_is_read_back() -> None:
    segments = Segments.of(DECLARED)
    assert segments.names == ("country", "device", "query")
    codes = set()
    for country in segments.values("country"):
        for device in segments.values("device"):
            for part in segments.values("query"):
                code, problems = segments.code({"country": country, "device": device}, part)
                assert not problems
                assert segments.decoded(code) == {"country": country, "device": device, "query": part}
                assert segments.values("device")[segments.levels("device", np.array([code]))[0]] == device
                assert segments.values("query")[segments.levels("query", code)] == part
                codes.add(code)
    assert codes == set(range(segments.size))


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (None, ("country is not given", "device is not given")),
        ({"device": "phone"}, ("country is not given",)),
        ({"device": "Phone", "country": "other"}, ("device is not a declared value",)),
        ({"device": 3, "country": "de"}, ("device is not a declared value",)),
        ({"device": "phone", "country": "de", "query": "head"}, ()),  # what the trial decides is not taken from others
        ({"device": "phone", "country": "de", "browser": "x"}, ("what is given is not declared",)),
        ("phone", ("country is not given", "device is not given", "what is given is not declared")),
    ],
)
def test_what_is_missing_or_unknown_is_other_and_told(given: Any, problems: tuple[str, ...]) -> None:
    segments = Segments.of(DECLARED)
    code = segments.code(given, TAIL)
    assert code.problems == problems
    assert segments.decoded(code.code)["query"] == TAIL
    assert segments.code(["phone"]).code == 0


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"device": "phone"}, "device is 'phone', must be a list of values, or 'head/tail'"),
        ({"device": ["other"]}, "which every attribute has by itself"),
        ({"device": []}, "at least one, each once"),
        ({"device": ["x", "x"]}, "at least one, each once"),
        ({"device": [" x"]}, "a value of device is ' x', must have 1 to 40 characters"),
        ({"": ["x"]}, "an attribute's name is ''"),
        ({str(i): ["x"] for i in range(6)}, "6 attributes with 6 values in all, must be at most 5 with 60"),
        ({"country": [str(i) for i in range(61)]}, "1 attributes with 61 values in all"),
    ],
)
def test_what_cannot_be_declared_is_refused(declared: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Segments.of(declared)


def test_a_configuration_reads_back_what_was_declared() -> None:
    config = TrialConfig.model_validate({"segments": DECLARED})
    again = TrialConfig.stored(config.to_store())
    assert again == config
    assert again.segmented == Segments.of(DECLARED)
    nothing = TrialConfig.model_validate({})
    assert not nothing.segmented
    text = nothing.changes(config)["segments"]
    assert text == "none -> country (de/fr/us), device (phone/desktop), query (head/tail)"
    with pytest.raises(ValueError, match="head/tail"):
        TrialConfig.model_validate({"segments": {"query": "tail"}})


def test_head_queries_are_those_that_made_half_of_the_searches_before() -> None:
    traffic, random = Traffic(), np.random.default_rng(1)
    queries = [f"q{number}" for number in (random.zipf(1.5, 20_000) % 5_000).tolist()]
    parts = [traffic.part_of(query) for query in queries]
    assert set(parts[:1_000]) == {OTHER}
    assert set(parts[1_000:]) == {HEAD, TAIL}
    assert abs(np.mean([part == HEAD for part in parts[10_000:]]) - 0.5) < 0.1
    of_head = {query for query, part in zip(queries[15_000:], parts[15_000:]) if part == HEAD}
    counts = Counter(queries[:15_000])
    exactly, so_far = set(), 0
    for query, count in counts.most_common():
        if 2 * so_far >= 15_000:
            break
        exactly.add(query)
        so_far += count
    assert len(of_head ^ exactly) <= 2  # those at the border
    other = Traffic()  # a query's part does not depend on the searches after it
    assert [other.part_of(query) for query in queries[:5_000]] == parts[:5_000]


def test_head_and_tail_are_the_same_from_counts_as_from_searches() -> None:
    queries = [f"q{number}" for number in (np.random.default_rng(2).zipf(1.5, 20_000) % 5_000).tolist()]
    one_by_one, at_once = Traffic(), Traffic()
    for query in queries:
        one_by_one.part_of(query)
    at_once.add(Counter(queries).items())
    every = sorted(set(queries))
    parts = [[traffic.part_of(query) for query in every] for traffic in (one_by_one, at_once)]
    assert np.mean([one == other for one, other in zip(*parts)]) > 0.999
    assert {HEAD, TAIL} == set(parts[0])


def test_a_query_that_is_most_of_the_traffic_is_the_head() -> None:
    traffic = Traffic()
    parts = [traffic.part_of("often" if number % 4 else f"rare {number}") for number in range(4_000)]
    assert [parts[number] == (HEAD if number % 4 else TAIL) for number in range(1_000, 4_000)] == [True] * 3_000
    parts = [traffic.part_of("new" if number % 8 else f"rarer {number}") for number in range(40_000)]  # then another
    assert {parts[number] for number in range(30_000, 40_000) if number % 8} == {HEAD}
    assert {parts[number] for number in range(30_000, 40_000) if not number % 8} == {TAIL}
