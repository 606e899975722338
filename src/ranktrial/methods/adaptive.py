"""Methods that learn on the way: the loop that fits, redesigns and shows.

Before the first impression and at each point of a schedule: fit what is believed to the log so far, work out what to show from
that, show it until the next point. A simulation feeds the loop with counts that it draws; a live trial runs the same steps
(``Method.learn``, ``Method.query_policy``) on the log of its store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray
from ranktrial.methods.base import Method
from ranktrial.methods.beliefs import first_theta
from ranktrial.methods.expected import (
    SETTLED,
    ExpectedRun,
    LearningInStages,
    Stages,
    begin_stretch,
    expect_in_stages,
    stretches,
)
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Pair
from ranktrial.rankings.lists import check_user
from ranktrial.seeds import Seed
from ranktrial.users import User

BIAS = ("known", "estimated")


@dataclass(frozen=True, eq=False)
class AdaptiveRun:
    """A simulated run and the versions of what it showed."""

    trajectory: Trajectory
    versions: tuple[Any, ...]


def run_in_stages(
    method: LearningInStages,
    pair: Pair,
    user: User,
    checkpoints: ArrayLike,
    *,
    seed: Seed,
    progress: Callable[[int, int], None] | None = None,
) -> AdaptiveRun:
    """The loop: a version of what is shown before the first impression, and another at each point of the schedule."""
    check_user(user, pair.k, pair.n_documents)
    points = checks.checkpoints(checkpoints)
    theta = pair.known_theta if method.bias == "known" else first_theta(pair.k)
    stages: Stages = method.stages(pair, user, theta, seed=seed)
    reports = set(points[points >= SETTLED].tolist()) if method.refits and user.follows_position_bias else set()
    rows: list[tuple[float, float, float]] = []
    for begin, end in pairwise(sorted({*stretches(method, int(points[-1])), *reports, int(points[-1])})):
        begin_stretch(method, stages, begin)
        rows += stages.show(begin, end, points[(points > begin) & (points <= end)])
        if end in reports:
            rows[-1] = stages.report()
        if progress is not None:
            progress(end, int(points[-1]))
    estimate, mean_square, ctr = np.array(rows).T
    return AdaptiveRun(Trajectory(points, estimate, mean_square, ctr), tuple(stages.versions))


@dataclass(frozen=True, repr=False)
class Adaptive(Method, abstract=True):
    """A method with position bias known or estimated that learns at the points of a schedule."""

    bias: str
    schedule: tuple[int, ...]

    tends_to_delta = True
    needs_position_bias = True
    lists_displays = False
    has_exact_limit = False

    def __post_init__(self) -> None:
        checks.one_of("bias", self.bias, BIAS)
        object.__setattr__(self, "schedule", checks.schedule(self.schedule))

    @property
    def refits(self) -> bool:
        return self.learns_position_bias

    def stages(self, pair: Pair, user: User, theta: FloatArray, *, seed: Seed) -> Any:
        """A run that begins with this position bias."""
        raise NotImplementedError

    def run(
        self,
        pair: Pair,
        user: User,
        checkpoints: ArrayLike,
        *,
        seed: Seed,
        progress: Callable[[int, int], None] | None = None,
    ) -> AdaptiveRun:
        """Simulate, keeping what was fitted and shown at each version."""
        return run_in_stages(self, pair, user, checkpoints, seed=seed, progress=progress)

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        return self.run(pair, user, checkpoints, seed=seed).trajectory

    def expected(self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, runs: int = 1) -> ExpectedRun:
        check_user(user, pair.k, pair.n_documents)
        if self.shows_top_only:  # no other document has a part in it
            pair, user = pair.of_listed(), user.of(pair.listed)
        return expect_in_stages(self, pair, user, checkpoints, seed=seed, runs=runs)

    @property
    def learns_position_bias(self) -> bool:
        return self.bias == "estimated"

    @property
    def learns_at(self) -> tuple[int, ...]:
        return self.schedule
