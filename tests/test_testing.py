"""Every check of ``ranktrial.testing`` notices a method that is wrong in the way it looks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from ranktrial import testing
from ranktrial.methods import AB, Balanced, Displays, Linear, Method, Optimized, TeamDraft, Trajectory
from ranktrial.rankings import Moments, Pair


@pytest.fixture(autouse=True)
def _forget_the_methods_of_these_tests() -> Iterator[None]:
    known = dict(Method.registry)
    yield
    Method.registry.clear()
    Method.registry.update(known)


def broken(base: type[Method], /, **attributes: Any) -> Method:
    """A method like another but for some attributes; of its traits, but for some of these."""
    if "traits" in attributes:
        attributes["traits"] = replace(base().traits, **attributes["traits"])
    kind: type[Method] = dataclass(frozen=True, repr=False)(type("Broken", (base,), attributes))
    Method.registry["Broken"] = kind
    return kind()


def linear(displays: Displays) -> Linear:
    assert isinstance(displays.value, Linear)
    return displays.value


def spelled_apart(self: Method) -> str:
    return "Broken(outcome='sum')"


def one_page_twice(self: Method, pair: Pair) -> Displays:
    displays = Optimized().displays(pair)
    twice = displays.mixture.rankings.copy()
    twice[:, -1] = twice[:, 0]
    return replace(displays, mixture=replace(displays.mixture, rankings=twice))


def short_pages(self: Method, pair: Pair) -> Displays:
    displays = Optimized().displays(pair)
    short = displays.mixture.rankings.copy()
    short[:, -1] = -1
    return replace(displays, mixture=replace(displays.mixture, rankings=short))


def favours_a(self: Method, pair: Pair) -> Displays:
    displays = Optimized().displays(pair)
    return replace(displays, value=Linear(linear(displays).values + 0.01))


def too_small(self: Method, pair: Pair, user: Any) -> Moments:
    return replace(Optimized().moments(pair, user), variance=0.0)


def elsewhere(self: Method, pair: Pair) -> Any:
    mixture = Optimized().displays(pair).mixture
    return replace(mixture, rankings=np.roll(mixture.rankings, 1, axis=1))


def ignores_the_seed(self: Method, *args: Any, seed: int, shortcut: bool = True) -> Trajectory:
    return Optimized().simulate(*args, seed=1)


def looks_change_the_run(self: Method, pair: Pair, user: Any, points: Any, *, seed: int, **_: Any) -> Trajectory:
    return Optimized().simulate(pair, user, points, seed=seed + len(points))


def doubled(self: Method, *args: Any, seed: int, shortcut: bool = True) -> Trajectory:
    run = Optimized().simulate(*args, seed=seed)
    return replace(run, estimate=2 * run.estimate)


def squares_of_half(self: Method, *args: Any, seed: int, shortcut: bool = True) -> Trajectory:
    run = Optimized().simulate(*args, seed=seed)
    return replace(run, mean_square=run.mean_square / 4)


def takes_any_checkpoints(self: Method, pair: Pair, user: Any, points: Any, *, seed: int, **_: Any) -> Trajectory:
    return Optimized().simulate(pair, user, [1], seed=seed)


@pytest.mark.parametrize(
    ("check", "base", "attributes", "sentence"),
    [
        ("text", TeamDraft, {"__repr__": spelled_apart}, "must parse back to an equal method"),
        ("displays", Optimized, {"displays": one_page_twice}, "must hold documents of .* each once"),
        ("displays", Optimized, {"displays": short_pages}, "length of a page must be"),
        (
            "displays",
            Optimized,
            {"traits": {"ab_shares": (0.9, 0.1)}},
            "by ab_shares 0.9 of pages must be the own list of A",
        ),
        ("moments", Optimized, {"moments": too_small}, "variance of x must be"),
        ("moments", Optimized, {"policy": elsewhere}, "placement must be"),
        ("expectation", Optimized, {"traits": {"tends_to_delta": True}}, r"E\[x\], which tends to Delta, must be"),
        ("expectation", AB, {"traits": {"tends_to_delta": False}}, "tends_to_delta must be True"),
        ("random_clicks", Balanced, {"traits": {"fair_to_random_clicks": True}}, r"E\[x\] of random clicks must be 0"),
        (
            "random_clicks",
            Optimized,
            {"traits": {"fair_to_random_clicks": False}},
            "fair_to_random_clicks must be True",
        ),
        ("swapping", Optimized, {"displays": favours_a}, "with A and B swapped, the mean of x must be"),
        ("identical", Optimized, {"displays": favours_a}, r"E\[x\] of identical rankers must be 0"),
        ("identical", AB, {"traits": {"zero_on_identical": True}}, "zero_on_identical must be False"),
        ("identical", TeamDraft, {"traits": {"zero_on_identical": False}}, "zero_on_identical must be True"),
        ("seeds", Optimized, {"simulate": ignores_the_seed}, "another seed must give another run"),
        ("run_so_far", Optimized, {"simulate": looks_change_the_run}, "must not depend on how often"),
        ("simulation", Optimized, {"simulate": doubled}, "simulated with shortcut=False, the mean of x must be"),
        ("squared_error", Optimized, {"simulate": squares_of_half}, "must be"),
        ("checkpoints", Optimized, {"simulate": takes_any_checkpoints}, r"checkpoints \[\] must be refused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_check_notices(check: str, base: type[Method], attributes: dict[str, Any], sentence: str) -> None:
    method = broken(base, **attributes)
    found: Callable[[Method], None] = getattr(testing, f"check_{check}")
    found(base())
    with pytest.raises(AssertionError, match=sentence) as failure:
        found(method)
    assert str(failure.value).startswith("Broken(")
    with pytest.raises(AssertionError):
        testing.check_method(method)


def test_all_checks_are_run() -> None:
    named = {name for name in vars(testing) if name.startswith("check_")} - {"check_method"}
    assert {check.__name__ for check in testing.CHECKS} == named
