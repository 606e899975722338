"""Names of `import ranktrial`: each is there, has an example that runs, and costs nothing until it is asked for."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ranktrial
from ranktrial import AB, Log, Pair, analysis, log, methods, position_bias, rankings, testing, trec, users
from ranktrial.paper import click_models
from ranktrial.paper import data as data_sets
from ranktrial.seeds import Seed

PUBLIC = (trec, log, users, position_bias, rankings, methods, analysis, data_sets, click_models)


@pytest.mark.parametrize("name", ranktrial.__all__)
def test_every_name_can_be_imported_and_has_an_example(name: str) -> None:
    assert name in dir(ranktrial)
    thing = getattr(ranktrial, name)
    (found,) = doctest.DocTestFinder(recurse=False, exclude_empty=False).find(thing, name)
    assert found.examples, f"the docstring of ranktrial.{name} has no example"


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="module 'ranktrial' has no attribute 'LogOp'"):
        ranktrial.LogOp  # noqa: B018


@pytest.mark.parametrize("heavy", ["numba", "pydantic", "altair", "numpy", "scipy"])
def test_importing_it_loads_nothing_heavy(heavy: str) -> None:
    code = f"import ranktrial, sys; dir(ranktrial); sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def functions_with_a_seed() -> Iterator[tuple[str, inspect.Parameter]]:
    """Functions, and methods of classes, that packages export."""
    things = [(f"{package.__name__}.{name}", getattr(package, name)) for package in PUBLIC for name in package.__all__]
    things.append(("ranktrial.testing.fixed_world", testing.fixed_world))
    for name, thing in things:
        inside = vars(thing).items() if inspect.isclass(thing) else [("", thing)]
        for part, member in inside:
            function = getattr(member, "__func__", member)
            if inspect.isfunction(function) and not part.startswith("_"):
                seed = inspect.signature(function).parameters.get("seed")
                if seed is not None:
                    yield f"{name}.{part}".rstrip("."), seed


def test_a_seed_is_given_by_keyword_and_may_be_a_sequence() -> None:
    found = dict(functions_with_a_seed())
    known = {"ranktrial.log.Log.simulated", "ranktrial.paper.data.yahoo_like", "ranktrial.methods.AB.simulate"}
    assert known <= set(found)
    assert [name for name, seed in found.items() if seed.kind is not seed.KEYWORD_ONLY] == []
    assert {seed.annotation for seed in found.values()} == {"Seed"}
    assert {seed.default for seed in found.values()} == {inspect.Parameter.empty, 0}


PAIR = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2).knowing(theta=[1.0, 0.5])
USER = ranktrial.position_based([0.5, 0.1], [1.0, 0.5])
DRAWS: dict[str, Callable[[Seed], Any]] = {
    "log": lambda seed: Log.simulated(PAIR, AB().policy(PAIR), USER, 1000, seed=seed).clicks,
    "run": lambda seed: AB().simulate(PAIR, USER, [1000], seed=seed).ctr,
    "set": lambda seed: data_sets.yahoo_like(3, seed=seed).labels,
    "ties": lambda seed: rankings.rank_by_score(np.zeros(20), np.array([0, 20]), seed=seed).documents,
    "world": lambda seed: testing.fixed_world(seed=seed)[1].zeta,
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_an_integer_and_its_sequence_are_the_same_seed(draw: Callable[[Seed], Any]) -> None:
    sequence = np.random.SeedSequence(5)
    first, again, same, other = draw(sequence), draw(sequence), draw(5), draw(6)
    assert np.array_equal(first, again)  # using a sequence does not use it up
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
