"""Guardrails: one check for every assumption behind a report, each with its number.

* ``draws``: rankings were drawn as often as designed;
* ``pages``: pages show the drawn rankings, events belong to them;
* ``estimates``: the estimate has enough data, and weights and position bias that it can rest on;
* ``click_model``: a click depends on its document and rank alone;
* ``alike``: ranks are looked at alike by all visitors;
* ``over_time``: nothing changes on the way;
* ``visitors``: they lose no clicks, and no few of them, or of their pages, make the verdict.

A check on chance alarms in one of a thousand trials that are in order (fail) or in one of a hundred (warn), over the whole
trial and however often one looks (``analysis.e_processes``). A check that cannot be made is unknown, and says what it
would take. ``advised`` above each function says what it means, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.guardrails.alike import look_alike
from ranktrial.analysis.guardrails.click_model import Above, assumptions, clicks_above, company, independence
from ranktrial.analysis.guardrails.draws import calibration, sample_ratio
from ranktrial.analysis.guardrails.estimates import bias, coverage, effective_clicks, largest_weight
from ranktrial.analysis.guardrails.over_time import bias_over_time, clicks_over_time, difference_over_time
from ranktrial.analysis.guardrails.pages import clicks, duplicates, faults, shown_as_drawn
from ranktrial.analysis.guardrails.status import Found, Guardrail, guardrail
from ranktrial.analysis.guardrails.visitors import crowded_pages, heaviest, latency, page


def guardrails(
    analysis: Analysis, tallies: Mapping[str, int] | None, nanoseconds: Sequence[int], above: Above | None = None
) -> tuple[Guardrail, ...]:
    """All checks of a version.

    Args:
        analysis: Of its log.
        tallies: What was counted of it and is no row (``store.tallies``), and what its log leaves out; None where nothing was
            counted, as of a log from elsewhere: then there are no checks of that.
        nanoseconds: What recent calls of ``rank`` took.
        above: ``clicks_above`` of the analysis, where it is known already.
    """
    of_analysis: list[Callable[[Analysis], Found]] = [
        sample_ratio, calibration, coverage, effective_clicks, largest_weight, assumptions, bias, page, heaviest,
        crowded_pages, difference_over_time, clicks_over_time, bias_over_time,
    ]  # fmt: skip
    of_tallies: list[Callable[[Analysis, Mapping[str, int]], Found]] = [
        shown_as_drawn, clicks, duplicates, faults,
    ]  # fmt: skip
    above = clicks_above(analysis) if above is None else above
    found: dict[Callable[..., Found], Found] = {check: check(analysis) for check in of_analysis}
    found |= {check: check(analysis, above) for check in (company, independence)}
    found[look_alike] = look_alike(analysis)
    if tallies is not None:
        found |= {check: check(analysis, tallies) for check in of_tallies}
        found[latency] = latency(analysis, tallies, nanoseconds)
    return tuple(guardrail(check, what) for check, what in found.items())
