"""Check that all visitors look at ranks alike: a mixture of devices shows in which ranks are clicked together.

Phones show few results, so whoever clicked far down is likely to be on a desktop, and to click far down again. Other visitors
click more of everything, or want other documents; that makes clicks go together, too, but wherever they stand. So two documents
that were both clicked on a page are compared with themselves: given that, the chance that they stood at ranks r and s is
proportional to w theta_r theta_s over the rankings of the design, with probabilities w, if everybody has the same theta,
however relevant both are to whom. Whether they stood far down, or far up, *together* is the score

    log r log s - f_r - f_s,

whose mean over the design's rankings is taken off. Where the exponent of theta_r = r^-eta differs among visitors, its slope is
the variance of eta. The f_r are such that errors of theta do not move it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.e_processes import anytime_p, mean_evidence
from ranktrial.analysis.estimators.by_segment import by_value
from ranktrial.analysis.estimators.results import SegmentBias
from ranktrial.analysis.estimators.valuing import scaled
from ranktrial.analysis.guardrails._kernels import pair_scores
from ranktrial.analysis.guardrails.status import WARN, Found, advised, needless, unknown
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log
from ranktrial.log.units import UnitSums

MOST_LOOKED_AT = 1_000_000  # impressions, the first so many


class Together(NamedTuple):
    """Clicks far down that go together.

    Attributes:
        values: Sums of scores over cohorts; their mean is zero if all visitors have the same theta.
        p: The p-value of "all visitors have the same theta", however often one looks; nan while there is too little to tell.
        variance: Variance of the exponent of theta among visitors that would explain them.
    """

    values: UnitSums
    p: float
    variance: float


class ClickPairs(NamedTuple):
    """Pairs of clicks on the impressions of a chunk that have any.

    Attributes:
        impressions: Numbers of these impressions.
        away: Sum of log r log s over the pairs of each, less its mean.
        at_rank: Numbers of clicks of the pairs at each rank, less their means.
        gram: Covariances of these numbers at each two ranks, over all pairs.
        crossed: Covariances of these numbers with log r log s.
        variance: Variance of log r log s.
    """

    impressions: IntArray
    away: FloatArray
    at_rank: FloatArray
    gram: FloatArray
    crossed: FloatArray
    variance: float


def together(log: Log, theta: FloatArray, differs: SegmentBias | None = None) -> Together:
    """Measure how much clicks far down go together; with theta by segment, beyond what segments explain."""
    k = log.k
    depth = np.log(np.arange(1.0, k + 1))

    def contribution(rows: slice, whole: Log, before: object) -> list[ClickPairs]:
        found = []
        for value, own, part in by_value(whole, "" if differs is None else differs.attribute):
            some = np.flatnonzero(part.clicks_each > 1)
            sums = np.zeros((k, k)), np.zeros(k), np.zeros(len(some)), np.zeros((len(some), k))
            variance = pair_scores(
                some, part.row, part.design, part.clicks, part.row_offsets, part.rankings, part.weights,
                theta if differs is None else scaled(differs.thetas[value]), depth, *sums,
            )  # fmt: skip
            gram, crossed, away, at_rank = sums
            found.append(
                ClickPairs(np.arange(rows.start, rows.stop)[own][some], away, at_rank, gram, crossed, variance)
            )
        return found

    def result(chunks: Sequence[list[ClickPairs]]) -> Together:
        parts = [one for chunk in chunks for one in chunk]
        gram, crossed = sum(one.gram for one in parts), sum(one.crossed for one in parts)
        taken_off = np.linalg.pinv(gram, rcond=1e-9, hermitian=True) @ crossed
        information = float(sum(one.variance for one in parts) - 2 * taken_off @ crossed + taken_off @ gram @ taken_off)
        values = np.zeros(len(log))
        for one in parts:
            values[one.impressions] = one.away - one.at_rank @ taken_off
        sums = log.cohorts.sums(values)
        evidence = mean_evidence(sums, telling=sums.totals != 0)
        p = anytime_p(evidence * (np.cumsum(sums.totals) > 0)) if evidence.any() else float("nan")
        return Together(sums, p, float(values.sum()) / information if information > 0 else float("nan"))

    found: Together = fold(log, Statistic("clicks together", (theta.tobytes(), differs), contribution, result))[0]
    return found


@advised(
    "visitors look alike",
    "assumptions",
    "All visitors look down the page alike",
    cause="Phones show fewer results at once than desktops, and nobody said which search came from which; or visitors stop "
    "reading at different places.",
    remedy='One position bias is a little wrong for all, and more so for some. Declare the device (segments={"device": [...]}) '
    "and send it with every search: each then has its own.",
)
def look_alike(analysis: Analysis) -> Found:
    """Ranks that are clicked together, against those that one position bias for all would give (``together``).

    It never fails: one theta for all is near to that of the average visitor, and how far off it is for some cannot be told as
    long as nobody says who they are.
    """
    log = analysis.log
    if not analysis.config.comparison.traits.needs_position_bias:
        return needless("An A/B test: there is no click model to check.")
    if log.given_placement is not None:
        return unknown("it takes designs whose rankings can be listed")
    differs = analysis.differs
    found = together(log.first(min(len(log), MOST_LOOKED_AT)), np.array(analysis.theta.theta), differs)
    p = found.p
    if np.isnan(p):
        return unknown("it takes more pages with two clicks on results that stand now here, now there")
    beyond = "" if differs is None else f" beyond what {differs.attribute} explains"
    spread = np.sqrt(max(found.variance, 0.0))
    if p >= WARN:
        text = f"Results far down are clicked together no more often than apart{beyond} (p = {p:.2g})."
        return Found("pass", p, text)
    text = (
        f"Results far down are clicked together more often than apart{beyond} (p = {p:.2g}): visitors look down the page in "
        f"different ways, as if eta were {spread:.2f} more for some and less for others."
    )
    return Found("warn", p, text)
