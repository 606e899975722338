"""What does it look like? One pair of rankers on simulated users, compared by every method."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ranktrial.data import Dataset, train_rankers
from ranktrial.methods import (
    AB,
    Balanced,
    Counterfactual,
    LogOpt,
    Method,
    Optimized,
    Probabilistic,
    TeamDraft,
    Trajectory,
)
from ranktrial.rankings import Pair
from ranktrial.seeds import children
from ranktrial.users import User, position_based, position_bias


@dataclass(frozen=True)
class World:
    """Two rankers and the users who click on them; the truth is known exactly."""

    dataset: Dataset
    pair: Pair
    user: User
    ctr_a: float
    ctr_b: float

    @property
    def delta(self) -> float:
        return self.ctr_a - self.ctr_b


@dataclass(frozen=True)
class Row:
    """How one method fared.

    Attributes:
        method: As it is written.
        estimates: The estimate at each checkpoint.
        errors: Its distance from the true difference.
        prefers: "A", "B" or "neither" at the last checkpoint.
        ctr: Clicks per impression that users gave while the method ran.
        impressions_per_second: Of the simulation on one core, without set-up (for LogOpt with the optimisation of its
            policy); None where a whole run is drawn at once.
        comparable: The estimate is a difference in clicks, so its error goes to zero; False for interleaving.
    """

    method: str
    estimates: tuple[float, ...]
    errors: tuple[float, ...]
    prefers: str
    ctr: float
    impressions_per_second: float | None
    comparable: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def build_world(dataset: Dataset, *, k: int, seed: int, progress: Callable[[int, int], None] | None = None) -> World:
    """Train two linear rankers on 100 queries each and let position-based users (theta = 1/rank) click."""
    training, ties = children(seed, 2)
    rankers = train_rankers(dataset, 2, seed=training, rankers="code", progress=progress)
    scores = [rankers.scores(dataset, i) for i in range(2)]
    theta = position_bias(k)
    pair = Pair.from_scores(scores[0], scores[1], dataset.offsets, k, seed=ties).knowing(theta=theta)
    user = position_based(dataset.zeta(), theta)
    return World(dataset, pair, user, *pair.ctr(user))


def demo_methods() -> list[Method]:
    interleaving: list[Method] = [TeamDraft(), Probabilistic(), Optimized(), Balanced()]
    counterfactual = [Counterfactual(logging=logging) for logging in ("uniform", "ab", "optimal")]
    return [AB(), AB(estimate="means"), *interleaving, *counterfactual, LogOpt(), LogOpt(bias="estimated")]


def run_method(method: Method, world: World, checkpoints: list[int], *, seed: int) -> Row:
    pair, user = world.pair, world.user
    # Displays that are listed beforehand are set-up, and so is compiling: neither counts as the simulation's time.
    listed = method.displays(pair) if isinstance(method, (AB, Optimized, Balanced)) else None
    at_once = method == AB(estimate="means")

    def simulate(points: list[int]) -> Trajectory:
        if listed is not None and not at_once:
            return listed.simulate(user, points, seed=seed)
        return method.simulate(pair, user, points, seed=seed, shortcut=False)

    if not isinstance(method, LogOpt):
        simulate([1])
    start = time.perf_counter()
    run = simulate(checkpoints)
    elapsed = time.perf_counter() - start
    final = run.estimate[-1]
    return Row(
        str(method),
        tuple(run.estimate.tolist()),
        tuple(run.absolute_error(world.delta).tolist()),
        "A" if final > 0 else "B" if final < 0 else "neither",
        float(run.ctr[-1]),
        None if at_once else checkpoints[-1] / elapsed,
        isinstance(method, (AB, Counterfactual, LogOpt)),
    )


def checkpoints_to(impressions: int) -> list[int]:
    """Powers of ten from 1,000, ending with the number asked for."""
    powers = [10**e for e in range(3, 10) if 10**e < impressions]
    return sorted({*powers, impressions})
