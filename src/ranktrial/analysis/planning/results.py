"""Result of a plan: a row per method, the forecast of a live trial, and advice in plain sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ranktrial import frames, notebook
from ranktrial.texts import json_values
from ranktrial.times import span_text

WORTH_IT = 1.1  # a smaller gain over A/B is called none


@dataclass(frozen=True, kw_only=True)
class PlannedMethod:
    """Needs of one method.

    Attributes:
        method: The method as it is written, such as "LogOpt()".
        is_ab: True for an A/B test evaluated without a click model, the baseline of the other methods.
        plain: True if it shows A's and B's own lists only.
        tends_to_delta: True if the estimate tends to Delta; False for interleaving.
        theta: "known" or "estimated" (from the same clicks) position bias; None if it is not needed.
        variance: Variance of the value x of one impression, given position bias; of a method that learns on the way, the mean
            over that many ``impressions``.
        theta_variance: Variance added by an estimated theta: the estimate from N impressions has the sum of both, over N.
        outcome: Limit of the estimate if the better ranker is better by delta; of many users the median. Negative
            points the wrong way.
        impressions: Impressions needed for a right decision with the power asked for, their number fixed beforehand; infinite
            if no number suffices.
        anytime: Impressions needed if one looks at every impression and stops as soon as the confidence sequence excludes 0.
        trusting: Impressions needed if visitors surely follow the click model and none is hostile.
        unguarded: Impressions needed if winners need not stand against hostile searches.
        tightest_at: The number of impressions at which that sequence is tightest.
        first_look: Approximate number of impressions before the first interval.
        detectable: The smallest difference found with the impressions at hand; None for interleaving, and where no number
            of impressions was given.
        ctr: Clicks per impression on what is shown meanwhile; where only the click rate is known, the mean over plausible
            users, the same as for ``Plan.budgets``.
        wrong: The share of users under whom it points the wrong way, or nowhere.
    """

    method: str
    is_ab: bool = False
    plain: bool = False
    tends_to_delta: bool
    theta: str | None = None
    variance: float
    theta_variance: float = 0.0
    outcome: float
    impressions: float
    anytime: float
    trusting: float
    unguarded: float
    tightest_at: float
    first_look: float
    detectable: float | None = None
    ctr: float
    wrong: float = 0.0


@dataclass(frozen=True)
class LivePlan:
    """Forecast of a live trial.

    Attributes:
        method: Method of the trial: the default one unless others were planned.
        smallest: The difference to find: ``Trial.create(..., smallest=...)``.
        tightest_at: The number of impressions at which its confidence sequence is tightest.
        given: True if ``tightest_at`` was given; else the trial finds it from ``smallest`` and the spread of its own values.
        first_look: Approximate number of impressions before the first interval.
        impressions: Impressions by which it has decided with the power asked for, looked at all the time.
        power: Probability of that decision.
        trusting: That number if visitors surely follow the click model (``allowance=0``) and none is hostile.
        hostile: Share of hostile searches against which a winner stands.
        unguarded: That number if it need not stand against any (``contamination=0``).
    """

    method: str
    smallest: float
    tightest_at: float
    given: bool
    first_look: float
    impressions: float
    power: float
    trusting: float
    hostile: float
    unguarded: float

    def __str__(self) -> str:
        option = f"tightest_at={self.tightest_at:g}" if self.given else f"smallest={self.smallest:.3g}"
        return (
            f"Live, Trial.create(..., method='{self.method}', {option}) has an interval that may be looked at any time, "
            f"tightest at {people_count(self.tightest_at)} searches: the first after about "
            f"{people_count(self.first_look)}, a decision within {people_count(self.impressions)} with probability "
            f"{self.power:g}. {self._hostile()}If visitors surely clicked by relevance and rank alone, "
            f"{people_count(self.trusting)} would do."
        )

    def _hostile(self) -> str:
        if not (self.hostile and np.isfinite(self.impressions)):
            return ""
        number = (
            f"{people_count(self.hostile * self.impressions)} hostile visitors among them could not make up a winner"
        )
        if self.unguarded > 0.99 * self.impressions:
            return f"{number}. "
        return f"{number}; without that, {people_count(self.unguarded)} would do. "


@dataclass(frozen=True)
class SegmentPlan:
    """Needs of a segment in a live trial.

    Attributes:
        value: Its name.
        share: Its share of the searches.
        own: Searches of its own by which a difference in it is no chance among all segments, with the power asked for.
        impressions: Searches of the whole trial until then.
    """

    value: str
    share: float
    own: float
    impressions: float


@dataclass(frozen=True)
class PlannedMetric:
    """Needs of a metric in a live trial, if it decides.

    Attributes:
        metric: The metric as it is written.
        title: Its name.
        value: Its value per search, the mean of A's and B's.
        delta: The difference to find, the same share of the value as of clicks.
        by_ab_only: True for a page metric, which only the A/B traffic of the trial tells.
        impressions: Searches needed, looked at once.
        anytime: Searches needed, looked at all the time.
        ab: The same in an A/B test with all searches.
        settles_after: Seconds until the last of them counts.
        days: Days until that, where the searches a day were given.
    """

    metric: str
    title: str
    value: float
    delta: float
    by_ab_only: bool
    impressions: float
    anytime: float
    ab: float
    settles_after: float
    days: float | None

    def __str__(self) -> str:
        wait = f", and then {span_text(self.settles_after)} until the last of them counts" if self.settles_after else ""
        told = " (told by A/B traffic only)" if self.by_ab_only else ""
        days = "" if self.days is None or not np.isfinite(self.days) else f": {self.days:.0f} days in all"
        return (
            f"{self.title}, {self.delta:.3g} of {self.value:.3g} a search{told}: {people_count(self.anytime)} searches, in an "
            f"A/B test {people_count(self.ab)}{wait}{days}."
        )


@dataclass(frozen=True)
class BudgetedPlan:
    """Needs of a method with one click budget, and the clicks that visitors get.

    Attributes:
        loss: The share of an A/B test's clicks that visitors may lose; negative asks for a gain.
        impressions: Impressions needed for the decision, looked at once.
        anytime: Impressions needed, looked at all the time.
        ctr: Clicks per impression on the rankings shown.
        gain: Gain over an A/B test's clicks, as a share.
    """

    loss: float
    impressions: float
    anytime: float
    ctr: float
    gain: float


@dataclass(frozen=True)
class Plan:
    """Needs of each method for telling two rankers apart.

    Attributes:
        rows: A row per method.
        delta: The difference to find, in clicks per impression.
        truth: CTR(B) - CTR(A) under the users given; None where only their click rate is known.
        ctr: Clicks per impression, the mean of A's and B's.
        disagreement: Mean over queries of TV_q: 0 for the same lists, 1 for nothing in common.
        rule: 1 / E_q[TV_q^2], roughly the gain of the closed form over an A/B test stratified by query.
        power: Probability of a right decision.
        level: Confidence level.
        traffic: Impressions at hand, for the smallest detectable difference.
        users: Number of users that interleaving was judged on.
        budgets: Needs of the first planned method that has a click budget, with other budgets; where only the click rate is
            known, the mean over plausible users. Empty if there is no such method.
        left_out: Methods that could not be planned, and why.
        live: Forecast of a live trial of the first planned method that can run live, ``LogOpt()`` if it is planned.
        allowance: Share of exposure disagreement x clicks per page granted to visitors who follow no click model.
        contamination: Share of hostile searches against which winners by the click model stand.
        notes: Assumptions that differ from what was given.
        segments: Needs of segments in the live trial, where their shares were given.
        metrics: Needs of metrics in the live trial, where they are known.
    """

    rows: tuple[PlannedMethod, ...]
    delta: float
    truth: float | None
    ctr: float
    disagreement: float
    rule: float
    power: float
    level: float
    traffic: int | None
    users: int
    budgets: tuple[BudgetedPlan, ...] = ()
    left_out: tuple[str, ...] = ()
    live: LivePlan | None = None
    allowance: float = 0.0
    contamination: float = 0.0
    notes: tuple[str, ...] = ()
    segments: tuple[SegmentPlan, ...] = ()
    metrics: tuple[PlannedMetric, ...] = ()

    to_frame = frames.to_frame

    chart = notebook.chart

    def _repr_html_(self) -> str:
        """Render the advice and the methods for notebooks."""
        return notebook.of_plan(self)

    @property
    def gain(self) -> float | None:
        """Ratio of the impressions of the best A/B test to those of the best other method that tends to Delta."""
        ab, other = self._best(is_ab=True), self._best(is_ab=False)
        if ab is None or other is None:
            return None
        return ab.impressions / other.impressions if other.impressions else np.inf

    @property
    def verdict(self) -> tuple[str, ...]:
        """Advice in plain sentences."""
        live = [] if self.live is None or self.disagreement == 0 else [str(self.live)]
        return (*self.notes, *self._worth(), *self._wrong_ways(), *live, *self._by_segment(), *map(str, self.metrics))

    def _best(self, *, is_ab: bool) -> PlannedMethod | None:
        rows = [row for row in self.rows if row.tends_to_delta and row.is_ab == is_ab]
        return min(rows, key=lambda row: row.impressions, default=None)

    def _worth(self) -> list[str]:
        ab, other, gain = self._best(is_ab=True), self._best(is_ab=False), self.gain
        if self.disagreement == 0:
            return ["Nothing to find: both rankers show the same lists."]
        if ab is None or other is None or gain is None:
            return []
        if gain < WORTH_IT:
            return [
                f"Nothing to gain over A/B here: the rankers show such different lists (exposure disagreement "
                f"{self.disagreement:.2f}) that {ab.method} needs {people_count(ab.impressions)} searches and "
                f"{other.method} {people_count(other.impressions)}."
            ]
        sentences = [
            f"{other.method} needs {people_count(other.impressions)} searches to find a difference of {self.delta:.3g}, "
            f"{gain:.1f} times fewer than {ab.method} ({people_count(ab.impressions)})."
        ]
        plain = [row for row in self.rows if row.tends_to_delta and row.plain and not row.is_ab]
        same = min(plain, key=lambda row: row.impressions, default=None)
        if same is not None and same is not other and WORTH_IT * same.impressions <= ab.impressions:
            sentences.append(
                f"With nothing on the page but the two lists, {same.method} needs {people_count(same.impressions)}, "
                f"{ab.impressions / same.impressions:.1f} times fewer."
            )
        return sentences

    def _by_segment(self) -> list[str]:
        if not self.segments or self.disagreement == 0:
            return []
        needs = "; ".join(
            f"{one.value} ({one.share:.0%} of the searches) {people_count(one.impressions)}" for one in self.segments
        )
        return [
            f"Searches in all until such a difference in one segment alone is no chance among all of them: {needs}."
        ]

    def _wrong_ways(self) -> list[str]:
        rows = [row for row in self.rows if not row.tends_to_delta]
        wrong = [row for row in rows if row.wrong > 0]
        if not rows or self.disagreement == 0:
            return []
        if self.users == 1:
            names = " and ".join(row.method for row in wrong)
            one = f"Under these users {names} would point the wrong way or nowhere, however many searches there are."
            return [one] if wrong else []
        if not wrong:
            return [f"Interleaving points the right way for all {self.users} plausible users."]
        shares = ", ".join(f"{row.method} {row.wrong:.0%}" for row in wrong)
        return [f"Share of {self.users} plausible users for whom interleaving would point the wrong way: {shares}."]

    def to_dict(self) -> dict[str, Any]:
        """Plan for JSON; infinite numbers become None."""
        found: dict[str, Any] = json_values({**asdict(self), "gain": self.gain, "verdict": self.verdict})
        found["methods"] = found.pop("rows")
        if self.live is None:
            del found["live"]
        return found

    def __str__(self) -> str:
        width = max((len(row.method) for row in self.rows), default=6)
        lines = [
            f"delta {self.delta:.4g}  ctr {self.ctr:.4g}  disagreement {self.disagreement:.3f}  power {self.power:g}",
            f"{'method':<{width}}  {'theta':<9}  {'variance':>9}  {'searches':>12}  {'looking often':>13}  {'wrong way':>9}",
        ]
        lines += [
            f"{row.method:<{width}}  {row.theta or '-':<9}  {row.variance:>9.4g}  {people_count(row.impressions):>12}  "
            f"{people_count(row.anytime):>13}  {row.wrong:>9.0%}"
            for row in self.rows
        ]
        return "\n".join([*lines, *self.verdict])

    __repr__ = __str__


def people_count(number: float) -> str:
    """Number of searches rounded for people, to three digits.

    >>> people_count(123456.0), people_count(float("inf"))
    ('123,000', 'never')
    """
    if not np.isfinite(number):
        return "never"
    return f"{int(float(f'{number:.3g}')):,}"
