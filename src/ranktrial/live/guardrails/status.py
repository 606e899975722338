"""Statuses of checks: by chance, by a share, or unknown where a check cannot be made."""

from __future__ import annotations

from ranktrial.live.analysis import Analysis
from ranktrial.live.schemas import Guardrail, Status

WARN, FAIL = 0.01, 0.001  # probability of a false alarm over the whole trial, however often one looks
NO_NUMBER = float("nan")


def by_chance(p: float) -> Status:
    """By a p-value that holds over the whole trial."""
    return "fail" if p < FAIL else "warn" if p < WARN else "pass"


def above(value: float, warn: float, fail: float) -> Status:
    """By limits that a value must not exceed."""
    return "fail" if value > fail else "warn" if value > warn else "pass"


def few(analysis: Analysis, status: Status) -> Status:
    """The status, but nothing fails before 100 impressions: one of a handful is no share."""
    return "warn" if status == "fail" and len(analysis.log) < 100 else status


def harmful(analysis: Analysis, status: Status, effect: float) -> Status:
    """The status, but nothing fails that moves the estimate by no more than half of what its interval allows for."""
    low, high = analysis.interval
    return "warn" if status == "fail" and abs(effect) < (high - low) / 4 else status


def unknown(name: str, needs: str) -> Guardrail:
    """A check that cannot be made, and what it would take."""
    return Guardrail(name=name, status="unknown", value=NO_NUMBER, text=f"Cannot be checked: {needs}.")


def needless(name: str, why: str) -> Guardrail:
    """A check that there is no need of."""
    return Guardrail(name=name, status="pass", value=0.0, text=why)
