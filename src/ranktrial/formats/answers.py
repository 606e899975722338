"""Decisions on logs that are too large for memory, or have no lists: by sums made where the log is, and by propensities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.analysis.answers import AS_IN_A_TRIAL, Answer, DecisionOptions
from ranktrial.analysis.decision import Decision
from ranktrial.analysis.decision import decide as decide_by
from ranktrial.analysis.ladder import AB_TRAFFIC, DIRECT, POSITION_BASED, SHARES, EstimatorResult, Ladder, made_result
from ranktrial.analysis.verdict import verdict
from ranktrial.formats.database import SQLLog
from ranktrial.formats.estimating import (
    Added,
    SummedEstimate,
    against_means,
    clicks_of_both,
    difference_in_means,
    estimate_sums,
    most_worth,
)
from ranktrial.formats.item_level import Places
from ranktrial.position_bias import NotIdentifiable
from ranktrial.users import rank_decay

NO_AB_TRAFFIC = "A/B traffic of both lists, of which this log has none"
CANNOT_BE_TOLD = "position bias: {}; --theta can give it"
NO_LIFT = (
    "These sums do not tell the difference in per cent: that takes A/B traffic, or position bias and a log that could show all "
    "that A and B list."
)
UNCHECKED = (
    "By sums nothing is checked but the estimates against each other; a log in files, as `ranktrial export` writes it, is "
    "checked as a trial's is."
)
NO_ALLOWANCE = (
    "Propensities tell no position bias, and so no exposure disagreement: the interval has no allowance for visitors who "
    "compare results or leave after a click."
)
NOTHING_CHECKED = "Single results with propensities allow none of the checks that a report of a trial makes."


def _decided(found: Ladder, asked: DecisionOptions, **known: Any) -> Decision:
    return decide_by(
        found, level=asked.level, smallest=asked.smallest, allowance=asked.allowance, contamination=asked.contamination,
        **known,
    )  # fmt: skip


def by_sums(
    log: SQLLog,
    *,
    theta: ArrayLike | None = None,
    asked: DecisionOptions = AS_IN_A_TRIAL,
    how: str = "",
    uncovered: str = "refuse",
) -> Answer:
    """Decide on a log that is added up where it is, by its A/B traffic and by the click model."""
    upper, told = None, ""
    try:
        upper = estimate_sums(log, theta=theta, uncovered=uncovered)
    except NotIdentifiable as refusal:
        told = CANNOT_BE_TOLD.format(refusal)
    added = Added.of(log, rank_decay(log.k)) if upper is None else upper.added
    assert added is not None
    plain = difference_in_means(added)
    found = {AB_TRAFFIC: plain, POSITION_BASED: upper}
    missing = {AB_TRAFFIC: "" if plain else NO_AB_TRAFFIC, POSITION_BASED: told}
    results = tuple(
        made_result(
            name, found[name], missing[name], clicks=np.inf, level=asked.level,  # sums have seen to that
            share=SHARES[name], anytime=asked.anytime, smallest=asked.smallest,
        )
        for name in found
    )  # fmt: skip
    test = against_means(log, upper) if upper and plain else None
    n, clicks = round(added["impressions"]), round(added["clicks"])
    made = Ladder(results, () if test is None else (test,), added["apart"] / max(n, 1), clicks / max(n, 1))
    both = clicks_of_both(log, added, None if upper is None else upper.theta)

    def worth(result: EstimatorResult, side: int) -> float:
        assert isinstance(result.estimate, SummedEstimate)
        return most_worth(result.estimate)[side < 0]

    decision = _decided(made, asked, searches=n, visitors=round(added["units"]), clicks=clicks, both=both, worth=worth)
    return Answer(
        decision, made, verdict(decision), None if upper is None else upper.bias, how, unchecked=UNCHECKED,
        note=NO_LIFT if both is None and decision.estimator else "",
    )  # fmt: skip


def of_items(found: SummedEstimate, places: Places, asked: DecisionOptions) -> Answer:
    """Decide on a log of single results with their propensities, by the direct estimate, which nothing there tests."""
    result = made_result(
        DIRECT, found, "", clicks=found.effective_clicks, level=asked.level, share=1.0, anytime=asked.anytime
    )
    made = Ladder((result,), ())
    clicks = round(found.effective_clicks)
    decision = _decided(
        made, asked, searches=found.impressions, visitors=found.units, clicks=clicks, both=places.both,
        worth=lambda _, side: places.worth[side < 0],
    )  # fmt: skip
    note = " ".join(filter(None, (places.missing, NO_ALLOWANCE)))
    return Answer(
        decision, made, verdict(decision), None, "from propensities as logged", unchecked=NOTHING_CHECKED, note=note
    )
