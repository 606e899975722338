"""Methods that learn on the way: the loop that fits, redesigns and shows.

Before the first impression and at each point of a schedule: fit what is believed to the log so far, work out what to show from
that, show it until the next point. A simulation feeds the loop with counts that it draws; a live trial runs the same steps
(``Method.learn``, ``Method.query_policy``) on the log of its store.

Of an expected run only clicks that a later fit needs are drawn. Given what it shows, x has a known law; with position bias
known the means and variances of its versions add up. With position bias estimated, clicks of the past are valued anew after
each fit to those very clicks: they stay as they were drawn, and the clicks since the last fit are averaged over. From 10,000
impressions on (``SETTLED``) later clicks are averaged over as well, the fit to them included: to first order an impression is
then worth x plus its influence on theta (``methods.influence``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods.base import Method, Traits
from ranktrial.methods.beliefs import BIAS, first_theta
from ranktrial.methods.expected import ExpectedRun, one_impression
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Moments, Pair
from ranktrial.rankings.lists import check_user
from ranktrial.seeds import Seed, children
from ranktrial.users import User

REFITS = 3  # of theta in a decade of impressions
SETTLED = 10_000  # impressions from which on theta's error is linear in the clicks, to the precision of a study


class StagedRun(Protocol):
    """A run of a method that learns, as far as it has come: simulated, or with only what the next fit needs drawn.

    ``versions`` are what was shown, one after the other.
    """

    versions: list[Any]

    @property
    def settled(self) -> bool:
        """True if the past has a law with theta's error in it, so that nothing is fitted before the next version."""
        ...

    def next_version(self, ahead: Sequence[int] | None = None) -> None:
        """Fit, and make what is shown next, as far as the stretches ahead need it that will be drawn."""
        ...

    def refit(self) -> None:
        """Fit position bias alone, and revalue what was drawn with it."""
        ...

    def show(self, begin: int, end: int, points: IntArray) -> list[tuple[float, float, float]]:
        """Show impressions begin..end; estimate, mean square and CTR at each point among them."""
        ...

    def report(self) -> tuple[float, float, float]:
        """Estimate, mean square and CTR so far, with theta from all clicks."""
        ...

    def law(self, *, seed: Seed) -> Moments:
        """Moments of one impression of what is shown now, valued as the method does now."""
        ...

    def draw(self, begin: int, end: int) -> None:
        """Draw the clicks of impressions begin..end, as far as a fit needs them."""
        ...

    def past(self) -> FloatArray:
        """Cumulants of the sum of x so far, valued as the method does now: of what was drawn, or of its law if ``settled``."""
        ...


@dataclass(frozen=True, eq=False)
class AdaptiveRun:
    """A simulated run and the versions of what it showed."""

    trajectory: Trajectory
    versions: tuple[Any, ...]


class Adaptive(Method, abstract=True):
    """A method that learns at the points of a schedule (``learns_at``), simulated and expected by one loop."""

    bias: str
    schedule: tuple[int, ...]
    refits = True  # theta is also fitted between the points of the schedule, as by every report of a live trial

    def __post_init__(self) -> None:
        checks.one_of("bias", self.bias, BIAS)
        object.__setattr__(self, "schedule", checks.schedule(self.schedule))

    @property
    def traits(self) -> Traits:
        return Traits(
            tends_to_delta=True,
            needs_position_bias=True,
            lists_displays=False,
            has_exact_limit=False,
            learns_position_bias=self.bias == "estimated",
            learns_at=self.schedule,
        )

    def stages(self, pair: Pair, user: User, theta: FloatArray, *, seed: Seed) -> StagedRun:
        """A run that begins with this position bias."""
        raise NotImplementedError

    def _begun(self, pair: Pair, user: User, seed: Seed) -> StagedRun:
        theta = first_theta(pair.k) if self.traits.learns_position_bias else pair.known_theta
        return self.stages(pair, user, theta, seed=seed)

    def stretches(self, last: int) -> list[int]:
        """Impressions before each stretch of a run: points of the schedule and, where theta is refitted, three in every decade.

        >>> from ranktrial.methods import LogOpt
        >>> LogOpt(schedule=(100, 1_000)).stretches(2_000)
        [0, 100, 215, 464, 1000]
        """
        turns = {0, *(n for n in self.traits.learns_at if n < last)}
        if not (self.refits and self.traits.learns_position_bias) or len(turns) == 1:
            return sorted(turns)
        first = self.traits.learns_at[0]
        grid = 10 ** (np.arange(*np.ceil(REFITS * np.log10([first, last]))) / REFITS)
        return sorted(turns | {at for n in grid if first < (at := int(n + 0.5)) < last})

    def fitted(self, run: StagedRun, ends: Sequence[int], *, drawn: bool = False) -> Iterator[tuple[int, int]]:
        """Begin and end of each stretch of a run, once everything is fitted that is shown in it.

        Stretches of a run whose clicks will be ``drawn`` are made known to each version.
        """
        learns_at = self.traits.learns_at
        begins = [0, *ends[:-1]]
        for begin, end in zip(begins, ends):
            if begin == 0 or begin in learns_at:
                until = next((n for n in learns_at if begin < n < ends[-1]), ends[-1])
                ahead = [to - at for at, to in zip(begins, ends) if begin <= at < until]
                run.next_version(ahead if drawn else None)
            elif not run.settled:
                run.refit()
            yield begin, end

    def run(self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed) -> AdaptiveRun:
        """Simulate, keeping what was fitted and shown at each version."""
        check_user(user, pair.k, pair.n_documents)
        points = checks.checkpoints(checkpoints)
        last = int(points[-1])
        run = self._begun(pair, user, seed)
        reporting = self.refits and self.traits.learns_position_bias and user.follows_position_bias
        reports = set(points[points >= SETTLED].tolist()) if reporting else set()
        rows: list[tuple[float, float, float]] = []
        for begin, end in self.fitted(run, sorted({*self.stretches(last), *reports, last} - {0})):
            rows += run.show(begin, end, points[(points > begin) & (points <= end)])
            if end in reports:
                rows[-1] = run.report()
        estimate, mean_square, ctr = np.array(rows).T
        return AdaptiveRun(Trajectory(points, estimate, mean_square, ctr), tuple(run.versions))

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        return self.run(pair, user, checkpoints, seed=seed).trajectory

    def expected(self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, runs: int = 1) -> ExpectedRun:
        """The expected run; more ``runs`` average over more of the clicks that fits need."""
        check_user(user, pair.k, pair.n_documents)
        if self.traits.shows_top_only:  # no other document has a part in it
            pair, user = pair.of_listed(), user.of(pair.listed)
        points = checks.checkpoints(checkpoints)
        begins = self.stretches(int(points[-1]))
        ends = [*begins[1:], int(points[-1])]
        before, each = np.zeros((2, runs, len(begins), 6))
        for number, child in enumerate(children(seed, runs)):
            own, *laws = children(child, len(begins) + 1)
            run = self._begun(pair, user, own)
            so_far = np.zeros(6)
            for i, (begin, end) in enumerate(self.fitted(run, ends, drawn=True)):
                each[number, i] = one_impression(run.law(seed=laws[i]))
                if self.traits.learns_position_bias:
                    so_far[:4] = run.past()
                before[number, i] = so_far
                settled = run.settled
                if settled or end < points[-1]:
                    run.draw(begin, end)
                if settled:  # theta is that of all clicks at both ends
                    each[number, i, :4] = (run.past() - so_far[:4]) / (end - begin)
                so_far = so_far + (end - begin) * each[number, i]
        return ExpectedRun(points, np.array(begins), before, each)
