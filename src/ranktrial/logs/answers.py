"""What a log says of two rankers, for people: every reading of it, and how much each takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.inference import Estimate, Log, estimate, fit_position_bias, ladder
from ranktrial.inference.ladder import AB_RUNG, ASSUMES, DIRECT, POSITION_BASED, VISIBLE
from ranktrial.interval import Interval
from ranktrial.logs.database import SQLLog
from ranktrial.logs.estimating import NoPlainTrafficError, SummedEstimate, against_means, estimate_sums
from ranktrial.position_bias import NotIdentifiable, PositionBias

MEANS = "difference in means"
CANNOT_BE_TOLD = "position bias cannot be told: {}; --theta can give it"


@dataclass(frozen=True)
class Reading:
    """One estimate of a log.

    Attributes:
        name: What it is.
        assumes: About how people click.
        estimate: What it says; None if it says nothing.
        missing: Why it says nothing, or what contradicts it.
        level: Of the interval.
    """

    name: str
    assumes: str
    estimate: Estimate | None
    missing: str = ""
    level: float = 0.95

    @property
    def interval(self) -> Interval | None:
        """For a number of units fixed beforehand; None where there is none."""
        try:
            return None if self.estimate is None else self.estimate.confidence_interval(self.level)
        except ValueError:
            return None

    @property
    def anytime(self) -> Interval | None:
        """However often one looks."""
        return None if self.estimate is None else self.estimate.anytime_interval(self.level)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        told: dict[str, Any] = {"name": self.name, "assumes": self.assumes, "missing": self.missing}
        if self.estimate is not None:
            told |= self.estimate.to_dict()
        for name in ("interval", "anytime"):
            ends = getattr(self, name)
            told[name] = None if ends is None else [end if np.isfinite(end) else None for end in ends]
        return told


@dataclass(frozen=True)
class Answer:
    """All readings of a log, and which of them speaks.

    Attributes:
        readings: Those with fewest assumptions first.
        headline: The one with most assumptions that none below contradicts; None if none says anything.
        untested: What the headline assumes, where a bias of its size would not have shown in any test.
        bias: Position bias, where it was fitted.
        how: Where it was reckoned.
        level: Of the intervals.
    """

    readings: tuple[Reading, ...]
    headline: Reading | None
    bias: PositionBias | None
    how: str
    level: float
    untested: str = ""

    @property
    def gain(self) -> float:
        """How many times as many impressions the difference in means would need for an error as small; nan if not known."""
        by_name = {reading.name: reading.estimate for reading in self.readings}
        means, best = by_name.get(MEANS), None if self.headline is None else self.headline.estimate
        if means is None or best is None or not best.standard_error > 0:
            return float("nan")
        return means.standard_error**2 * means.impressions / (best.standard_error**2 * best.impressions)

    @property
    def verdict(self) -> str:
        """In a sentence."""
        if self.headline is None or self.headline.estimate is None or self.headline.interval is None:
            return "This log does not say yet which ranker gets more clicks."
        low, high = self.headline.interval
        delta = self.headline.estimate.delta
        ends = f"{self.level:.0%} interval {self.headline.interval}, {self.headline.name}"
        if low <= 0 <= high:
            than = "fewer" if delta < 0 else "more"
            return f"No difference is certain: A gets {abs(delta):.4f} clicks per impression {than} than B ({ends})."
        first, second = ("A", "B") if delta > 0 else ("B", "A")
        provided = f", provided that {self.untested}, which nothing here tests well enough" if self.untested else ""
        return f"{first} gets {abs(delta):.4f} clicks per impression more than {second}{provided} ({ends})."

    @property
    def worth(self) -> str:
        """What both lists in the log are worth, in a sentence; nothing where that is not known."""
        if self.headline is None or self.headline.name == MEANS or not self.gain > 1:
            return ""
        return (
            f"The difference in means alone would need {self.gain:.1f} times as many impressions to be as sure: both lists in "
            "the log tell which clicks could have made a difference."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "verdict": self.verdict,
            "headline": None if self.headline is None else self.headline.name,
            "gain": self.gain if np.isfinite(self.gain) else None,
            "how": self.how,
            "readings": [reading.to_dict() for reading in self.readings],
        }


def in_memory(log: Log, *, theta: ArrayLike | None = None, level: float = 0.95, how: str = "") -> Answer:
    """The ladder of a log that fits into memory."""
    fit, missing = None, ""
    known = None if theta is None else np.asarray(theta, np.float64)
    if known is None:
        try:
            fit = fit_position_bias(log)
        except NotIdentifiable as refusal:
            missing = CANNOT_BE_TOLD.format(refusal)
    readings: list[Reading] = []
    if (log.arm != 0).any():
        means = estimate(log, estimator="means")
        readings.append(Reading(MEANS, ASSUMES[AB_RUNG], means, level=level))
    found = ladder(log, theta=known if fit is None else fit, level=level, waits_for=missing)
    headline, untested = None, ""
    for rung in found.rungs:
        told = " ".join(test.text for test in found.contradictions(rung)) or rung.missing
        readings.append(Reading(rung.name, rung.assumes, rung.estimate, told, level))
        if rung is found.shown:
            tested = found.stands(rung) and found.blind(rung) <= 1
            headline, untested = readings[-1], "" if tested else rung.assumes
    return Answer(tuple(readings), headline, None if fit is None else fit.bias, how, level, untested)


def by_sums(
    log: SQLLog,
    *,
    theta: ArrayLike | None = None,
    estimators: Sequence[str] = ("constant",),
    guess: float | None = None,
    level: float = 0.95,
    how: str = "",
    uncovered: str = "refuse",
) -> Answer:
    """Readings that are added up where the log is."""
    readings: list[Reading] = []
    try:
        means = estimate_sums(log, estimator="means")
        readings.append(Reading(MEANS, ASSUMES[AB_RUNG], means, level=level))
    except NoPlainTrafficError:
        pass
    for name in estimators:
        if name == "means" and readings:
            continue
        rung = DIRECT if name == DIRECT else POSITION_BASED
        label = name if name == rung else f"{rung}, {name}"
        try:
            found = estimate_sums(log, theta=theta, estimator=name, guess=guess, uncovered=uncovered)
        except NotIdentifiable as refusal:
            readings.append(Reading(label, ASSUMES[rung], None, CANNOT_BE_TOLD.format(refusal), level))
        else:
            readings.append(Reading(label, ASSUMES[rung], found, level=level))
    said = [reading for reading in readings if reading.estimate is not None]
    if not said:
        return Answer(tuple(readings), None, None, how, level)
    best = next((reading for reading in said if reading.name != MEANS or "means" in estimators), said[0])
    assert isinstance(best.estimate, SummedEstimate)
    bias, untested = best.estimate.bias, "" if best.name == MEANS else best.assumes
    rung = DIRECT if best.name == DIRECT else POSITION_BASED
    test = against_means(log, best.estimate, name=rung) if untested and readings[0].name == MEANS else None
    if test is not None:
        untested = untested if VISIBLE * test.standard_error > abs(best.estimate.delta) else ""
        readings[readings.index(best)] = best = replace(best, missing=test.text)
        if test.contradicted:
            best, untested = readings[0], ""
    return Answer(tuple(readings), best, bias, how, level, untested)
