"""The configuration of a trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from math import ceil
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ranktrial import checks
from ranktrial.covariates import checked_names
from ranktrial.log.rules import Rules
from ranktrial.methods import Beliefs, LiveMethod, Method, parse_method
from ranktrial.metrics import Clicks, EventMetric, Metric, measured, parse_metric
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.schema import Frozen, Span
from ranktrial.segments import Segments, checked
from ranktrial.spelling import spelled_out
from ranktrial.texts import label
from ranktrial.times import span_text, time_text
from ranktrial.users import rank_decay

LONGEST_NAME = 40  # characters of what people call a ranker
NO_NAMES = "A", "B"
Ramp = tuple[tuple[float, Span | None], ...] | None
WrittenMetric = Annotated[
    InstanceOf[Metric],
    BeforeValidator(parse_metric),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "description": 'A metric as it is written, such as Orders(window="7d").'}),
]
Then = Literal["tell", "stop", "serve winner"]
SHOWN = "method", "k", "theta", "eta", "seed", "segments", "covariates"  # other ones need a new version


BOUNDS = "clicks", "shown", "fallbacks", "latency"  # of guards


@dataclass(frozen=True)
class Guards:
    """Bounds beyond which a trial stops by itself, with A for everybody; None for no guard.

    Attributes:
        clicks: Share of A's clicks that B may get fewer.
        shown: Share of A's clicks that visitors may lose by what they are shown.
        fallbacks: Share of searches that may be left out because of faults.
        latency: Share of the calls of ``rank`` that may take more than 5 ms, without the wait for the disk.
        level: Share of trials in which no guard stops what is within its bounds, over the whole trial.
        futility: What to do when B is surely not better by ``smallest``: "tell", or "stop".
    """

    clicks: float | None = None
    shown: float | None = None
    fallbacks: float | None = None
    latency: float | None = None
    level: float = 0.99
    futility: Literal["tell", "stop"] = "tell"

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read by pydantic)

    def __post_init__(self) -> None:
        for name in BOUNDS:
            if (tolerance := getattr(self, name)) is not None:
                checks.between(name, tolerance, 0, 1)
        checks.between("level", self.level, 0.5, 1, open_ends=True)
        checks.one_of("futility", self.futility, ("tell", "stop"))

    @property
    def watch(self) -> bool:
        """True if a report is needed to know whether the trial is to stop by one of these."""
        return self.futility == "stop" or any(getattr(self, name) is not None for name in BOUNDS)


class TrialConfig(Frozen):
    """Configuration of a trial: a method, and the options that belong to no method.

    ``method``, ``k``, ``theta``, ``eta``, ``seed`` and ``segments`` decide what is shown, ``covariates`` what is stored:
    another value of one of these needs a new version. All others change in place.

    Attributes:
        method: Decides what is shown and how it is valued, as it is written: ``LogOpt(floor=0.9)``, ``AB(split=0.5)``.
        k: Results that count: the first page.
        level: Of the interval.
        eta: Position bias to start from, 1 / rank^eta,
        theta: or rank by rank. A method with ``bias="known"`` takes it as known.
        smallest: The smallest difference that matters, in clicks per impression, or in what the primary metric measures.
        tightest_at: The number of units at which the confidence sequence is tightest, as ``plan`` says. By default where it
            finds ``smallest`` soonest, and 10,000 without one.
        click_window: Seconds after an impression in which a click counts.
        view_window: Seconds after an impression in which the same search again is a retry; later it is another view of the
            impression, and clicks on that do not count.
        rules: The most that a unit may do before reports leave it out; none by default.
        allowance: Share of exposure disagreement x clicks per search by which visitors who do not follow the click model may
            move the answer: intervals that rest on the model are widened by that. None is the default of ``decision``; 0 is for
            those who know their visitors.
        contamination: Share of hostile searches against which a winner must stand; None is the default of ``decision``.
        share: Share of units that take part; everybody else sees A's list, which is not stored.
        ramp: Shares one after the other, each with the seconds (or a text such as "1d") until the next, None for the last. The
            share is that of the first, until the trial changes it.
        at_least: Time that must pass before a winner counts, in seconds or as a text such as "7d".
        at_most: Time after which the trial is over, with or without a winner.
        whole_weeks: Whether a winner counts after whole weeks only, where a time was given or ``then`` is not "tell".
        then: What to do when a winner counts, the two are found alike, or the time is over: "tell" those who run it, "stop" and
            show A, or "serve winner": stop and show the winner, A where there is none.
        guards: Bounds on the harm that the trial may do, beyond which it stops by itself; none by default.
        metrics: What is measured beside clicks, as it is written: ``Orders(window="7d")``; clicks decide unless another one is
            primary.
        seed: For a trial that must repeat exactly (tests, demonstrations): the secret is made from it.
        names: What people call A and B, in reports and on the page.
        segments: Attributes of searches, each with its values, such as ``{"device": ["phone", "desktop"]}``; or "head/tail" for
            how often a query was asked so far. Every search then gives its values, and all answers are also by segment.
        covariates: Names of numbers that are known of a visitor before the trial, such as ``["clicks_last_month"]``. Searches
            give their values, and estimates are adjusted by them.
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
    allowance: float | None = Field(None, ge=0, le=1)
    contamination: float | None = Field(None, ge=0, lt=0.5)
    share: float = Field(1.0, ge=0, le=1)
    ramp: Ramp = None
    guards: Guards = Guards()
    at_least: Span | None = None
    at_most: Span | None = None
    whole_weeks: bool = True
    then: Then = "tell"
    metrics: tuple[WrittenMetric, ...] = ()
    seed: int | None = Field(None, ge=0)
    names: tuple[str, str] = NO_NAMES
    segments: Annotated[dict[str, tuple[str, ...] | Literal["head/tail"]], AfterValidator(checked)] = Field(
        default_factory=dict
    )
    covariates: Annotated[tuple[str, ...], AfterValidator(checked_names)] = ()

    @field_validator("names")
    @classmethod
    def _name(cls, names: tuple[str, str]) -> tuple[str, str]:
        a, b = names
        for one in names:
            label("a name is", one, LONGEST_NAME)
        if a == b or a == "B" or b == "A":
            raise ValueError(f"names are {a!r} for A and {b!r} for B: nobody could tell which is which")
        return names

    @field_validator("metrics")
    @classmethod
    def _measure(cls, metrics: tuple[Metric, ...]) -> tuple[Metric, ...]:
        measured(metrics)
        return metrics

    @field_validator("ramp", mode="before")
    @classmethod
    def _last_stage(cls, ramp: Any) -> Any:
        """A last stage may be its share alone, where there is no way to write None."""
        if isinstance(ramp, list | tuple) and ramp and isinstance(ramp[-1], list | tuple) and len(ramp[-1]) == 1:
            return [*ramp[:-1], (*ramp[-1], None)]
        return ramp

    @field_validator("ramp")
    @classmethod
    def _grow(cls, ramp: Ramp) -> Ramp:
        if ramp is None:
            return None
        shares = [share for share, _ in ramp]
        if not all(0 < share <= 1 for share in shares) or shares != sorted(set(shares)):
            raise ValueError(f"shares of a ramp are {shares}, each must be above the one before, and all from 0 to 1")
        if [wait is None for _, wait in ramp] != [False] * (len(ramp) - 1) + [True]:
            raise ValueError("a ramp ends with a stage that lasts: its time is None, and that of no other")
        return ramp

    @field_validator("method", mode="before")
    @classmethod
    def _spell(cls, method: str | Method) -> str:
        parsed = parse_method(method) if isinstance(method, str) else method
        if not isinstance(parsed, LiveMethod) or not parsed.traits.runs_live:
            raise ValueError(f"method is {parsed}, which cannot run live: LogOpt() and AB() can")
        return str(parsed)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.theta is not None:
            if len(self.theta) != self.k:
                raise ValueError(f"theta has {len(self.theta)} ranks, must have k = {self.k}")
            if not all(0 < value <= 1 for value in self.theta) or self.theta[0] != 1:
                raise ValueError(f"theta is {self.theta}, must start with 1 and stay above 0 and at most 1")
        if self.at_most is not None and (self.at_least or 0) > self.at_most:
            raise ValueError(f"at_least is {span_text(self.at_least or 0)}, must be no longer than at_most")
        return self

    @classmethod
    def stored(cls, text: str) -> TrialConfig:
        """Read the configuration as a store has it; ``AB`` called the paper's x "weighted" once."""
        return cls.model_validate_json(text.replace(r"estimate=\"weighted\"", r"estimate=\"paper\""))

    def to_store(self) -> str:
        """The text that is stored: a later release may have other defaults, a trial that has begun keeps its own."""
        return self.model_copy(update={"method": spelled_out(self.comparison)}).model_dump_json()

    def changes(self, to: TrialConfig, options: Iterable[str] | None = None) -> dict[str, str]:
        """Options (all by default) in which another configuration differs, from what to what.

        >>> TrialConfig(k=5, smallest=0.1).changes(TrialConfig(k=5, names=("current", "with popularity")))
        {'smallest': '0.1 -> none', 'names': 'A and B -> current and with popularity'}
        """
        pairs = {name: (getattr(self, name), getattr(to, name)) for name in options or type(self).model_fields}
        return {name: f"{_text(old)} -> {_text(new)}" for name, (old, new) in pairs.items() if old != new}

    def shows_as(self, other: TrialConfig) -> bool:
        """True if the other configuration draws the same rankings."""
        return not self.changes(other, SHOWN)

    def keeping(self, before: TrialConfig | None, *, anew: bool = False) -> TrialConfig:
        """Return the configuration, with options of an earlier one that were not given here and that change in place.

        A ramp begins with its first share, unless a share was given. Where the earlier one has the same ramp, or a share that
        is a stage of this one, it goes on from there, but not ``anew``.
        """
        kept = set() if before is None else set(type(self).model_fields) - self.model_fields_set - set(SHOWN)
        whole = self.model_copy(update={option: getattr(before, option) for option in kept})
        if whole.ramp is None or "share" in self.model_fields_set:
            return whole
        shares = [share for share, _ in whole.ramp]
        if before is not None and not anew and (before.ramp == whole.ramp or before.share in shares):
            return whole
        return whole.model_copy(update={"share": shares[0]})

    def measuring_from(self, before: TrialConfig | None, moment: float) -> TrialConfig:
        """Return the configuration with the time from which its metrics count, given that of a running trial.

        Metrics that the trial already has count from when they did; those that are new, or that value impressions otherwise,
        from this moment on (the whole second after it), or from later if they say so.
        """
        if before is None:
            return self
        found = []
        for metric in self.metrics:
            known = next((one for one in before.metrics if one.counts_as(metric)), None)
            since = float(ceil(moment)) if known is None else known.since
            times = [one for one in (since, metric.since) if one is not None]
            found.append(metric if isinstance(metric, Clicks) else replace(metric, since=max(times, default=None)))
        return self.model_copy(update={"metrics": tuple(found)})

    @property
    def watches(self) -> bool:
        """True if a report is needed to know whether the trial is to stop: it has guards, or a metric that is one."""
        return self.guards.watch or any(metric.tolerance is not None for metric in self.metrics)

    @property
    def measured(self) -> tuple[Metric, ...]:
        """All metrics, clicks among them, the primary one first."""
        return measured(self.metrics)

    @property
    def event_windows(self) -> dict[str, float]:
        """Seconds after an impression in which an event counts for some metric, by action."""
        found = dict[str, float]()
        for metric in self.metrics:
            if isinstance(metric, EventMetric):
                for action in metric.of_actions:
                    found[action] = max(metric.settles_after, found.get(action, 0.0))
        return found

    @property
    def next_stage(self) -> tuple[float, float] | None:
        """Seconds that the stage of the present share lasts, and the share after it.

        None without a ramp, at its end, and at a share that is none of its stages.
        """
        for (share, wait), (after, _) in pairwise(self.ramp or ()):
            if share == self.share and wait is not None:
                return wait, after
        return None

    @property
    def labels(self) -> tuple[str, str]:
        """A and B with their names, where they have some: ``A (current)``.

        >>> TrialConfig(names=("current", "with popularity")).labels, TrialConfig().labels
        (('A (current)', 'B (with popularity)'), ('A', 'B'))
        """
        a, b = (letter if name == letter else f"{letter} ({name})" for letter, name in zip(NO_NAMES, self.names))
        return a, b

    @cached_property
    def segmented(self) -> Segments:
        """The declared attributes of searches."""
        return Segments.of(self.segments)

    @property
    def comparison(self) -> LiveMethod:
        """The method itself."""
        method = _parsed(self.method)
        assert isinstance(method, LiveMethod)
        return method

    @property
    def first_beliefs(self) -> Beliefs:
        """Beliefs about users before any click."""
        theta = rank_decay(self.k, self.eta) if self.theta is None else np.array(self.theta, np.float64)
        return Beliefs(theta, note="assumed at the start")


_parsed = cache(parse_method)


def _text(value: object) -> str:
    """The value of an option, for people."""
    match value:
        case None | ():
            return "none"
        case Rules() | Guards():
            default = asdict(type(value)())
            bounds = {name: most for name, most in asdict(value).items() if most != default[name]}
            return ", ".join(f"{name}={most}" for name, most in bounds.items()) or "none"
        case dict():
            parts = (one if isinstance(one, str) else "/".join(one) for one in value.values())
            return ", ".join(f"{name} ({part})" for name, part in zip(value, parts)) or "none"
        case tuple() if value and isinstance(value[0], tuple):
            lasting = ((share, "" if wait is None else f" for {span_text(wait)}") for share, wait in value)
            return ", ".join(f"{share:.10g}{time}" for share, time in lasting)
        case (str(), str()):
            return " and ".join(value)
        case (Metric(), *_):
            return ", ".join(map(_text, value))
        case Metric() if value.since is not None:
            return f"{replace(value, since=None)} since {time_text(value.since)}"
        case tuple():
            return f"({', '.join(map(_text, value))})"
        case float():
            return f"{value:.10g}"
    return str(value)
