"""Decisions on logs that are too large for memory, or have no lists: by sums made where the log is, and by propensities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.analysis.answers import AS_IN_A_TRIAL, Answer, DecisionOptions
from ranktrial.analysis.decision import Decision
from ranktrial.analysis.decision import decide as decide_by
from ranktrial.analysis.estimators import DeltaEstimator, Means, parse_estimator
from ranktrial.analysis.ladder import AB_TRAFFIC, DIRECT, POSITION_BASED, SHARES, Ladder, made_result
from ranktrial.analysis.verdict import verdict
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
from ranktrial.position_bias import NotIdentifiable
from ranktrial.users import rank_decay

CANNOT_BE_TOLD = "position bias: {}; --theta can give it"
NO_LIFT = (
    "These sums do not tell the difference in per cent: that takes A/B traffic, or position bias and a log that could show all "
    "that A and B list."
)
UNCHECKED = (
    "By sums nothing is checked but the estimates against each other; a log that is read into memory (--in-memory) is checked "
    "as a trial's is."
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
    estimators: Sequence[str | DeltaEstimator] = ("constant",),
    prediction: float | None = None,
    asked: DecisionOptions = AS_IN_A_TRIAL,
    how: str = "",
    uncovered: str = "refuse",
) -> Answer:
    """Decide on a log that is added up where it is."""
    found: dict[str, SummedEstimate] = {}
    missing = dict.fromkeys((AB_TRAFFIC, DIRECT, POSITION_BASED), "")
    try:
        found[AB_TRAFFIC] = estimate_sums(log, estimator=Means())
    except NoPlainTrafficError as refusal:
        missing[AB_TRAFFIC] = str(refusal)
    for kind in map(parse_estimator, estimators):
        result = AB_TRAFFIC if isinstance(kind, Means) else DIRECT if kind.at_list_ranks else POSITION_BASED
        if result in found:
            continue
        try:
            found[result] = estimate_sums(log, theta=theta, estimator=kind, prediction=prediction, uncovered=uncovered)
        except NotIdentifiable as refusal:
            missing[result] = CANNOT_BE_TOLD.format(refusal)
    names = [name for name in missing if name in found or missing[name]]
    results = tuple(
        made_result(
            name, found.get(name), missing[name], clicks=np.inf, level=asked.level,  # sums have seen to that
            share=SHARES[name] if len(names) > 1 else 1.0, anytime=asked.anytime, smallest=asked.smallest,
        )
        for name in names
    )  # fmt: skip
    tests = [
        against_means(log, found[name], name=name)
        for name in (DIRECT, POSITION_BASED)
        if name in found and AB_TRAFFIC in found
    ]
    last = next((found[name] for name in reversed(names) if name in found), None)
    theta_used = next((one.theta for one in found.values() if one.theta is not None), rank_decay(log.k))
    sums = {name: float(column[0] or 0) for name, column in log.sums(log.queries.overview(theta_used)).items()}
    n, clicks = round(sums["searches"]), round(sums["clicks"])
    made = Ladder(
        results, tuple(test for test in tests if test is not None), sums["apart"] / max(n, 1), clicks / max(n, 1)
    )
    told_theta = next(
        (one.theta for one in found.values() if one.theta is not None and not one.estimator.at_list_ranks), None
    )
    both = clicks_of_both(log, told_theta)

    @cache
    def of_hostile(name: str) -> tuple[float, float]:
        return most_worth(log, found[name], name=name)

    decision = _decided(
        made, asked, searches=n, visitors=round(sums["visitors"]), clicks=clicks, both=both,
        worth=lambda result, side: of_hostile(result.name)[side < 0],
    )  # fmt: skip
    return Answer(
        decision, made, verdict(decision), None if last is None else last.bias, how, unchecked=UNCHECKED,
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
