"""Every method that the library exports, and some with other options, through the checks of ``ranktrial.testing``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ranktrial import methods
from ranktrial.methods import AB, Counterfactual, LogOpt, Method, Optimized, Probabilistic, TeamDraft
from ranktrial.rankings import Pair
from ranktrial.testing import CHECKS
from ranktrial.users import mixed_devices, position_based, two_devices

EXPORTED = [kind() for kind in Method.registry.values() if kind.__name__ in methods.__all__]
METHODS = [
    # Designs that change on the way have tests of their own.
    *(method for method in EXPORTED if not method.traits.learns_at),
    AB(split=0.8, estimate="paper"),
    AB(estimate="paper"),
    AB(split=0.3, estimate="ips", bias="known", schedule=()),
    AB(split=0.3, estimate="rank-aware", bias="known", schedule=()),
    TeamDraft(outcome="sum"),
    Probabilistic(tau=0),
    Optimized(credit="linear"),
    Optimized(credit="inverse", constraints="linear"),
    Counterfactual(logging="ab"),
    Counterfactual(logging="lambda"),
    Counterfactual(logging="optimal"),
    Counterfactual(logging="optimal", floor=0.5),
    Counterfactual(logging="ab", clip=0.5),
    LogOpt(schedule=(), bias="known", relevance="constant", estimate="ips", loss=None, keep=0, holdback=0),
    LogOpt(schedule=(), bias="known", estimate="constant"),
    LogOpt(schedule=(), bias="known"),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_method(method: Method, check: Callable[[Method], None]) -> None:
    check(method)


@pytest.mark.parametrize("method", [m for m in METHODS if not m.traits.tends_to_delta], ids=str)
def test_interleaving_and_clipping_are_known_to_be_biased(method: Method) -> None:
    """Each misses the true difference by far on the paper's example (documents A, B, C; ABC against BCA)."""
    pair = Pair.from_lists(["ABC"], ["BCA"], k=3)
    user = position_based([0.5, 0, 1], [1, 0.9, 0.3])
    pair = pair.knowing(theta=user.slope)
    assert abs(method.moments(pair, user).mean - pair.delta(user)) > 0.05


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_moments_of_two_devices_are_those_of_either_by_their_shares(method: Method) -> None:
    """With the theta of both together what tends to Delta still does; which clicks come together tells them apart."""
    options: dict[str, Any] = {"visible": 2, "eta": 0.7}
    zeta = [0.5, 0, 1, 0.3, 0.6]
    both, (phone, desktop) = mixed_devices(zeta, 3, phones=0.6, **options), two_devices(zeta, 3, **options).values()
    theta = desktop.slope * [1, 1, 0.4]
    pair = Pair.from_lists([[0, 1, 2], [3, 4]], [[1, 2, 0], [4, 3]], k=3).knowing(theta=theta)
    found, of_phone, of_desktop = (method.moments(pair, user) for user in (both, phone, desktop))
    means, variances = np.array([(one.mean, one.variance) for one in (of_phone, of_desktop)]).T
    mean = [0.6, 0.4] @ means
    assert found.mean == pytest.approx(mean, abs=1e-12)
    if method != AB():  # each arm's variance about its own mean, which is not the same for either device
        assert found.variance == pytest.approx([0.6, 0.4] @ (variances + (means - mean) ** 2), rel=1e-9)
    assert found.ctr == pytest.approx(0.6 * of_phone.ctr + 0.4 * of_desktop.ctr, abs=1e-12)
    if method.traits.tends_to_delta:
        assert found.mean == pytest.approx(pair.delta(both), abs=1e-9)


def test_traits_hold_for_these_methods_and_no_others() -> None:
    """Traits that the checks above do not look at: a default that should have been overridden would pass them."""
    adaptive = [LogOpt(), LogOpt(bias="known"), AB(estimate="rank-aware")]
    observed = Counterfactual(propensities="observed")
    known = [*METHODS, *adaptive, observed]
    plain = [m for m in known if isinstance(m, AB) or (isinstance(m, Counterfactual) and m.logging == "ab")]
    assert {m for m in known if m.traits.runs_live} == {m for m in known if isinstance(m, AB | LogOpt)}
    assert {m for m in known if m.traits.learns_at} == {*adaptive}
    assert {m for m in known if sum(m.traits.ab_shares) == 1} == {*plain}
    assert {m for m in known if not m.traits.averages_impressions} == {AB(), observed}
    assert {type(m) for m in known if not m.traits.lists_displays} == {
        TeamDraft,
        Probabilistic,
        Counterfactual,
        LogOpt,
        AB,
    }
    assert {m for m in known if isinstance(m, AB) and not m.traits.lists_displays} == {AB(estimate="rank-aware")}
    assert {m.logging for m in known if isinstance(m, Counterfactual) and m.traits.lists_displays} == {"ab", "optimal"}
