"""Decisions on logs, wherever they are: the same as those of a trial, made from a file, a folder or a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.analysis import Decision, Ladder, Rung, Verdict, decide, fit_position_bias, ladder, verdict
from ranktrial.analysis.estimators.results import BiasFit
from ranktrial.analysis.evidence import click_gain
from ranktrial.analysis.hostile import most_worth as most_worth_in_memory
from ranktrial.analysis.ladder import AB_RUNG, DIRECT, POSITION_BASED, SHARES, made_rung
from ranktrial.arrays import FloatArray
from ranktrial.formats.database import SQLLog
from ranktrial.formats.estimating import (
    NoPlainTrafficError,
    SummedEstimate,
    against_means,
    clicks_of_both,
    estimate_sums,
    most_worth,
)
from ranktrial.formats.item_level import Places
from ranktrial.log import Log
from ranktrial.log.units import UnitSums
from ranktrial.position_bias import NotIdentifiable, PositionBias
from ranktrial.texts import json_values
from ranktrial.users import rank_decay

CANNOT_BE_TOLD = "position bias: {}; --theta can give it"
NO_LIFT = (
    "These sums do not tell the difference in per cent: that takes A/B traffic, or position bias and a log that could show all "
    "that A and B list."
)
NO_ALLOWANCE = (
    "Propensities tell no position bias, and so no exposure disagreement: the interval has no allowance for visitors who "
    "compare results or leave after a click."
)


@dataclass(frozen=True)
class Asked:
    """Options of a decision on a log.

    Attributes:
        level: Level of the interval.
        anytime: True for an interval that holds however often one looked; False if the number of searches was fixed beforehand.
        smallest: The smallest difference that matters.
        allowance: Share of exposure disagreement x clicks per search that visitors who follow no click model may move it by.
        contamination: Share of hostile searches against which a winner must stand.
    """

    level: float = 0.95
    anytime: bool = True
    smallest: float | None = None
    allowance: float | None = None
    contamination: float | None = None


AS_IN_A_TRIAL = Asked()


@dataclass(frozen=True, eq=False)
class Answer:
    """The decision on a log and the estimates behind it.

    Attributes:
        decision: The decision.
        estimates: The estimates and the tests between them.
        bias: Position bias, where it was fitted.
        how: Where it was worked out.
        note: A sentence on what the log could not show; "" if there is nothing to say.
    """

    decision: Decision
    estimates: Ladder
    bias: PositionBias | None
    how: str
    note: str = ""

    @property
    def text(self) -> Verdict:
        """The decision in words."""
        return verdict(self.decision)

    @property
    def gain(self) -> float:
        """Factor by which an A/B test alone would need more searches to be as sure; nan if that is not known."""
        by_name = {rung.name: rung.estimate for rung in self.estimates.rungs}
        ab, used = by_name.get(AB_RUNG), by_name.get(self.decision.estimator or "")
        if ab is None or used is None or ab is used or not used.standard_error > 0:
            return float("nan")
        return ab.standard_error**2 * ab.impressions / (used.standard_error**2 * used.impressions)

    @property
    def worth(self) -> str:
        """Sentence on the searches that both lists in the log save; "" if that is not known."""
        if not self.gain > 1:
            return ""
        return (
            f"The A/B estimate alone would need {self.gain:.1f} times as many searches to be as sure: both lists in the log "
            "tell which clicks could have made a difference."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        text = self.text
        return {
            "verdict": str(text),
            "text": {name: getattr(text, name) for name in ("headline", "details", "next", "trust")},
            "decision": self.decision.to_dict(),
            "gain": json_values(self.gain),
            "how": self.how,
            "note": self.note,
            "estimates": [self._row(rung) for rung in self.estimates.rungs],
        }

    def _row(self, rung: Rung) -> dict[str, Any]:
        low, high = rung.interval
        row = {
            "name": rung.name,
            "assumes": rung.assumes,
            "used": rung.name in self.decision.used,
            "waits_for": rung.missing,
            "difference": float("nan") if rung.estimate is None else -rung.estimate.delta,
            "interval": (-high, -low),
            "tests": [test.text for test in self.estimates.tests if test.upper == rung.name],
        }
        if rung.estimate is not None:
            row |= {name: value for name, value in rung.estimate.to_dict().items() if name != "delta"}
        found: dict[str, Any] = json_values(row)
        return found


def in_memory(log: Log, *, theta: ArrayLike | None = None, asked: Asked = AS_IN_A_TRIAL, how: str = "") -> Answer:
    """Decide on a log that fits into memory."""
    fit, missing = None, ""
    known: FloatArray | None = None if theta is None else np.asarray(theta, np.float64)
    if known is None:
        try:
            fit = fit_position_bias(log)
        except NotIdentifiable as refusal:
            missing = CANNOT_BE_TOLD.format(refusal)
    found = ladder(
        log, theta=known if fit is None else fit, level=asked.level, anytime=asked.anytime, smallest=asked.smallest,
        waits_for=missing,
    )  # fmt: skip
    clicks = int(log.clicks_each.sum())
    decision = _decided(
        found, asked, searches=len(log), visitors=log.cohorts.count, clicks=clicks,
        both=_clicks_of_both(log, known if fit is None else fit), worth=partial(most_worth_in_memory, log),
    )  # fmt: skip
    return Answer(decision, found, None if fit is None else fit.bias, how)


def _clicks_of_both(log: Log, theta: FloatArray | BiasFit | None) -> UnitSums | None:
    """Clicks per search of pages that are half A's and half B's, by the click model; None where that is not known."""
    if theta is None or not log.clicks.any():
        return None
    gain = click_gain(log, theta)
    if gain is None:
        return None
    gained = gain.estimate.sums
    return UnitSums(gained.units, gained.impressions, log.clicks_by_cohort - gained.totals, gained.count)


def _decided(found: Ladder, asked: Asked, **known: Any) -> Decision:
    return decide(
        found, level=asked.level, smallest=asked.smallest, allowance=asked.allowance, contamination=asked.contamination,
        **known,
    )  # fmt: skip


def by_sums(
    log: SQLLog,
    *,
    theta: ArrayLike | None = None,
    estimators: Sequence[str] = ("constant",),
    guess: float | None = None,
    asked: Asked = AS_IN_A_TRIAL,
    how: str = "",
    uncovered: str = "refuse",
) -> Answer:
    """Decide on a log that is added up where it is."""
    found: dict[str, SummedEstimate] = {}
    missing = dict.fromkeys((AB_RUNG, DIRECT, POSITION_BASED), "")
    try:
        found[AB_RUNG] = estimate_sums(log, estimator="means")
    except NoPlainTrafficError as refusal:
        missing[AB_RUNG] = str(refusal)
    for name in estimators:
        rung = AB_RUNG if name == "means" else DIRECT if name == DIRECT else POSITION_BASED
        if rung in found:
            continue
        try:
            found[rung] = estimate_sums(log, theta=theta, estimator=name, guess=guess, uncovered=uncovered)
        except NotIdentifiable as refusal:
            missing[rung] = CANNOT_BE_TOLD.format(refusal)
    names = [name for name in missing if name in found or missing[name]]
    rungs = tuple(
        made_rung(
            name, found.get(name), missing[name], clicks=np.inf, level=asked.level,  # sums have seen to that
            share=SHARES[name] if len(names) > 1 else 1.0, anytime=asked.anytime, smallest=asked.smallest,
        )
        for name in names
    )  # fmt: skip
    tests = [
        against_means(log, found[name], name=name)
        for name in (DIRECT, POSITION_BASED)
        if name in found and AB_RUNG in found
    ]
    last = next((found[name] for name in reversed(names) if name in found), None)
    theta_used = next((one.theta for one in found.values() if one.theta is not None), rank_decay(log.k))
    sums = {name: float(column[0] or 0) for name, column in log.sums(log.queries.overview(theta_used)).items()}
    n, clicks = round(sums["searches"]), round(sums["clicks"])
    made = Ladder(
        rungs, tuple(test for test in tests if test is not None), sums["apart"] / max(n, 1), clicks / max(n, 1)
    )
    told_theta = next((one.theta for one in found.values() if one.theta is not None and one.estimator != DIRECT), None)
    both = clicks_of_both(log, told_theta)

    @cache
    def of_hostile(name: str) -> tuple[float, float]:
        return most_worth(log, found[name], name=name)

    decision = _decided(
        made, asked, searches=n, visitors=round(sums["visitors"]), clicks=clicks, both=both,
        worth=lambda rung, side: of_hostile(rung.name)[side < 0],
    )  # fmt: skip
    return Answer(
        decision, made, None if last is None else last.bias, how, NO_LIFT if both is None and decision.estimator else ""
    )


def of_items(found: SummedEstimate, places: Places, asked: Asked) -> Answer:
    """Decide on a log of single results with their propensities, by the direct estimate, which nothing there tests."""
    rung = made_rung(
        DIRECT, found, "", clicks=found.effective_clicks, level=asked.level, share=1.0, anytime=asked.anytime
    )
    made = Ladder((rung,), ())
    clicks = round(found.effective_clicks)
    decision = _decided(
        made, asked, searches=found.impressions, visitors=found.units, clicks=clicks, both=places.both,
        worth=lambda _, side: places.worth[side < 0],
    )  # fmt: skip
    note = " ".join(filter(None, (places.missing, NO_ALLOWANCE)))
    return Answer(decision, made, None, "from propensities as logged", note)
