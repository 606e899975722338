"""Gauges of trials for Prometheus: what operators watch, from what the service knows when it is asked.

The numbers of a report are those of the last one that this instance has made, for whatever reason; one is made for the gauges
where none is younger than a minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, get_args

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ranktrial.analysis.decision import State
from ranktrial.report.schema import Report

STATUSES = ("pass", "warn", "fail", "unknown")
# Name and meaning of each gauge that has no other label than the trial, in the order of ``Watched``.
PLAIN = {
    "ranktrial_trial_share": "Share of the visitors who take part.",
    "ranktrial_trial_stopped": "1 if the trial is stopped.",
    "ranktrial_trial_last_search_timestamp_seconds": "Time of the last search that is stored; 0 if there is none.",
    "ranktrial_trial_messages_waiting": "Messages that no receiver has taken yet.",
}
REPORTED = {
    "ranktrial_trial_difference": "Clicks per search of B minus those of A.",
    "ranktrial_trial_interval_low": "Lower end of the interval of the difference.",
    "ranktrial_trial_interval_high": "Upper end of the interval of the difference.",
    "ranktrial_trial_searches": "Searches that the estimate is from.",
    "ranktrial_trial_last_click_timestamp_seconds": "Time of the last search that was clicked; 0 if there is none.",
    "ranktrial_trial_quiet": "1 if there is no search, or no click, for unusually long.",
}
STATE = "ranktrial_trial_state", "1 for the state of the decision."
CHECKS = "ranktrial_trial_checks", "Checks by their status."
GUARDS = "ranktrial_trial_guard_at_least", "Share that is surely lost, by guard; below its tolerance nothing happens."
DRAWS = (
    "ranktrial_trial_draw_seconds",
    "Time that the last 10,000 calls of rank took, without the wait for the disk, by quantile.",
)
QUANTILES = (0.5, 0.99)


class Watched(NamedTuple):
    """A trial as the service knows it; ``draws`` are durations of the last calls of ``rank``, in nanoseconds."""

    share: float
    stopped: bool
    last_search: float
    waiting: int
    report: Report | None
    draws: Sequence[int] = ()


class TrialGauges(Collector):
    """Collector of the gauges; ``watched`` gives the trials by name, from memory."""

    def __init__(self, watched: Callable[[], dict[str, Watched]]) -> None:
        self._watched = watched

    def collect(self) -> Iterable[Metric]:
        trials = self._watched()
        for place, (name, told) in enumerate(PLAIN.items()):
            yield _family(name, told, ((trial, float(known[place])) for trial, known in trials.items()))  # type: ignore[arg-type]
        draws = GaugeMetricFamily(*DRAWS, labels=("trial", "quantile"))
        for trial, known in trials.items():
            for quantile in QUANTILES if known.draws else ():
                draws.add_metric((trial, f"{quantile:g}"), float(np.quantile(known.draws, quantile)) / 1e9)
        yield draws
        reports = {trial: known.report for trial, known in trials.items() if known.report is not None}
        for place, (name, told) in enumerate(REPORTED.items()):
            yield _family(name, told, ((trial, _numbers(report)[place]) for trial, report in reports.items()))
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


def _family(name: str, told: str, values: Iterator[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, told, labels=("trial",))
    for trial, value in values:
        family.add_metric((trial,), value)
    return family


def _numbers(report: Report) -> tuple[float, ...]:
    """Values of ``REPORTED``, in its order."""
    clicked = report.pace.latest_click
    return (
        report.difference, report.interval.low, report.interval.high, float(report.impressions),
        clicked if math.isfinite(clicked) else 0.0, float(bool(report.pace.warning)),
    )  # fmt: skip
