"""A ladder of assumptions: the same log read with fewer and more of them, each rung tested against those below.

| rung | assumes | estimate |
|---|---|---|
| A/B | nothing | clicks on plain A/B traffic, adjusted by query |
| direct | a click depends on the document and its rank | ``estimator="direct"`` |
| affine | and is a_rank times the document's relevance plus b_rank (trust bias) | ``affine.affine_estimate`` |
| position-based | and is theta_rank times the document's relevance | the method's own, with the least variance |

Affine clicks are position-based with a click on top that comes whatever stands there, so the affine rung assumes less and
stands below; a and b come from the same clicks, where documents of different relevance stand at the same ranks.

Every rung is unbiased under its assumption on the same impressions, so the difference of two has mean zero if the upper one's
assumption holds (Hausman 1978). Its error is that over units, with what fitting theta anew without each of 20 groups adds to
it. A difference of two standard errors is enough to step down, at any look: stepping down for nothing costs power, and no
truth, while a test that must hold over all looks at once misses most of the biases that name a wrong winner
(docs/verdicts.md). Beyond an asymptotic confidence sequence the assumption is refuted, however often one looked.

The headline is the highest rung that none below contradicts. It is named a winner only where something below could have
contradicted it. Errors of the rungs are divided up (``SHARES``): whichever of them speaks, and however often that changes, the
probability that any of those whose assumption holds ever leaves out the truth is at most 1 - level. A bias that no test has
seen can still hide: ``Ladder.hidden`` is how much of it, at this number of impressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.distributions import normal_quantile, t_quantile
from ranktrial.inference.affine import affine_estimate, fit_affine
from ranktrial.inference.estimation import estimate
from ranktrial.inference.impressions import Impressions
from ranktrial.inference.intervals import asymptotic_radius
from ranktrial.inference.results import BiasFit, Estimate
from ranktrial.inference.valuing import by_group, jackknife_error, scaled
from ranktrial.interval import Interval
from ranktrial.position_bias import NotIdentifiable
from ranktrial.position_bias.affine import AffineBias
from ranktrial.rankings import RequirementError

AB_RUNG, DIRECT, AFFINE, POSITION_BASED = "A/B", "direct", "affine", "position-based"
ASSUMES = {
    AB_RUNG: "nothing about how people click",
    DIRECT: "a click depends on the document and its rank alone",
    AFFINE: "a click is what the rank lets through of the document's relevance, and chance of the rank's own on top",
    POSITION_BASED: "a click is the chance that its rank is looked at times the document's relevance",
}
# Of the error probability: a verdict mostly comes from the top, so the top has most of it.
SHARES = {AB_RUNG: 0.1, DIRECT: 0.05, AFFINE: 0.05, POSITION_BASED: 0.8}
CONTRADICTED = 2.0  # standard errors between two rungs, at one look: the upper one is not used
VISIBLE = 1.5  # standard errors of the surest test: a smaller difference could be all bias and not be seen
REFUTED = 0.05  # error probability over all looks of the test that an assumption is wrong
SMALL = 2.0  # half-widths of an interval: a bias that could hide in it is small below that
MOST_ERROR = 0.5  # of a slope, and of an intercept in clicks at rank 1: beyond, they cannot be told
LEAST_UNITS, LEAST_CLICKS, LEAST_ARM = 100, 20, 50  # before that an estimate and its error are not believed


@dataclass(frozen=True, eq=False)
class Rung:
    """One reading of a log.

    Attributes:
        name: "A/B", "direct", "affine" or "position-based".
        estimate: What it says; None if it cannot say anything yet.
        interval: At its share of the level, at any time; infinite where there is none.
        missing: What it waits for.
    """

    name: str
    estimate: Estimate | None
    interval: Interval
    missing: str

    @property
    def assumes(self) -> str:
        return ASSUMES[self.name]

    @property
    def speaks(self) -> bool:
        return self.estimate is not None and np.isfinite(self.interval.low)


@dataclass(frozen=True)
class Hausman:
    """The test of an upper rung's assumption by a lower one.

    Attributes:
        upper: Name of the rung that is tested.
        lower: Of the one that tests it.
        difference: Upper minus lower.
        standard_error: Of the difference.
        reach: How far it may be from 0 at any time if the assumption holds.

    >>> test = Hausman("position-based", "direct", difference=0.025, standard_error=0.01, reach=0.03)
    >>> test.contradicted, test.refuted, round(test.hidden, 3)
    (True, False, 0.055)
    """

    upper: str
    lower: str
    difference: float
    standard_error: float
    reach: float

    @property
    def contradicted(self) -> bool:
        """True if the two rungs differ by more than two standard errors at this look."""
        return abs(self.difference) > CONTRADICTED * self.standard_error

    @property
    def refuted(self) -> bool:
        """True if the upper rung's assumption is wrong, however often one looked."""
        return abs(self.difference) > self.reach

    @property
    def hidden(self) -> float:
        """A bias of this size could be there without being seen."""
        return abs(self.difference) + self.reach

    @property
    def text(self) -> str:
        told = (
            f"{self.upper} and {self.lower} differ by {self.difference:+.4f} (standard error {self.standard_error:.4f})"
        )
        if self.refuted:
            return f"{told}, more than chance explains: it is not true that {ASSUMES[self.upper]}."
        if self.contradicted:
            return f"{told}, more than {CONTRADICTED:g} standard errors: {self.upper} is not used at this look."
        return f"{told}; a bias below {self.hidden:.4f} could hide."


@dataclass(frozen=True, eq=False)
class Ladder:
    """All readings of a log, lowest first, and the tests between them."""

    rungs: tuple[Rung, ...]
    tests: tuple[Hausman, ...]

    def level_of(self, rung: Rung, level: float) -> float:
        """The level of one rung's interval, such that those of all hold together at ``level``."""
        return 1 - (1 - level) * (SHARES[rung.name] if len(self.rungs) > 1 else 1.0)

    def rung(self, name: str) -> Rung:
        return next(rung for rung in self.rungs if rung.name == name)

    def stands(self, rung: Rung) -> bool:
        """Whether it speaks and no rung below contradicts it, though one could have; the lowest needs no test."""
        tested = rung.name == AB_RUNG or any(test.upper == rung.name for test in self.tests)
        return rung.speaks and tested and not self.contradictions(rung)

    def blind(self, rung: Rung, difference: float | None = None) -> float:
        """Factor by which searches are too few for a winner by this rung; at most 1 where they are enough.

        A winner by a rung that assumes something needs a test in which a bias as large as its whole estimate would show, or as
        large as another ``difference``.
        """
        if rung.name == AB_RUNG or rung.estimate is None:
            return 0.0
        surest = min((test.standard_error for test in self._tests(rung)), default=float("inf"))
        size = abs(rung.estimate.delta if difference is None else difference)
        ratio = VISIBLE * surest / max(size, 1e-150)
        return float(ratio * ratio)

    def _tests(self, rung: Rung) -> list[Hausman]:
        """Tests of a rung by rungs that do not share its assumption: the affine one has most of the position-based one's."""
        return [test for test in self.tests if test.upper == rung.name and test.lower != AFFINE]

    @property
    def headline(self) -> Rung | None:
        """The highest rung that stands; None if none does (yet)."""
        return next((rung for rung in reversed(self.rungs) if self.stands(rung)), None)

    @property
    def shown(self) -> Rung | None:
        """The headline; without one the highest rung that is not contradicted, though nothing tests it or it is too early."""
        found = [rung for rung in reversed(self.rungs) if rung.estimate is not None and not self.contradictions(rung)]
        return self.headline or next((rung for rung in found if rung.speaks), found[0] if found else None)

    def contradictions(self, rung: Rung) -> tuple[Hausman, ...]:
        return tuple(test for test in self.tests if test.upper == rung.name and test.contradicted)

    def hidden(self, rung: Rung) -> float:
        """How much bias could hide in a rung; 0 where it assumes nothing, infinite where nothing tests it."""
        if rung.name == AB_RUNG:
            return 0.0
        return min((test.hidden for test in self._tests(rung)), default=float("inf"))

    @property
    def settled(self) -> bool | None:
        """Decision on A/B traffic. Halve it? False if its assumption is refuted, True if a bias that could hide
        is small against its interval and one as large as its estimate would show, None if more must be known.
        """
        top = self.rungs[-1]
        tests = [test for test in self.tests if test.upper == top.name]
        if any(test.refuted for test in tests):
            return False
        small = self.hidden(top) <= SMALL * (top.interval.high - top.interval.low) / 2
        return True if small and self.blind(top) <= 1 and not self.contradictions(top) else None


def ladder(
    log: Impressions,
    *,
    theta: FloatArray | BiasFit | None,
    fitted: int | None = None,
    estimator: str = "rank-aware",
    level: float = 0.95,
    tightest_at: float = 10_000,
    waits_for: str = "position bias",
    only: str | None = None,
    **options: Any,
) -> Ladder:
    """Every rung that a log supports.

    Args:
        theta: Position bias known, or fitted to the log (``fit_position_bias``); None if it is neither (yet): then the
            position-based rung says ``waits_for``.
        fitted: From how many of the first impressions theta, guesses and the lines of the affine rung are; all by default.
        estimator: Of the position-based rung.
        only: An A/B test without a click model has one rung, by this estimator, with all of the level.
        options: As of ``estimate``: cross-fitting.

    >>> from ranktrial.inference import Log
    >>> from ranktrial.methods import LogOpt
    >>> from ranktrial.rankings import Pair
    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists([["x", "y", "z"]] * 9, [["z", "x", "y"]] * 9, k=3).knowing(theta=[1, 0.5, 0.3])
    >>> user = position_based([0.6, 0.3, 0.2] * 9, [1, 0.5, 0.3])
    >>> found = ladder(Log.simulated(pair, LogOpt(holdback=0.5).policy(pair), user, 4000, seed=2), theta=pair.theta)
    >>> [(rung.name, str(rung.interval)) for rung in found.rungs], found.headline.name
    (..., 'position-based')
    """
    found: dict[str, Estimate] = {}
    missing = dict.fromkeys(ASSUMES if only is None else (AB_RUNG,), "")
    options["independent"] = "cohorts"
    arms, clicks = (
        np.sum(log.by_rows("arms", lambda rows: _arms(*log.plain_in(rows))), axis=0),
        log.clicks_by_cohort.sum(),
    )
    if min(arms) >= (LEAST_ARM if only is None else 1):
        found[AB_RUNG] = estimate(log, estimator=only or "adjusted", **options)
    else:
        missing[AB_RUNG] = f"{LEAST_ARM} plain impressions of A and of B ({arms[0]} and {arms[1]} so far)"
    if only is None and len(log):
        try:
            known = scaled(theta.bias.theta) if isinstance(theta, BiasFit) else theta
            found[DIRECT] = estimate(log, estimator=DIRECT, theta=known, fitted=fitted, **options)
        except RequirementError as refusal:
            missing[DIRECT] = f"plain traffic: {refusal}"
        if theta is None:
            missing[POSITION_BASED] = waits_for
        else:
            found[POSITION_BASED] = estimate(
                log, theta=theta, estimator=estimator, uncovered="leave out", fitted=fitted, **options
            )
        if not isinstance(theta, BiasFit):
            missing[AFFINE] = "position bias from the trial's own clicks"
        else:
            first = len(log) if fitted is None else fitted
            what = "lines", theta.bias.theta.tobytes(), len(theta.without)
            lines = log.fitted(first, what, lambda part: _lines(part, theta))
            if isinstance(lines, str):
                missing[AFFINE] = f"more clicks on documents of different relevance at the same ranks ({lines})"
            else:
                found[AFFINE] = affine_estimate(log, theta, lines, fitted=fitted, **options)
    if AFFINE in found and DIRECT in found and found[AFFINE].standard_error > found[DIRECT].standard_error:
        missing[AFFINE] = "more clicks: the direct reading assumes less and is surer"
        del found[AFFINE]
    rungs = []
    for name in missing:
        interval = Interval(-np.inf, np.inf)
        if name in found and clicks >= LEAST_CLICKS:
            share = SHARES[name] if only is None else 1.0
            interval = found[name].anytime_interval(1 - (1 - level) * share, tightest_at=tightest_at)
        if name in found and not np.isfinite(interval.low):
            missing[name] = f"{LEAST_UNITS} units and {LEAST_CLICKS} clicks, on lists that differ"
        rungs.append(Rung(name, found.get(name), interval, missing[name]))
    fit = theta if isinstance(theta, BiasFit) else None
    tests = [
        _hausman(log, upper, lower, fit, tightest_at)
        for at, upper in enumerate(rungs)
        for lower in rungs[:at]
        if upper.speaks and lower.speaks
    ]
    return Ladder(tuple(rungs), tuple(test for test in tests if test.standard_error > 0))


def _arms(arm: NDArray[np.int8], shares: FloatArray, _: BoolArray) -> list[int]:
    """Plain impressions of A and of B that could have been of either."""
    could = (shares > 0).all(1)
    return [int((could & (arm == of)).sum()) for of in (1, -1)]


def _lines(log: Impressions, theta: BiasFit) -> AffineBias | str:
    """The lines of the affine rung, or why there are none."""
    try:
        return fit_affine(log, theta, most_error=MOST_ERROR)
    except NotIdentifiable as refusal:
        return str(refusal)


def _hausman(log: Impressions, upper: Rung, lower: Rung, fit: BiasFit | None, tightest_at: float) -> Hausman:
    """The spread of the difference over units, with theta as it is, times what refitting theta adds to it."""
    assert upper.estimate is not None
    assert lower.estimate is not None
    away, n, units = _influence(log, upper) - _influence(log, lower), len(log.cohorts), log.cohorts.count
    error = float(np.sqrt(n / (n - 1) * (away @ away)))
    level, wider = 1 - REFUTED, 1.0
    if fit is not None and upper.estimate.replicates is not None:
        refitted, fixed = (
            jackknife_error(above - below)
            for above, below in (
                (_refitted(log, upper, fit), _refitted(log, lower, fit)),
                (_without(log, upper, fit), _without(log, lower, fit)),
            )
        )
        error *= max(refitted / fixed, 1.0) if fixed > 0 else 1.0
        half = 0.5 + level / 2
        wider = t_quantile(half, len(fit.without) - 1) / normal_quantile(half)
    reach = asymptotic_radius([units], [wider * error * np.sqrt(units)], level=level, tightest_at=tightest_at)[0]
    return Hausman(upper.name, lower.name, upper.estimate.delta - lower.estimate.delta, error, float(reach))


def _influence(log: Impressions, rung: Rung) -> FloatArray:
    """How much each cohort moves a rung's estimate from its mean."""
    assert rung.estimate is not None
    sums, moved = rung.estimate.sums, np.zeros(len(log.cohorts))
    assert sums.units is not None
    moved[sums.units] = (sums.totals - sums.mean * sums.impressions) / sums.impressions.sum()
    return moved


def _without(log: Impressions, rung: Rung, fit: BiasFit) -> FloatArray:
    """The estimate without each group of units, theta as it is."""
    assert rung.estimate is not None
    found, groups = rung.estimate, len(fit.without)
    sizes, sums = by_group(log, found.what, found.values, groups, found.picked)
    return np.asarray((sums.sum() - sums) / np.maximum(sizes.sum() - sizes, 1))


def _refitted(log: Impressions, rung: Rung, fit: BiasFit) -> FloatArray:
    """The same, with what the rung fits fitted anew."""
    assert rung.estimate is not None
    return _without(log, rung, fit) if rung.estimate.replicates is None else rung.estimate.replicates
