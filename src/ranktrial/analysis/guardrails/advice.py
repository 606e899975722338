"""Guardrails in plain words: statement, group, usual cause of a failure, and remedy, each beside the check that it explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, ParamSpec

from ranktrial.analysis.guardrails.status import Group, Guardrail

P = ParamSpec("P")


class Advice(NamedTuple):
    """Explanation of a guardrail for people.

    Attributes:
        group: Topic that it belongs to.
        title: Statement that is checked.
        cause: Usual cause of a warning or a failure.
        remedy: Advice for that case.
    """

    group: Group
    title: str
    cause: str
    remedy: str


ADVICE: dict[str, Advice] = {}


def advised(
    name: str, group: Group, title: str, *, cause: str, remedy: str
) -> Callable[[Callable[P, Guardrail]], Callable[P, Guardrail]]:
    """Say in plain words what a check means, and what to do where it warns or fails.

    The function stays as it is; ``guardrails`` adds the words to the guardrail of that name.
    """

    def explain(check: Callable[P, Guardrail]) -> Callable[P, Guardrail]:
        ADVICE[name] = Advice(group, title, cause, remedy)
        return check

    return explain


def explained(guardrail: Guardrail) -> Guardrail:
    """The guardrail with its group and statement; with cause and remedy where it warns or fails."""
    advice = ADVICE.get(guardrail.name)
    if advice is None:
        raise LookupError(
            f"the check {guardrail.name!r} has no plain words: put @advised({guardrail.name!r}, ...) on its function"
        )
    told = {"group": advice.group, "title": advice.title}
    if guardrail.status in ("warn", "fail"):
        told |= {"cause": advice.cause, "remedy": advice.remedy}
    return guardrail.model_copy(update=told)
