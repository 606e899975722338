"""Course of a trial: from when on a winner counts, when the time is up, and what is said of both.

People search otherwise on a Sunday than on a Tuesday, and a ranker that does well on one day may not on another. So the time
before a winner counts is rounded up to whole weeks since the first search, and later on a winner counts if it was ahead at the
end of the last whole week too. That holds where the trial has a duration, or does something by itself when a winner counts,
unless it is not wanted; of other trials a report says that no whole week was seen.
"""

from __future__ import annotations

import math

from ranktrial.analysis.verdict import percent
from ranktrial.config import TrialConfig
from ranktrial.times import span_text, time_text

WEEK = 604_800.0


def is_over(config: TrialConfig, began: float, now: float) -> bool:
    """True if the longest time that the trial may take is over."""
    return config.at_most is not None and now - began >= config.at_most


def _waits(config: TrialConfig) -> bool:
    """True if a winner counts from some time on only."""
    timed = config.at_least is not None or config.at_most is not None
    return timed or (config.whole_weeks and config.then != "tell")


def counts_from(config: TrialConfig, began: float) -> float:
    """The time from which on a winner counts; nan before the first search, minus infinity where it counts at once.

    >>> weekly, most = TrialConfig(at_least="10d", at_most="28d"), TrialConfig(at_most="3d")
    >>> [counts_from(config, 0.0) / 86_400 for config in (weekly, most, TrialConfig(at_least="10d", whole_weeks=False))]
    [14.0, 3.0, 10.0]
    """
    if not _waits(config):
        return float("-inf")
    least = config.at_least or 0.0
    if config.whole_weeks:
        least = max(math.ceil(least / WEEK), 1) * WEEK
    return began + (least if config.at_most is None else min(least, config.at_most))


def week_end(config: TrialConfig, began: float, now: float) -> float | None:
    """The end of the last whole week, by which a winner must have been ahead too; None where weeks do not count.

    >>> week_end(TrialConfig(then="stop"), 0.0, 9.5 * 86_400) / 86_400
    7.0
    """
    if not _waits(config) or not config.whole_weeks or is_over(config, began, now) or not now >= began + WEEK:
        return None
    return began + (now - began) // WEEK * WEEK


def course(config: TrialConfig, began: float, now: float, *, named: bool = False, too_soon: bool = False) -> str:
    """Tell how many take part, until when a trial runs, and why; "" where nothing was said about that.

    Args:
        named: True if the report names a winner.
        too_soon: True if it names none for want of time.

    >>> for line in course(TrialConfig(at_least="7d", at_most="28d"), 0.0, 86_400.0).split(". "):
    ...     print(line)
    A winner counts from 1970-01-08 00:00 UTC on, after whole weeks, because searches differ by day
    The time is up on 1970-01-29 00:00 UTC.
    >>> course(TrialConfig(share=0.1, ramp=[(0.1, "2d"), (0.5, None)]), 0.0, 86_400.0)
    '10% of the visitors take part, and 50% after 2 days of that.'
    >>> course(TrialConfig(), 0.0, 7_200.0, named=True)
    'This is from searches of 2 hours, not of a whole week: those of other days may differ.'
    """
    sentences = []
    if config.share < 1:
        stage = config.next_stage
        more = "" if stage is None else f", and {percent(stage[1])} after {span_text(stage[0])} of that"
        sentences.append(f"{percent(config.share)} of the visitors take part{more}.")
    if _waits(config) and not math.isfinite(began):
        sentences.append("The time of the trial begins with its first search.")
    elif _waits(config):
        counts = counts_from(config, began)
        if counts > now:
            why = (
                "whole weeks, because searches differ by day" if config.whole_weeks else span_text(config.at_least or 0)
            )
            sentences.append(f"A winner counts from {time_text(counts)} on, after {why}.")
        elif too_soon:
            sentences.append("Over whole weeks none is ahead so far, and searches differ by day.")
        if config.at_most is not None:
            verb = "was" if is_over(config, began, now) else "is"
            sentences.append(f"The time {verb} up on {time_text(began + config.at_most)}.")
    elif config.whole_weeks and named and now - began < WEEK:
        sentences.append(
            f"This is from searches of {span_text(now - began)}, not of a whole week: those of other days may differ."
        )
    return " ".join(sentences)
