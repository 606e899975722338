"""Guardrails: findings of checks, statuses by chance or by a share, and plain words, each beside the check they explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from ranktrial.analysis.analyse import Analysis
from ranktrial.schema import Frozen

Status = Literal["pass", "warn", "fail", "unknown"]
Group = Literal["assumptions", "data", "visitors"]
WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")
GROUPS: dict[Group, str] = {
    "assumptions": "What is assumed of how people click",
    "data": "What arrives from your pages",
    "visitors": "What visitors do and get",
}
WARN, FAIL = 0.01, 0.001  # probability of a false alarm over the whole trial, however often one looks
NO_NUMBER = float("nan")


class Guardrail(Frozen):
    """One thing that must hold for the numbers to be trusted.

    Attributes:
        name: What is checked.
        status: pass, warn or fail; unknown where it cannot be checked.
        value: The number it rests on; nan where there is none.
        text: What was found, in a sentence; where it is unknown, what it would take.
        group: What it is about: "assumptions" on how people click, "data" that arrive, "visitors".
        title: The statement that is checked, in plain words.
        cause: What usually makes it warn or fail, where it does.
        remedy: What to do then.
    """

    name: str
    status: Status
    value: float
    text: str
    group: Group = "data"
    title: str = ""
    cause: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        told = f"{self.title} ({self.name})" if self.title else self.name
        return " ".join(filter(None, [f"{told}: {self.text}", self.cause, self.remedy]))


class Found(NamedTuple):
    """Finding of a check: status, the number it rests on (nan where there is none), and a sentence."""

    status: Status
    value: float
    text: str


class Words(NamedTuple):
    """Plain words of a check.

    Attributes:
        name: Name of the check.
        group: Topic that it belongs to.
        title: Statement that is checked.
        cause: Usual cause of a warning or a failure.
        remedy: Advice for that case.
    """

    name: str
    group: Group
    title: str
    cause: str
    remedy: str


Check = TypeVar("Check", bound=Callable[..., Found])
WORDS: dict[Callable[..., Found], Words] = {}


def advised(name: str, group: Group, title: str, *, cause: str, remedy: str) -> Callable[[Check], Check]:
    """Name a check, and say in plain words what it means and what to do; the function stays as it is."""

    def explain(check: Check) -> Check:
        WORDS[check] = Words(name, group, title, cause, remedy)
        return check

    return explain


def guardrail(check: Callable[..., Found], found: Found) -> Guardrail:
    """The guardrail of what a check found, in plain words; with cause and remedy where it warns or fails."""
    if check not in WORDS:
        raise LookupError(f"the check {check.__name__} has no plain words: put @advised(...) above it")
    (name, group, title, cause, remedy), (status, value, text) = WORDS[check], found
    if status not in ("warn", "fail"):
        cause = remedy = ""
    return Guardrail(
        name=name, status=status, value=value, text=text, group=group, title=title, cause=cause, remedy=remedy
    )


def by_chance(p: float) -> Status:
    """Status by a p-value that holds over the whole trial."""
    return "fail" if p < FAIL else "warn" if p < WARN else "pass"


def above(value: float, warn: float, fail: float) -> Status:
    """Status by limits that a value must not exceed."""
    return "fail" if value > fail else "warn" if value > warn else "pass"


def few(analysis: Analysis, status: Status) -> Status:
    """The status, but nothing fails before 100 impressions: one of a handful is no share."""
    return "warn" if status == "fail" and len(analysis.log) < 100 else status


def harmful(analysis: Analysis, status: Status, effect: float) -> Status:
    """The status, but nothing fails that moves the estimate by no more than half of what its interval allows for."""
    low, high = analysis.interval
    return "warn" if status == "fail" and abs(effect) < (high - low) / 4 else status


def unknown(needs: str) -> Found:
    """A check that cannot be made, and what it would take."""
    return Found("unknown", NO_NUMBER, f"Cannot be checked: {needs}.")


def needless(why: str) -> Found:
    """A check that there is no need of."""
    return Found("pass", 0.0, why)
