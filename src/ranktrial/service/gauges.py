"""Gauges of trials for Prometheus: what operators watch, from what the service knows when it is asked.

The numbers of a report are those of the last one that this instance has made, for whatever reason; one is made for the gauges
where none is younger than a minute.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, get_args

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ranktrial.analysis.decision import State
from ranktrial.report.schema import Report
from ranktrial.trial.trial import Trial

T = TypeVar("T")
STATUSES = ("pass", "warn", "fail", "unknown")


@dataclass
class Watched:
    """A trial as its gauges show it, from the last look at it.

    Attributes:
        trial: The trial.
        waiting: Messages that no receiver has taken yet.
        report: The last report.
        next_report: Time of a monotonic clock before which there is to be no other.
        task: The look that is under way, or the last one.
    """

    trial: Trial
    waiting: int = 0
    report: Report | None = None
    next_report: float = 0.0
    task: asyncio.Task[None] | None = None


def _last_click(report: Report) -> float:
    return report.pace.latest_click if math.isfinite(report.pace.latest_click) else 0.0


# Meaning and value of each gauge that has no other label than the trial: from what is known of it, and from its report.
PLAIN: dict[str, tuple[str, Callable[[Watched], float]]] = {
    "share": ("Share of the visitors who take part.", lambda one: one.trial.share),
    "stopped": ("1 if the trial is stopped.", lambda one: one.trial.stopped),
    "last_search_timestamp_seconds": (
        "Time of the last search that is stored; 0 if there is none.", lambda one: one.trial.state.seen.latest / 1e6,
    ),
    "messages_waiting": ("Messages that no receiver has taken yet.", lambda one: one.waiting),
}  # fmt: skip
REPORTED: dict[str, tuple[str, Callable[[Report], float]]] = {
    "difference": ("Clicks per search of B minus those of A.", lambda report: report.difference),
    "interval_low": ("Lower end of the interval of the difference.", lambda report: report.interval.low),
    "interval_high": ("Upper end of the interval of the difference.", lambda report: report.interval.high),
    "searches": ("Searches that the estimate is from.", lambda report: report.impressions),
    "last_click_timestamp_seconds": (
        "Time of the last search that was clicked; 0 if there is none.", _last_click,
    ),
    "quiet": ("1 if there is no search, or no click, for unusually long.", lambda report: bool(report.pace.warning)),
}  # fmt: skip
STATE = "ranktrial_trial_state", "1 for the state of the decision."
CHECKS = "ranktrial_trial_checks", "Checks by their status."
GUARDS = "ranktrial_trial_guard_at_least", "Share that is surely lost, by guard; below its tolerance nothing happens."
DRAWS = (
    "ranktrial_trial_draw_seconds",
    "Time that the last 10,000 calls of rank took, without the wait for the disk, by quantile.",
)
QUANTILES = (0.5, 0.99)


class TrialGauges(Collector):
    """Collector of the gauges; ``watched`` gives the trials by name, from memory."""

    def __init__(self, watched: Callable[[], dict[str, Watched]]) -> None:
        self._watched = watched

    def collect(self) -> Iterable[Metric]:
        trials = self._watched()
        yield from _families(PLAIN, trials)
        draws = GaugeMetricFamily(*DRAWS, labels=("trial", "quantile"))
        for trial, known in trials.items():
            took = tuple(known.trial.showing.nanoseconds)
            for quantile in QUANTILES if took else ():
                draws.add_metric((trial, f"{quantile:g}"), float(np.quantile(took, quantile)) / 1e9)
        yield draws
        reports = {trial: known.report for trial, known in trials.items() if known.report is not None}
        yield from _families(REPORTED, reports)
        state = GaugeMetricFamily(*STATE, labels=("trial", "state"))
        checks = GaugeMetricFamily(*CHECKS, labels=("trial", "status"))
        guards = GaugeMetricFamily(*GUARDS, labels=("trial", "guard"))
        for trial, report in reports.items():
            for one in get_args(State):
                state.add_metric((trial, one), float(report.decision.state == one))
            for status in STATUSES:
                checks.add_metric((trial, status), sum(check.status == status for check in report.guardrails))
            for guard in report.guards:
                guards.add_metric((trial, guard.name), max(guard.at_least, 0.0))
        yield from (state, checks, guards)


def _families(
    gauges: Mapping[str, tuple[str, Callable[[T], float]]], of: Mapping[str, T]
) -> Iterator[GaugeMetricFamily]:
    for name, (told, value) in gauges.items():
        family = GaugeMetricFamily(f"ranktrial_trial_{name}", told, labels=("trial",))
        for trial, known in of.items():
            family.add_metric((trial,), float(value(known)))
        yield family
