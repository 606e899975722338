"""Checks of the click model: whether a click depends on its document and rank alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.decision import turned
from ranktrial.analysis.e_processes import anytime_p, bet_evidence, mean_evidence
from ranktrial.analysis.estimators.by_segment import by_value
from ranktrial.analysis.estimators.cross_fitting import CrossFit
from ranktrial.analysis.estimators.relevance import predicted_from
from ranktrial.analysis.estimators.valuing import scaled
from ranktrial.analysis.guardrails._kernels import added_above, clicks_after, clicks_by_draw
from ranktrial.analysis.guardrails.status import (
    NO_NUMBER,
    WARN,
    Found,
    Status,
    advised,
    by_chance,
    harmful,
    needless,
    unknown,
)
from ranktrial.analysis.ladder import AB_TRAFFIC
from ranktrial.arrays import FloatArray, ragged
from ranktrial.interval import Interval
from ranktrial.log import Log, UnitSums
from ranktrial.log.folding import Statistic, fold

ASSUMPTIONS, COMPANY, INDEPENDENCE = "how people click", "position-based clicking", "independent clicks"
NO_MODEL = "An A/B test: there is no click model to check."
AT_ONCE = 100_000  # impressions
MOST_COMPARED = 1_000_000  # impressions, the first so many, whose clicks are compared document by document
LEAST_TOLD = 2.0  # variance of a sum of values of dependence, before anything is bet on it


@advised(
    ASSUMPTIONS,
    "assumptions",
    "The click model agrees with A/B traffic",
    cause="People click for more reasons than relevance and rank: they trust what stands first, or results compete.",
    remedy="Nothing needs mending: the estimate that assumes less is used, and takes more searches. A version with a larger "
    "hold-back gets there sooner.",
)
def assumptions(analysis: Analysis) -> Found:
    """Estimates against those with fewer assumptions (``analysis.ladder``): the method's own, and any that is surely wrong.

    An estimate that is contradicted at this look alone is not used for now, and nothing is wrong: with several tests of it and
    many looks chance does that in most trials.
    """
    ladder = analysis.ladder
    top = ladder.results[-1]
    if len(ladder.results) == 1:
        return needless(NO_MODEL)
    apart = [test for test in ladder.tests if test.upper in analysis.apart]
    found = apart or [test for test in ladder.tests if test.refuted]
    if not found and not top.has_interval:
        return unknown(f"it takes {top.missing or 'clicks'}")
    found = found or [test for test in ladder.tests if test.upper == top.name]
    if not found:
        return unknown("it takes A/B traffic: a hold-back")
    worst = max(found, key=lambda test: (test.refuted, abs(test.difference) / test.standard_error))
    text = worst.text
    if apart:
        speaks = ladder.results[0].name == AB_TRAFFIC and ladder.results[0].has_interval
        text += " Their intervals have nothing in common. "
        text += "The A/B estimate is reported instead." if speaks else "Only more A/B traffic can tell."
    elif worst.contradicted and analysis.result is not None and analysis.result.name != worst.upper:
        text += f" The {analysis.result.name} estimate is reported instead."
    status: Status = "fail" if worst.refuted or apart else "pass"
    return Found(status, abs(worst.difference) / worst.standard_error, text)


# --- what stands above, as it was drawn ---------------------------------------------------------------------------------------


class Interference(NamedTuple):
    """Dependence of clicks on the expected clicks further up.

    Attributes:
        values: Sums over cohorts; their mean is zero if a click depends on its document and rank alone.
        slope: Relative change of the rate of clicks with each click expected further up.
        error: Its standard error.
        shift: Bias of the estimate for a slope of 1, in clicks per impression.
        bound: Largest absolute value that each sum could have had, whatever was drawn and clicked.
    """

    values: UnitSums
    slope: float
    error: float
    shift: float
    bound: FloatArray

    @property
    def effect(self) -> float:
        """Bias of the estimate from the results above a click."""
        return self.slope * self.shift

    @property
    def effect_error(self) -> float:
        return abs(self.error * self.shift)


AddedAbove = tuple[float, FloatArray, FloatArray, FloatArray]  # sums of ``added_above`` over some impressions
ByDraw = tuple[FloatArray, FloatArray, float, dict[int, AddedAbove]]  # values, bounds, information, and sums by segment


def interference(analysis: Analysis) -> Interference:
    """Clicks against what the draw put above them, other things being equal: the same query, lists, document and rank.

    Where a document stands at some rank, chance decides what is above it, with known probabilities. So

        sum over ranks of (click - clicks expected) (clicks expected above - their mean, given document and rank)

    has mean zero whatever the relevances are, however much users differ, and if every query is new: predictions of relevance,
    always from earlier impressions, decide only how much it tells.
    """
    log, theta, differs = analysis.log, np.array(analysis.theta.theta), analysis.differs
    group, predicted = predicted_from(log, analysis.learnt, theta, CrossFit("past"))

    def contribution(rows: slice, part: Log, before: object) -> ByDraw:
        values, bound, information = np.zeros(len(part)), np.zeros(len(part)), 0.0
        prediction, added = np.zeros(part.n_slots), {}
        last = predicted(-1, part, np.arange(part.n_slots))
        for value, own, some in by_value(part, "" if differs is None else differs.attribute):
            of_value = theta if differs is None else scaled(differs.thetas[value])
            of_own = group[rows][own]
            for number in np.unique(of_own).tolist():
                inside = np.arange(len(part))[own][of_own == number]
                inside = inside[np.argsort(part.design[inside], kind="stable")]
                designs, starts = np.unique(part.design[inside], return_index=True)
                slots = ragged(part.slot_offsets[designs], np.diff(part.slot_offsets)[designs])
                prediction[slots] = predicted(number, part, slots)
                information += clicks_by_draw(
                    designs, np.append(starts, len(inside)), inside, part.row, part.clicks, part.slot_offsets,
                    part.row_offsets, part.rankings, part.weights, of_value, prediction, values, bound,
                )  # fmt: skip
            added[value] = _added_above(some, of_value, last)
        return values, bound, information, added

    def result(parts: Sequence[ByDraw]) -> Interference:
        x, bound, informations, added = zip(*parts)
        sums, bounds = log.cohorts.sums(np.concatenate(x)), log.cohorts.by(np.concatenate(bound))
        information = sum(informations)
        if information <= 0:
            return Interference(sums, NO_NUMBER, NO_NUMBER, NO_NUMBER, bounds)
        slope = float(sums.totals.sum() / information)
        error = sums.standard_error * len(log) / information
        segments = sorted({value for one in added for value in one})
        shift = sum(_shift(analysis, [one[value] for one in added if value in one]) for value in segments)
        return Interference(sums, slope, float(error), shift, bounds)

    beliefs = theta.tobytes(), differs, predicted
    found: Interference = fold(log, Statistic("clicks by draw", beliefs, contribution, result))[0]
    return found


def _added_above(log: Log, theta: FloatArray, prediction: FloatArray) -> AddedAbove:
    """Sums by which clicks move an estimate, and the theta that is fitted to them, if they come more often below others."""
    times = np.bincount(log.design, minlength=log.n_designs)
    found: AddedAbove = added_above(
        times, log.slot_offsets, log.row_offsets, log.rankings, log.weights, log.rank_a, log.rank_b,
        log.exposure(theta), theta, prediction,
    )  # fmt: skip
    return found


def _shift(analysis: Analysis, parts: Sequence[AddedAbove]) -> float:
    """The difference of the estimate and the truth, if rates of clicks grew by one with each click expected above.

    Clicks then come e (1 + above) times, e = theta_rank prediction, which moves the estimate in two ways: by what clicks are
    worth, and by the theta that is fitted to them. That one follows from the conditional equation
    (``position_bias.conditional``), as in ``analysis.planning.theta_error``: its solution moves by H^-1 times what is added to
    its score.
    """
    moved, information, score, of_log_theta = (sum(of) for of in zip(*parts))
    if analysis.fit is not None:
        moved += of_log_theta[1:] @ np.linalg.pinv(information[1:, 1:]) @ score[1:]
    return float(moved) / len(analysis.log)


@advised(
    COMPANY,
    "assumptions",
    "A click does not depend on what stands above it",
    cause="People stop once they have found what they wanted.",
    remedy="The A/B estimate is reported instead, once there is enough A/B traffic: a version with a larger hold-back, or "
    'AB(estimate="adjusted"), gets there sooner.',
)
def company(analysis: Analysis, above: Above | None) -> Found:
    """Clicks against what the draw put above them (``interference``): sees users who stop, also where every query is new.

    Half of the evidence is a bet on the dependence among clicks that was seen before (``dependence``): if that comes from users
    who stop, the draw must show it. It fails only where the effect on the estimate is more than half of what its interval
    allows for.
    """
    if not analysis.config.comparison.traits.needs_position_bias:
        return needless(NO_MODEL)
    if above is None or not np.isfinite(above.drawn.slope):
        return unknown("it takes clicks on results above which the draw puts now this, now that")
    found, log = above.drawn, analysis.log
    by_draw = mean_evidence(found.values, telling=log.clicks_by_cohort)
    if not by_draw.any():
        return unknown("it takes more clicks on results above which the draw puts now this, now that")
    by_bet = bet_evidence(found.values.totals, np.minimum(above.pooled.slope_before, 0.0), found.bound)
    p = anytime_p(np.logaddexp(by_draw, by_bet) - np.log(2))
    status = harmful(analysis, by_chance(p), found.effect)
    text = (
        f"With each click to be expected further up, results are clicked {found.slope:+.0%} (+- {2 * found.error:.0%})"
    )
    text += f", p = {p:.3g}. "
    if np.isfinite(found.effect):
        text += "That moves" if p < WARN else "If that were so, it would move"
        text += f" B against A by {0.0 - found.effect:+.4f} (+- {2 * found.effect_error:.4f})."
    else:
        text += "What that does to the estimate cannot be told."
    return Found(status, p, text)


# --- clicks above ------------------------------------------------------------------------------------------------------------


class Dependence(NamedTuple):
    """Dependence of clicks on clicks above them.

    Attributes:
        values: Over cohorts of a log or of its first impressions, sums over all ranks of (click above - its mean) (click - its
            mean), with the means of the same stratum before. Their mean is zero if clicks are independent.
        squares: Sum of squares of the values of impressions.
        told: Sum that the values would have for a slope of 1.
        ratio: Ratio of the click rate after a click above to that without one.
        slope_before: Slope before each cohort came.
    """

    values: UnitSums
    squares: float
    told: float
    ratio: float
    slope_before: FloatArray

    @property
    def slope(self) -> float:
        """Relative change of the rate of clicks after a click above, as ``Interference.slope``."""
        return float(self.values.totals.sum() / max(self.told, 1e-300))

    @property
    def error(self) -> float:
        return float(np.sqrt(self.squares) / max(self.told, 1e-300))


class Above(NamedTuple):
    """Dependence of clicks on the results above them, measured in three ways.

    Attributes:
        drawn: Dependence on the expected clicks of the drawn results above: shows users who look at these, or stop.
        clicked: Dependence on clicks above, within the same document and rank: shows users who merely differ, too.
        pooled: Dependence on clicks above, within ranks in both lists and on the page, over all queries: shows queries that
            differ, too.
    """

    drawn: Interference
    clicked: Dependence
    pooled: Dependence

    @property
    def effect(self) -> Interval:
        """Interval for the bias of the estimate from users who stop after a click.

        The draw allows for some slopes. Where fewer clicks come after a click, that may be because all of them stop or because
        they look for different things, or both: slopes below what clicks show are not needed to explain them, nor are
        slopes above 0. Where more clicks come, users differ in how readily they click, and that hides those who stop.
        """
        reach = 2 * self.drawn.error
        low, high = self.drawn.slope - reach, self.drawn.slope + reach
        seen = self.clicked if self.clicked.error < self.pooled.error else self.pooled
        if seen.slope < 0:
            least = seen.slope - 2 * seen.error
            low, high = max(low, least), min(high, 0.0)
            if low > high:  # the draw says more than clicks do, or the contrary
                low, high = sorted((low, high))
        return Interval(*sorted((low * self.drawn.shift, high * self.drawn.shift)))


def clicks_above(analysis: Analysis) -> Above | None:
    """Measure the dependence of clicks on the results above them; None without clicks or without a click model."""
    if not analysis.clicks or not analysis.config.comparison.traits.needs_position_bias:
        return None
    attribute = "" if analysis.differs is None else analysis.differs.attribute
    return Above(
        interference(analysis), dependence(analysis.log, attribute), dependence(analysis.log, attribute, pooled=True)
    )


@advised(
    INDEPENDENCE,
    "assumptions",
    "Clicks on one page do not depend on each other",
    cause="Some visitors click on everything, which harms nothing, or visitors leave after a click, which does.",
    remedy="Nothing needs mending: the interval is wider by what this could do to the answer.",
)
def independence(analysis: Analysis, above: Above | None) -> Found:
    """Clicks after a click above, against those without, on the same document at the same rank.

    Users who leave after a click break it, and so do users who merely differ in how readily they click, with the estimate
    right: it never fails, and says how far the estimate is moved by what stands above (``interference``). Where no query comes
    again, documents at the same places of both lists are compared: easy and hard queries then make clicks go together, so that
    only the contrary means anything.
    """
    log, needs = analysis.log, "queries that come again, and clicks at the same rank with and without a click above"
    if not analysis.config.comparison.traits.needs_position_bias:
        return needless(NO_MODEL)
    if above is None:
        return unknown(f"it takes {needs}")
    found = above.clicked
    evidence = _evidence(found, log)
    p = anytime_p(evidence)
    if p >= WARN:
        pooled = above.pooled
        of_all = _evidence(pooled, log) * (np.cumsum(pooled.values.totals) < 0)
        of_both = anytime_p(np.logaddexp(evidence, of_all) - np.log(2))
        if of_both < WARN or not evidence.any():
            found, p, evidence = pooled, of_both, np.where(of_both < WARN, of_all, 0.0)
    if not evidence.any():
        return unknown(f"it takes {needs}")
    status: Status = "warn" if p < WARN else "pass"
    text = f"After a click above, results are clicked {found.ratio:.3g} times as often as otherwise (p = {p:.3g})."
    if status == "warn":
        why = "differ in how readily they click" if found.ratio > 1 else "look for different things"
        text += f" Users who {why} do that too, and harm nothing."
        if np.isfinite(above.drawn.slope):
            text += f" If it is because they stop, it may have moved B against A by {turned(above.effect)}."
    return Found(status, found.ratio, text)


def _evidence(found: Dependence, log: Log) -> FloatArray:
    """``mean_evidence`` after each cohort; what was found of the first impressions alone stays as it is."""
    values, cohorts = found.values, log.cohorts
    evidence = mean_evidence(values, telling=values.totals != 0)
    if len(evidence) == len(cohorts):
        return evidence
    all_units = cohorts.sums(np.ones(len(log)))
    units = np.minimum(all_units.come(np.arange(1, len(all_units) + 1)), values.count)
    return np.asarray(evidence[np.maximum(values.places(units), 1) - 1])


def dependence(log: Log, attribute: str = "", *, pooled: bool = False) -> Dependence:
    """Clicks against clicks above, on the same document of a design at the same rank or, ``pooled``, at the same places.

    By the values of an attribute, if one is given: users of different segments are then not compared. Documents are compared
    on the first million impressions of a longer log: that never fails a trial.
    """
    if len(log) > MOST_COMPARED and not pooled:
        return dependence(log.first(MOST_COMPARED), attribute)
    (values, told), each = np.zeros((2, len(log))), []
    for _, at, part in by_value(log, attribute):
        values[at], told[at], of_part = _by_places(part) if pooled else _by_documents(part)
        each.append(of_part)
    strata = np.concatenate(each)
    members, follow, clicks, both = strata[strata[:, 2] > 0].T
    # By Mantel and Haenszel; sorted, because documents have numbers in the order in which they were read.
    otherwise = float(np.sort((clicks - both) * follow / members).sum())
    ratio = float(np.sort(both * (members - follow) / members).sum()) / otherwise if otherwise > 0 else float("nan")
    value_before, told_before = (np.append(0.0, np.cumsum(of))[log.cohorts.first] for of in (values, told))
    slope_before = np.divide(value_before, told_before, out=np.zeros_like(told_before), where=told_before > LEAST_TOLD)
    return Dependence(log.cohorts.sums(values), float(values @ values), float(told.sum()), ratio, slope_before)


# Values of the impressions of a chunk and their information; sums over strata so far, of the latest version of the designs.
PlaceValues = tuple[FloatArray, FloatArray, FloatArray, int]


def _by_places(log: Log) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values of impressions, their information, and sums over strata: within places in both lists and ranks.

    Sums begin anew with every version of the designs, which puts other documents at the same places and ranks.
    """
    width = log.k + 1
    strata = np.arange(width * width * log.k).reshape(-1, log.k)

    def contribution(rows: slice, part: Log, before: PlaceValues | None) -> PlaceValues:
        sums, latest = (np.zeros((strata.size, 4)), -1) if before is None else (before[2].copy(), before[3])
        values, told = np.zeros((2, len(part)))
        slots = part.rankings[part.row]
        place = np.minimum(part.rank_a, part.k) * width + np.minimum(part.rank_b, part.k)
        places, number = np.where(slots >= 0, place[slots], -1), part.beliefs[part.design]
        for version in np.unique(number[number >= latest]).tolist():
            if version > latest:
                sums[:], latest = 0.0, version
            some = np.flatnonzero(number == version)
            values[some], told[some] = clicks_after(places[some], part.clicks[some], strata, sums)
        return values, told, sums, latest

    def result(parts: Sequence[PlaceValues]) -> tuple[FloatArray, FloatArray, FloatArray]:
        values, told, sums, _ = zip(*parts)
        return np.concatenate(values), np.concatenate(told), sums[-1]

    found: tuple[FloatArray, FloatArray, FloatArray] = fold(log, Statistic("clicks above", (), contribution, result))[0]
    return found


def _by_documents(log: Log) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``_by_places`` within documents of one design: across versions of a design, learning has sorted what is compared.

    A document that was there once cannot be compared, nor one that was never clicked.
    """
    again = np.flatnonzero(np.bincount(log.design, minlength=log.n_designs)[log.design] > 1)
    number, rank = np.nonzero(log.clicks[again])
    distinct, place = np.unique(log.rankings[log.row[again[number]], rank], return_inverse=True)
    strata = np.full((len(distinct), log.k), -1)
    strata[place, rank] = 0
    strata[strata == 0] = np.arange((strata == 0).sum())
    number_of = np.full(log.n_slots + 1, -1, np.int32)  # the last one is of no slot
    number_of[distinct] = np.arange(len(distinct))
    sums, (values, told) = np.zeros((int(strata.max(initial=-1)) + 1, 4)), np.zeros((2, len(log)))
    for start in range(0, len(again), AT_ONCE):
        some = again[start : start + AT_ONCE]
        slots = number_of[log.rankings[log.row[some]]]
        values[some], told[some] = clicks_after(slots, log.clicks[some], strata, sums)
    return values, told, sums
