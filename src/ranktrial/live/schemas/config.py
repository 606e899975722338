"""The configuration of a trial."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any, Self

import numpy as np
from pydantic import ConfigDict, Field, field_validator, model_validator

from ranktrial.inference.rules import Rules
from ranktrial.live.schemas.common import Frozen
from ranktrial.methods import Beliefs, LogOpt, Method, parse_method
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.texts import shown
from ranktrial.users import rank_decay

LONGEST_NAME = 40  # characters of what people call a ranker
NO_NAMES = "A", "B"


def _first_logopt(*, refit: bool = True, floor: float = 0.5, holdback: float = 0.1, **options: Any) -> LogOpt:
    """What ``LogOpt()`` was in a live trial of version 0.1."""
    return LogOpt(
        bias="estimated" if refit else "known",
        relevance="constant",
        estimate="constant",
        loss=None,
        keep=0,
        floor=floor,
        holdback=holdback,
        **options,
    )


class TrialConfig(Frozen):
    """A method, and what is not a method's business; never changed, a changed one is a new version.

    Attributes:
        method: Decides what is shown and how it is valued, as it is written: ``LogOpt(floor=0.9)``, ``AB(split=0.5)``.
        k: Results that count: the first page.
        level: Of the interval.
        eta: Position bias to start from, 1 / rank^eta,
        theta: or rank by rank. A method with ``bias="known"`` takes it as known.
        smallest: The smallest difference that matters, in clicks per impression.
        tightest_at: The number of units at which the confidence sequence is tightest, as ``plan`` says. By default where it
            finds ``smallest`` soonest, and 10,000 without one.
        click_window: Seconds after an impression in which a click counts.
        view_window: Seconds after an impression in which the same search again is a retry; later it is another view of the
            impression, and clicks on that do not count.
        rules: The most that a unit may do before reports leave it out; none by default.
        seed: For a trial that must repeat exactly (tests, demonstrations): the secret is made from it.
        names: What people call A and B, in reports and on the page. Labels: other ones make no new version.
    """

    model_config = ConfigDict(allow_inf_nan=False)  # what is not finite could not be read back

    method: str = "LogOpt()"
    k: int = Field(10, ge=1, le=MOST_RANKS)
    level: float = Field(0.95, gt=0.5, lt=1)
    eta: float = Field(1.0, ge=0, le=100)
    theta: tuple[float, ...] | None = None
    smallest: float | None = Field(None, gt=0)
    tightest_at: float | None = Field(None, ge=1)
    click_window: float = Field(86_400.0, gt=0)
    view_window: float = Field(30.0, ge=0)
    rules: Rules = Rules()
    seed: int | None = Field(None, ge=0)
    names: tuple[str, str] = NO_NAMES

    @field_validator("names")
    @classmethod
    def _name(cls, names: tuple[str, str]) -> tuple[str, str]:
        a, b = names
        for one in names:
            if not one or one != shown(one, LONGEST_NAME):
                limit = f"must have 1 to {LONGEST_NAME} characters, none of them a control character"
                raise ValueError(f"a name is {one!r}, {limit} or a space at either end")
        if a == b or a == "B" or b == "A":
            raise ValueError(f"names are {a!r} for A and {b!r} for B: nobody could tell which is which")
        return names

    @field_validator("method", mode="before")
    @classmethod
    def _spell(cls, method: str | Method) -> str:
        parsed = parse_method(method) if isinstance(method, str) else method
        if not isinstance(parsed, Method) or not parsed.runs_live:
            raise ValueError(f"method is {parsed}, which cannot run live: LogOpt() and AB() can")
        return str(parsed)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.theta is not None:
            if len(self.theta) != self.k:
                raise ValueError(f"theta has {len(self.theta)} ranks, must have k = {self.k}")
            if not all(0 < value <= 1 for value in self.theta) or self.theta[0] != 1:
                raise ValueError(f"theta is {self.theta}, must start with 1 and stay above 0 and at most 1")
        return self

    @classmethod
    def stored(cls, text: str) -> TrialConfig:
        """As it stands in a store. Before version 0.2 options that are now a method's stood beside it, and ``unit`` chose
        between errors over impressions and over units: they are over units now.
        """
        told = json.loads(text)
        told.pop("unit", None)
        options = {name: told.pop(name) for name in ("floor", "holdback", "schedule", "refit") if name in told}
        if options and told["method"].startswith("LogOpt("):
            told["method"] = str(_first_logopt(**options))
        elif options:  # an A/B test was always adjusted by query then
            told["method"] = str(replace(parse_method(told["method"]), estimate="adjusted"))  # type: ignore[call-arg]
        return cls.model_validate(told)

    def to_store(self) -> str:
        """The text that is stored: a later release may have other defaults, a trial that has begun keeps its own."""
        return self.model_copy(update={"method": self.comparison.spelled_out}).model_dump_json()

    def same_but_for_names(self, other: TrialConfig) -> bool:
        """Whether the other configuration would show and count the same."""
        return self.model_copy(update={"names": other.names}) == other

    @property
    def labels(self) -> tuple[str, str]:
        """A and B with their names, where they have some: ``A (current)``.

        >>> TrialConfig(names=("current", "with popularity")).labels, TrialConfig().labels
        (('A (current)', 'B (with popularity)'), ('A', 'B'))
        """
        a, b = (letter if name == letter else f"{letter} ({name})" for letter, name in zip(NO_NAMES, self.names))
        return a, b

    @property
    def comparison(self) -> Method:
        """The method itself."""
        return _parsed(self.method)

    @property
    def first_beliefs(self) -> Beliefs:
        """What is believed of users before any click."""
        theta = rank_decay(self.k, self.eta) if self.theta is None else np.array(self.theta, np.float64)
        return Beliefs(theta, note="assumed at the start")


_parsed = cache(parse_method)
