"""Metrics of a trial, values of an impression, as value objects that print as written and parse back.

| metric | value of an impression |
|---|---|
| ``Clicks()`` | its clicks |
| ``Carts(window="1d")``, ``Orders(window="7d")`` | carts and orders of its results |
| ``Revenue(window="7d", cap=500)`` | what was paid for them |
| ``Dwell(seconds=30)`` | results that visitors stayed on for so long |
| ``Events(actions=("signup",))`` | any other actions, by number or amount |
| ``Abandonment()`` | 1 if nothing was clicked |
| ``FirstClickRank()`` | rank of the first click |
| ``TimeToFirstClick(limit="1min")`` | seconds until it |
| ``Reformulation(window="5min")`` | 1 if the visitor searched again for something else |
| ``SessionSuccess(window="30min")`` | 1 if the visitor clicked here or on a later search |

The first six are *values of results*: a click leads to them, so that the click model can estimate them. The others are *page
metrics*, which only A/B traffic can tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Literal

from ranktrial import checks
from ranktrial.spelling import parsed_object, spelled_value
from ranktrial.texts import shown
from ranktrial.times import LATEST, UNITS, span

LONGEST_NAME = 40
ACTION = re.compile("[a-z0-9_-]{1,40}")
CLICK = "click"  # the action of a click, which has no value of its own
MILLIONTHS = 1_000_000  # amounts are whole numbers of millionths of the currency unit
LARGEST_AMOUNT = 10**10  # of one event: sums of hundreds of them fit into 64 bits
Role = Literal["primary", "secondary", "guard"]
ROLES = "primary", "secondary", "guard"


@dataclass(frozen=True, repr=False, kw_only=True)
class Metric:
    """Metric of a trial: the value of an impression.

    Attributes:
        better: Whether "more" or "less" of it is better.
        role: The "primary" metric decides, a "guard" warns of harm, "secondary" ones are looked at beside.
        tolerance: Share of A's value by which B may be worse, for a guard.
        since: Seconds since 1970 before which impressions do not count: when the metric was added to a running trial.
        name: What people call it; its own name by default.

    >>> Orders(window=604_800, role="primary")
    Orders(window="7d", role="primary")
    >>> parse_metric("Revenue(window='168h', cap=500.0)")
    Revenue(window="7d", cap=500)
    """

    registry: ClassVar[dict[str, type[Metric]]] = {}
    thing: ClassVar[str] = ""  # its own name
    of_mean: ClassVar[bool] = False  # a rank or a time, of which there is no "more" or "fewer"
    of_results: ClassVar[bool] = False  # a value of results, that clicks lead to
    length: ClassVar[str] = ""  # the option, a span of time, after which its value does not change any more

    better: str = "more"
    role: Role = "secondary"
    tolerance: float | None = None
    since: float | None = None
    name: str = ""

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if not abstract:
            Metric.registry[cls.__name__] = cls

    def __post_init__(self) -> None:
        checks.one_of("better", self.better, ("more", "less"))
        checks.one_of("role", self.role, ROLES)
        if self.tolerance is not None:
            if self.role != "guard":
                raise ValueError(
                    f"tolerance is {self.tolerance!r}, but the role is {self.role!r}: only a guard has one"
                )
            checks.between("tolerance", self.tolerance, 0, 1)
        if self.since is not None:
            checks.between("since", self.since, 0, LATEST)
        if not isinstance(self.name, str) or self.name != shown(self.name, LONGEST_NAME):
            raise ValueError(
                f"name is {self.name!r}, must have at most {LONGEST_NAME} characters, none of them a control character"
            )
        if self.length:
            object.__setattr__(self, self.length, _span_text(span(self.length, getattr(self, self.length))))

    @property
    def title(self) -> str:
        """Name of it in reports."""
        return self.name or self.thing

    @property
    def settles_after(self) -> float:
        """Seconds after an impression until its value does not change any more."""
        return span(self.length, getattr(self, self.length)) if self.length else 0.0

    @property
    def sums_amounts(self) -> bool:
        """True if amounts are added up, false if events are counted."""
        return False

    @property
    def sign(self) -> int:
        """1 if more is better, -1 if less is."""
        return 1 if self.better == "more" else -1

    def compared(self, much: str, more: bool) -> str:
        """Phrase for one ranker against the other, as in "4.1% more orders".

        >>> Orders().compared("4.1%", True), Revenue().compared("", False), FirstClickRank().compared("3%", False)
        ('4.1% more orders', 'less revenue', 'a rank of the first click 3% smaller')
        """
        if self.of_mean:
            than = "larger" if more else "smaller"
            return f"a {self.title} {much} {than}" if much else f"a {than} {self.title}"
        than = "more" if more else "less" if self.sums_amounts else "fewer"
        return " ".join(filter(None, [much, than, self.title]))

    @property
    def occasions(self) -> str:
        """Name of what must have happened a number of times before an interval is believed.

        >>> Orders().occasions, Clicks().occasions, Abandonment().occasions, FirstClickRank().occasions
        ('searches with orders', 'clicks', 'searches without a click', 'searches')
        """
        if self.of_mean:
            return "searches"
        return f"searches with {self.title}" if self.of_results else self.thing

    @property
    def unit(self) -> str:
        """Name of the unit of its differences: "orders per search"."""
        return f"in the {self.title}" if self.of_mean else f"{self.title} per search"

    def counts_as(self, other: Metric) -> bool:
        """True if it gives every impression the same value as another one: role, name and direction do not matter."""
        bare: dict[str, Any] = {"better": "more", "role": "secondary", "tolerance": None, "since": None, "name": ""}
        return replace(self, **bare) == replace(other, **bare)

    def __repr__(self) -> str:
        known = sorted(fields(self), key=lambda f: f.name in _COMMON)  # its own options first
        options = [
            f"{f.name}={spelled_value(getattr(self, f.name))}"
            for f in known
            if f.name == "window" or getattr(self, f.name) != f.default
        ]
        return f"{type(self).__name__}({', '.join(options)})"


_COMMON = {f.name for f in fields(Metric)}


@dataclass(frozen=True, repr=False, kw_only=True)
class Clicks(Metric):
    """Clicks, which every trial has: the primary metric where no other is.

    >>> Clicks(role="guard", tolerance=0.02)
    Clicks(role="guard", tolerance=0.02)
    """

    thing: ClassVar[str] = "clicks"
    of_results: ClassVar[bool] = True

    @property
    def occasions(self) -> str:
        return self.thing


@dataclass(frozen=True, repr=False, kw_only=True)
class Windowed(Metric, abstract=True):
    """Value that is settled some time after an impression.

    Attributes:
        window: Time after an impression that counts: seconds, or a text such as "7d".
    """

    length: ClassVar[str] = "window"
    window: float | str = "1d"


@dataclass(frozen=True, repr=False, kw_only=True)
class EventMetric(Windowed, abstract=True):
    """Value of what visitors did with results after they saw them.

    Attributes:
        window: Time after an impression in which an event counts.
        cap: The most that one result of one impression adds; None for no limit.
    """

    of_results: ClassVar[bool] = True
    action: ClassVar[str] = ""  # that counts, where it is one
    cap: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cap is not None and not checks.number("cap", self.cap) > 0:
            raise ValueError(f"cap is {self.cap!r}, must be above 0 (None for no limit)")

    @property
    def of_actions(self) -> tuple[str, ...]:
        """Actions that count."""
        return (self.action,)

    @property
    def least_amount(self) -> float | None:
        """Smallest amount of an event that is counted; None for any but a refund."""
        return None


@dataclass(frozen=True, repr=False, kw_only=True)
class Carts(EventMetric):
    """Results put into the cart: events with the action ``cart``.

    >>> Carts(window=3600).of_actions, Carts().settles_after
    (('cart',), 86400.0)
    """

    thing: ClassVar[str] = "carts"
    action: ClassVar[str] = "cart"


@dataclass(frozen=True, repr=False, kw_only=True)
class Orders(EventMetric):
    """Results that were ordered: events with the action ``order``. A refund takes money back, not the order.

    >>> Orders(role="primary")
    Orders(window="7d", role="primary")
    """

    thing: ClassVar[str] = "orders"
    action: ClassVar[str] = "order"
    window: float | str = "7d"


@dataclass(frozen=True, repr=False, kw_only=True)
class Revenue(EventMetric):
    """Amounts of orders, less refunds: events with the action ``order``.

    >>> Revenue(window="168h", cap=500)
    Revenue(window="7d", cap=500)
    """

    thing: ClassVar[str] = "revenue"
    action: ClassVar[str] = "order"
    window: float | str = "7d"

    @property
    def sums_amounts(self) -> bool:
        return True


@dataclass(frozen=True, repr=False, kw_only=True)
class Dwell(EventMetric):
    """Results that a visitor stayed on: events with the action ``dwell``, whose amount is in seconds.

    Attributes:
        seconds: The fewest seconds that count.

    >>> Dwell(seconds=10)
    Dwell(window="1d", seconds=10)
    """

    thing: ClassVar[str] = "long visits"
    action: ClassVar[str] = "dwell"
    cap: float | None = 1
    seconds: float = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least("seconds", self.seconds, 0)

    @property
    def least_amount(self) -> float | None:
        return self.seconds


@dataclass(frozen=True, repr=False, kw_only=True)
class Events(EventMetric):
    """Events of any actions, counted or with their amounts.

    Attributes:
        actions: What counts.
        amount: Whether amounts are added up.

    >>> Events(actions=("signup", "trial")).title
    'signup or trial'
    """

    actions: Sequence[str] = ()
    amount: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given = (self.actions,) if isinstance(self.actions, str) else tuple(self.actions)
        for action in given:
            checked_action(action)
        if not given or len(set(given)) < len(given):
            raise ValueError(f"actions are {given!r}, must be at least one, each once")
        object.__setattr__(self, "actions", given)
        checks.one_of("amount", self.amount, (False, True))

    @property
    def title(self) -> str:
        return self.name or shown(" or ".join(self.actions), LONGEST_NAME)

    @property
    def of_actions(self) -> tuple[str, ...]:
        return tuple(self.actions)

    @property
    def sums_amounts(self) -> bool:
        return self.amount


@dataclass(frozen=True, repr=False, kw_only=True)
class Abandonment(Metric):
    """Searches without any click.

    >>> Abandonment(role="guard", tolerance=0.02).better
    'less'
    """

    thing: ClassVar[str] = "searches without a click"
    better: str = "less"


@dataclass(frozen=True, repr=False, kw_only=True)
class FirstClickRank(Metric):
    """Rank of the first click from the top; one below the last rank where nothing was clicked.

    >>> FirstClickRank().title
    'rank of the first click'
    """

    thing: ClassVar[str] = "rank of the first click"
    of_mean: ClassVar[bool] = True
    better: str = "less"


@dataclass(frozen=True, repr=False, kw_only=True)
class TimeToFirstClick(Metric):
    """Seconds until the first click, ``limit`` where there was none by then. Needs times of clicks.

    >>> TimeToFirstClick(limit=90)
    TimeToFirstClick(limit="90s")
    """

    thing: ClassVar[str] = "time to the first click"
    of_mean: ClassVar[bool] = True
    length: ClassVar[str] = "limit"
    better: str = "less"
    limit: float | str = "1min"


@dataclass(frozen=True, repr=False, kw_only=True)
class Reformulation(Windowed):
    """Searches after which the same visitor's next one, within the window, is for something else.

    >>> Reformulation().better, Reformulation().settles_after
    ('less', 300.0)
    """

    thing: ClassVar[str] = "searches put differently"
    better: str = "less"
    window: float | str = "5min"


@dataclass(frozen=True, repr=False, kw_only=True)
class SessionSuccess(Windowed):
    """Searches with a click on them, or on a later search of the same visitor within the window.

    >>> SessionSuccess(window="1h", name="sessions")
    SessionSuccess(window="1h", name="sessions")
    """

    thing: ClassVar[str] = "successful sessions"
    window: float | str = "30min"


def millionths(value: Any) -> int:
    """Amount of an event in millionths: a number or a decimal text, rounded at the sixth place behind the point.

    >>> millionths(39.9), millionths("-39.90"), millionths(Decimal("0.0000005"))
    (39900000, -39900000, 0)
    """
    value = value.item() if hasattr(value, "item") else value  # of NumPy
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
            raise InvalidOperation
        exact = Decimal(str(value).strip())
        if not abs(exact) <= LARGEST_AMOUNT:
            raise InvalidOperation
    except InvalidOperation:
        raise ValueError(
            f"value is {value!r}, must be a number such as 39.90, from {-LARGEST_AMOUNT:,} to {LARGEST_AMOUNT:,}"
        ) from None
    return int((exact * MILLIONTHS).to_integral_value())


def checked_action(action: Any) -> str:
    """An action of events: 1 to 40 lower-case letters, digits, ``_`` or ``-``, not ``click``."""
    if not isinstance(action, str) or not ACTION.fullmatch(action):
        raise ValueError(f"action is {action!r}, must be 1 to 40 lower-case letters, digits, _ or -")
    if action == CLICK:
        raise ValueError('action is "click": clicks are not events with a value')
    return action


def parse_metric(text: str | Metric) -> Metric:
    """The metric that a text names.

    >>> parse_metric("Orders( window = '7d' )"), parse_metric("Clicks")
    (Orders(window="7d"), Clicks())
    """
    if isinstance(text, Metric):
        return text
    names = sorted(Metric.registry)
    return parsed_object(text, Metric.registry.get, names, what="a metric", example='Orders(window="7d")')


def measured(metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """All metrics of a report, clicks among them, each name once, exactly one of them primary: clicks if no other is.

    >>> measured([Orders(window="7d")]), measured([Orders(role="primary")])
    ((Clicks(role="primary"), Orders(window="7d")), (Orders(window="7d", role="primary"), Clicks()))
    """
    found = list(metrics)
    if not any(isinstance(metric, Clicks) for metric in found):
        found.append(Clicks())
    titles = [metric.title for metric in found]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise ValueError(f"two metrics are called {twice!r}: give one another name")
    primary = [metric for metric in found if metric.role == "primary"]
    if len(primary) > 1:
        raise ValueError(f"primary metrics are {' and '.join(map(str, primary))}: only one can decide")
    if not primary:
        free = [metric for metric in found if isinstance(metric, Clicks) and metric.role != "guard"]
        if not free:
            guard = next(metric for metric in found if isinstance(metric, Clicks))
            raise ValueError(f"{guard} is a guard, and no other metric is primary: one must decide")
        found[found.index(free[0])] = primary_clicks = replace(free[0], role="primary")
        primary = [primary_clicks]
    return (*primary, *(metric for metric in found if metric is not primary[0]))


def _span_text(seconds: float) -> str:
    """A span of time in the largest unit of which it is a whole number.

    >>> _span_text(604_800.0), _span_text(90.0), _span_text(0.5)
    ('7d', '90s', '0.5s')
    """
    for unit in ("d", "h", "min"):
        if seconds and not seconds % UNITS[unit]:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{seconds:.10g}s"
