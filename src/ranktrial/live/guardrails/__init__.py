"""Guardrails: one check for every assumption behind a report, each with its number.

* ``draws``: rankings were drawn as often as designed;
* ``pages``: pages show what was drawn, events belong to them;
* ``estimates``: what the estimate rests on;
* ``click_model``: a click depends on its document and rank alone;
* ``over_time``: nothing changes on the way;
* ``hostile``: no few pages make the verdict, and how many would undo it.

A check on chance alarms in one of a thousand trials that are in order (fail) or in one of a hundred (warn), over the whole
trial and however often one looks (``inference.e_processes``). A check that cannot be made is unknown, and says what it
would take. ``advice`` has what each means to people, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ranktrial.live.analysis import Analysis
from ranktrial.live.guardrails.advice import explained
from ranktrial.live.guardrails.click_model import (
    ASSUMPTIONS,
    COMPANY,
    INDEPENDENCE,
    Above,
    Dependence,
    Interference,
    assumptions,
    clicks_above,
    company,
    dependence,
    independence,
    interference,
)
from ranktrial.live.guardrails.draws import calibration, sample_ratio
from ranktrial.live.guardrails.estimates import BIAS, bias, coverage, effective_clicks, heaviest, largest_weight, page
from ranktrial.live.guardrails.hostile import crowded_pages, undone_by
from ranktrial.live.guardrails.over_time import BIAS_OVER_TIME, bias_over_time, clicks_over_time, difference_over_time
from ranktrial.live.guardrails.pages import clicks, duplicates, faults, latency, shown_as_drawn
from ranktrial.live.schemas import Guardrail

__all__ = [
    "ASSUMPTIONS",
    "BIAS",
    "BIAS_OVER_TIME",
    "COMPANY",
    "INDEPENDENCE",
    "Above",
    "Dependence",
    "Interference",
    "assumptions",
    "bias",
    "bias_over_time",
    "calibration",
    "clicks",
    "clicks_above",
    "clicks_over_time",
    "company",
    "coverage",
    "crowded_pages",
    "dependence",
    "difference_over_time",
    "duplicates",
    "effective_clicks",
    "faults",
    "guardrails",
    "heaviest",
    "independence",
    "interference",
    "largest_weight",
    "latency",
    "measured_above",
    "page",
    "sample_ratio",
    "shown_as_drawn",
    "undone_by",
]


def measured_above(analysis: Analysis) -> Above | None:
    """How clicks go with what stands above them, where there are clicks and a click model."""
    modelled = analysis.clicks > 0 and analysis.config.comparison.needs_position_bias
    return clicks_above(analysis) if modelled else None


def guardrails(
    analysis: Analysis, tallies: Mapping[str, int], nanoseconds: Sequence[int], above: Above | None = None
) -> tuple[Guardrail, ...]:
    """All checks of a version.

    Args:
        analysis: Of its log.
        tallies: What was counted of it and is no row (``live.tallies``), and what its log leaves out.
        nanoseconds: What recent calls of ``rank`` took.
        above: ``measured_above`` of the analysis, where it is known already.
    """
    of_analysis: list[Callable[[Analysis], Guardrail]] = [
        sample_ratio, calibration, coverage, effective_clicks, largest_weight, assumptions, bias, page, heaviest,
        crowded_pages, difference_over_time, clicks_over_time, bias_over_time,
    ]  # fmt: skip
    of_tallies: list[Callable[[Analysis, Mapping[str, int]], Guardrail]] = [
        shown_as_drawn, clicks, duplicates, faults,
    ]  # fmt: skip
    above = measured_above(analysis) if above is None else above
    found = (
        *(check(analysis) for check in of_analysis),
        company(analysis, above),
        independence(analysis, above),
        *(check(analysis, tallies) for check in of_tallies),
        latency(analysis, tallies, nanoseconds),
    )
    return tuple(map(explained, found))
