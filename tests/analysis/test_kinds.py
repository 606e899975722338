"""Estimators as value objects: they print as written, parse back, and one of your own is one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ranktrial import AB, Log, Orders, Pair, analysis, estimate, position_based
from ranktrial.analysis import IPS, Adjusted, ClickValues, DeltaEstimator, Direct, Paper, RankAware, parse_estimator
from ranktrial.analysis.estimators.kinds import ByClickModel, OfABTraffic
from ranktrial.arrays import FloatArray
from ranktrial.log import folding
from ranktrial.methods.ab import BY_CLICKS
from ranktrial.methods.click_model import ESTIMATES

SHORT = (
    "ips", "constant", "doubly-robust", "rank-aware", "direct", "self-normalised", "paper", "means", "adjusted", "observed",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class OwnWeights(DeltaEstimator):
    """The paper's estimate by other means."""

    most: float = 1e9

    def values(self, log: Log, theta: FloatArray, lam: FloatArray) -> ClickValues:
        rho = log.exposure(theta)
        weight = np.divide(lam, rho, out=np.zeros_like(rho), where=rho > 0)
        capped = np.clip(weight, -self.most, self.most)[log.clicked[2]]
        return ClickValues(capped, lost=float(np.abs(weight[log.clicked[2]] - capped).sum()))


def world(n: int = 600, devices: bool = False) -> Log:
    pair = Pair.from_lists([["x", "y", "z"]] * 4, [["z", "x", "y"]] * 4, k=3).knowing(theta=[1.0, 0.6, 0.4])
    user = position_based([0.5, 0.3, 0.6] * 4, [1.0, 0.6, 0.4])
    log = Log.simulated(pair, AB().policy(pair), user, n, seed=5)
    if not devices:
        return log
    records = []
    for i in range(n):
        query = int(log.query[log.design[i]])
        a, b = ([f"d{d}" for d in table[query] if d >= 0] for table in (pair.top_a, pair.top_b))
        shown = a if log.arm[i] > 0 else b
        record: dict[str, Any] = {"query": f"q{query}", "a": a, "b": b, "shown": shown, "unit": f"u{i % 90}"}
        record |= {"arm": "a" if log.arm[i] > 0 else "b", "segment": {"device": "phone" if i % 3 else "desktop"}}
        records.append({**record, "clicked": [d for d, hit in zip(shown, log.clicks[i]) if hit]})
    return Log.from_records(records, 3)


@pytest.mark.parametrize("short", SHORT)
def test_an_estimator_prints_as_written_and_has_one_short_name(short: str) -> None:
    kind = parse_estimator(short)
    assert parse_estimator(str(kind)) == kind == parse_estimator(type(kind).__name__) == eval(str(kind), vars(analysis))


def test_all_that_the_package_has_are_tested_here() -> None:
    own = {name for name, kind in DeltaEstimator.registry.items() if kind.__module__.startswith("ranktrial.")}
    assert {type(parse_estimator(short)).__name__ for short in SHORT} == own


def test_an_estimator_without_values_is_not_the_papers() -> None:
    class Forgotten(DeltaEstimator, abstract=True):
        pass

    with pytest.raises(NotImplementedError, match=r"Forgotten\(\) has no values"):
        estimate(world(), estimator=Forgotten())


def test_methods_name_estimators_that_there_are() -> None:
    assert all(isinstance(parse_estimator(name), ByClickModel) for name in ESTIMATES)
    assert all(isinstance(parse_estimator(name), OfABTraffic) for name in BY_CLICKS)


@pytest.mark.parametrize("kind", [RankAware(), Direct(), IPS(clip=1.5), Adjusted(), Paper()], ids=str)
def test_an_object_and_its_text_are_the_same_estimator(kind: DeltaEstimator) -> None:
    log = world()
    found, by_text = estimate(log, estimator=kind), estimate(log, estimator=str(kind))
    np.testing.assert_array_equal(found.x, by_text.x)
    assert found.standard_error == by_text.standard_error


def test_options_go_with_a_name_or_inside_an_object() -> None:
    log = world()
    assert estimate(log, estimator="ips", clip=0.7).delta == estimate(log, estimator=IPS(clip=0.7)).delta
    assert estimate(log, clip=0.7).bias_bound == estimate(log, estimator=RankAware(clip=0.7)).bias_bound > 0
    for options, message in (
        ({"estimator": IPS(), "clip": 0.7}, r"clip cannot be given beside IPS\(\)"),
        ({"estimator": "ips", "clap": 1}, "IPS has no option 'clap'; options: clip"),
        ({"estimator": "ips", "clip": -1}, "clip is -1, must be positive"),
        ({"estimator": 3}, "3 is not an estimator; write one like RankAware"),
        ({"estimator": "IPS(2)"}, "is not an estimator"),
        ({"estimator": OwnWeights(), "prediction": 0.3}, r"prediction belongs to .*RankAware.*, not to OwnWeights\(\)"),
        ({"estimator": OwnWeights(), "metric": Orders()}, r"OwnWeights\(\) is for clicks only"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate(log, **options)


@pytest.mark.parametrize("devices", [False, True])
def test_an_estimator_of_ones_own_has_all_that_the_papers_has(devices: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, error with that of theta, jackknife by segment, in one piece and in chunks."""
    log = world(devices=devices)
    for chunk in (10_000, 130):
        monkeypatch.setattr(folding, "CHUNK", chunk)
        own, paper = (estimate(log, theta="estimated", estimator=kind) for kind in (OwnWeights(), IPS()))
        np.testing.assert_allclose(own.x, paper.x, atol=1e-12)
        assert own.replicates is not None
        np.testing.assert_allclose(own.replicates, paper.replicates, atol=1e-12)  # type: ignore[arg-type]
        assert own.standard_error == pytest.approx(paper.standard_error, rel=1e-9)
        assert own.effective_clicks == pytest.approx(paper.effective_clicks)
        assert own.rests.keys() == paper.rests.keys() == ({"device"} if devices else set())
        for name, rest in own.rests.items():
            np.testing.assert_allclose(rest, paper.rests[name], atol=1e-9)
    bounded = estimate(log, estimator=OwnWeights(most=0.5))
    assert bounded.largest_weight <= 0.5
    assert bounded.bias_bound > 0
