"""Coverage of intervals, looked at once or all along, with position bias known or estimated.

Yahoo-like queries, drawn uniformly, rankers trained as the paper's text says, pages of 10, theta = 1/r. Values come
from single impressions (A/B: from the exact law of arm and clicks); with theta estimated, from formats. A run misses
when the truth is outside at any of its looks. "+-" is the Monte-Carlo standard error of the share.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats

from ranktrial.analysis import estimate
from ranktrial.analysis.intervals import (
    asymptotic_radius,
    asymptotic_sequence,
    difference_values,
    fixed_interval,
    refuted_after,
)
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.log import Log
from ranktrial.log.log import GROUPS
from ranktrial.methods import AB, Counterfactual
from ranktrial.methods.displays import Displays, Linear
from ranktrial.paper.data import Dataset, train_rankers, yahoo_like
from ranktrial.rankings import Mixture, Pair
from ranktrial.rankings.values import Affine
from ranktrial.seeds import children, generator
from ranktrial.users import User, position_based, rank_decay

FIXED_RUNS, FIXED_N = 10_000, 10_000
RUNS, LONGEST, FIRST_LOOK = 1000, 100_000, 100
BIAS_RUNS, BIAS_LOOKS = 400, (1_000, 3_160, 10_000, 31_600, 100_000)
ESTIMATED = "theta estimated"
Row = dict[str, object]


def run() -> list[Row]:
    worlds = worlds_of(yahoo_like(300, seed=3), 2)
    rows = [row for pair, user in worlds for row in fixed(pair, user)]
    return rows + all_along(*worlds[0]) + bias_estimated(*worlds_of(yahoo_like(100, seed=5), 1)[0])


def worlds_of(dataset: Dataset, count: int) -> list[tuple[Pair, User]]:
    rankers = train_rankers(dataset, 2 * count, seed=11, rankers="paper")
    theta = rank_decay(10)
    user = position_based(dataset.zeta(), theta)
    scores = [rankers.scores(dataset, i) for i in range(2 * count)]
    return [
        (Pair.from_scores(a, b, dataset.offsets, 10).knowing(theta=theta), user)
        for a, b in zip(scores[::2], scores[1::2])
    ]


def _row(pair: Pair, user: User, what: str, share: float, runs: int, target: str) -> Row:
    error = np.sqrt(max(share * (1 - share), 1 / runs) / runs)
    where = f"{pair.n_queries} queries, delta {pair.delta(user):+.3f}"
    return {"pair": where, "what": what, "share": f"{share:.2%}", "+-": f"{error:.2%}", "runs": runs, "target": target}


def logged(displays: Displays, user: User, n: int, seed: np.random.SeedSequence) -> FloatArray:
    """x of n impressions."""
    points = np.arange(1, n + 1)
    return np.diff(displays.simulate(user, points, seed=seed).estimate * points, prepend=0.0)


def split(pair: Pair, user: User, n: int, runs: int, seed: int) -> Iterator[tuple[BoolArray, FloatArray]]:
    """Arm (True for A) and clicks of n impressions of an even A/B test, run after run."""
    law = AB().outcome_law(pair, user)
    edges = np.cumsum(law.ravel()) / law.sum()
    for child in children(seed, runs):
        cell = np.searchsorted(edges, generator(child).random(n), side="right")
        yield cell < law.shape[1], (cell % law.shape[1]).astype(np.float64)


def fixed(pair: Pair, user: User) -> list[Row]:
    """One look at a number of impressions fixed beforehand."""
    truth = pair.delta(user)
    displays = Counterfactual(logging="optimal").displays(pair)
    inside = np.zeros(3)
    arms = split(pair, user, FIXED_N, FIXED_RUNS, seed=1)
    for child, (in_a, clicks) in zip(children(2, FIXED_RUNS), arms):
        samples = (logged(displays, user, FIXED_N, child), _paper_values(in_a, clicks), difference_values(clicks, in_a))
        ends = np.array([fixed_interval(x) for x in samples])
        inside += (ends[:, 0] < truth) & (truth < ends[:, 1])
    names = ("closed form, IPS", "A/B, the paper's x", "A/B, difference in means")
    what = f"fixed interval holds the truth at {FIXED_N:,}"
    return [
        _row(pair, user, f"{name}: {what}", held / FIXED_RUNS, FIXED_RUNS, "94-96 %")
        for name, held in zip(names, inside)
    ]


def _paper_values(in_a: BoolArray, clicks: FloatArray) -> FloatArray:
    return np.where(in_a, 2.0, -2.0) * clicks


def all_along(pair: Pair, user: User) -> list[Row]:
    """A look at every impression from the first hundred on (from the first on where the sequence allows it)."""
    truth = pair.delta(user)
    displays = Counterfactual(logging="optimal").displays(pair)
    tests = AB().displays(pair)
    assert isinstance(displays.value, Linear)
    assert isinstance(tests.value, Linear)
    bounds = [Affine(np.zeros(len(values)), values).bound for values in (displays.value.values, tests.value.values)]
    looks = np.arange(FIRST_LOOK, LONGEST + 1)
    missed: dict[str, int] = {}

    def note(name: str, miss: bool) -> None:
        missed[name] = missed.get(name, 0) + miss

    arms = split(pair, user, LONGEST, RUNS, seed=3)
    for child, (in_a, clicks) in zip(children(4, RUNS), arms):
        samples = (logged(displays, user, LONGEST, child), _paper_values(in_a, clicks))
        for name, x, bound in zip(("closed form, IPS", "A/B, the paper's x"), samples, bounds):
            band = asymptotic_sequence(x, looks)
            note(f"{name}: asymptotic sequence", bool(np.any((band.low > truth) | (band.high < truth))))
            note(f"{name}: betting, |x| <= {bound:.3g}", refuted_after(x, truth, bound=bound) is not None)
        mean, spread = running(samples[0], looks)
        z = float(stats.norm.ppf(0.975))
        peeked = np.any(np.abs(mean - truth) > z * spread / np.sqrt(looks))
        note("closed form, IPS: fixed interval, wrongly", bool(peeked))
        mean, spread = running_difference(in_a, clicks, looks)
        note(
            "A/B, difference in means: asymptotic sequence",
            bool(np.any(np.abs(mean - truth) > asymptotic_radius(looks, spread))),
        )
    return [
        _row(pair, user, f"{name} misses by {LONGEST:,}", count / RUNS, RUNS, "" if "wrongly" in name else "<= 5 %")
        for name, count in missed.items()
    ]


def running(x: FloatArray, looks: IntArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the values so far."""
    mean, square = np.cumsum(x)[looks - 1] / looks, np.cumsum(x**2)[looks - 1] / looks
    return mean, np.sqrt(np.maximum(square - mean**2, 0))


def running_difference(in_a: BoolArray, clicks: FloatArray, looks: IntArray) -> tuple[FloatArray, FloatArray]:
    """Difference in means so far, and the standard deviation that one impression contributes to it."""
    difference, variance = np.zeros(len(looks)), np.zeros(len(looks))
    for arm, sign in ((in_a, 1.0), (~in_a, -1.0)):
        sums = np.cumsum(np.stack([arm, arm * clicks, arm * clicks**2]), axis=1, dtype=np.float64)
        shown, total, square = sums[:, looks - 1]
        difference += sign * total / shown
        variance += (square / shown - (total / shown) ** 2) * looks / shown
    return difference, np.sqrt(variance)


def bias_estimated(pair: Pair, user: User) -> list[Row]:
    """Theta estimated from the same log, at looks ever further apart; and theta from the first look kept for good."""
    truth, end = pair.delta(user), len(BIAS_LOOKS) - 1
    method = Counterfactual(logging="optimal")
    mixture, variance = method.displays(pair).mixture, method.moments(pair, user).variance
    found = np.array([list(growing_log(mixture, pair, user, child)) for child in children(5, BIAS_RUNS)])
    delta, error, alone, kept, reach = np.moveaxis(found, 2, 0)
    away = np.abs(delta - truth)
    t = float(stats.t.ppf(0.975, GROUPS - 1))
    rows = []
    for look in (0, BIAS_LOOKS.index(FIXED_N), end):
        n = BIAS_LOOKS[look]
        known = float(stats.norm.ppf(0.975)) * np.sqrt(variance / n)
        for name, inside, target in (
            ("jackknife interval", away < t * error, "94-96 %"),
            ("interval as if theta were known", away < t * alone, ""),
            (f"theta from the first {BIAS_LOOKS[0]:,}, as if it were known", np.abs(kept - truth) < known, ""),
        ):
            share = float(inside[:, look].mean())
            rows.append(_row(pair, user, f"{ESTIMATED}: {name}, holds the truth at {n:,}", share, BIAS_RUNS, target))
        wider = np.mean(error[:, look] / alone[:, look])
        loss = np.var(delta[:, look]) * n / variance - 1
        what = f"{ESTIMATED}: at {n:,}, standard error {wider:.3f} times that of clicks alone; extra variance over known theta"
        noise = {"share": f"{loss:+.0%}", "+-": f"{np.sqrt(2 / BIAS_RUNS):.0%}"}
        rows.append(_row(pair, user, what, 0, BIAS_RUNS, "") | noise)
    for name, outside, target in (
        ("jackknife sequence", away > reach, "<= 5 %"),
        ("sequence as if theta were known", away > reach * alone / error, ""),
    ):
        share = float(outside.any(1).mean())
        what = f"{ESTIMATED}: {name}, misses at {end + 1} looks to {BIAS_LOOKS[end]:,}"
        rows.append(_row(pair, user, what, share, BIAS_RUNS, target))
    return rows


def growing_log(
    mixture: Mixture, pair: Pair, user: User, seed: np.random.SeedSequence
) -> Iterator[tuple[float, float, float, float, float]]:
    """At each look: the estimate, its standard error, that of clicks alone, the estimate with theta from the first look,
    and the reach of the sequence."""
    log, first = Log.simulated(pair, mixture, user, BIAS_LOOKS[-1], seed=seed), None
    for n in BIAS_LOOKS:
        part = log.take(np.arange(n))
        found = estimate(part, theta="estimated", estimator="ips")
        first = found.theta if first is None else first
        kept = estimate(part, theta=first, estimator="ips").delta
        yield found.delta, found.standard_error, found.clicks_alone, kept, found.anytime_interval().half_width
