"""Events with actions and values: what becomes of each, what is stored, exactly, in every store."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from clocks import DAY, Clock
from live_server import A, B
from ranktrial.metrics import Carts, Events, Orders, Revenue
from ranktrial.store.base import EventRow
from ranktrial.trial import ClickOutcome, Trial
from store.kinds import Kind

START = 1_794_830_400.0
OPTIONS: dict[str, Any] = {"k": 3, "seed": 1, "background": False, "timeout": 60.0}
METRICS = [Carts(window="1d"), Orders(window="7d"), Revenue(window="7d")]


def shop(path: Path | Any, clock: Clock | None = None, **options: Any) -> Trial:
    return Trial.create(path, **{**OPTIONS, "metrics": METRICS, "clock": clock or Clock(START), **options})


def rows(trial: Trial) -> list[tuple[str, str, int]]:
    trial.store.flush()
    return [(row.document, row.action, row.amount) for row in trial.store.rows(EventRow, trial.state.version.id, 0)]


def test_values_are_kept_exactly_and_each_event_once(kind: Kind) -> None:
    store = kind.open()
    with shop(store) as trial:
        shown = trial.rank("q", A, B, unit="u", wait=True)
        first, second, third = shown.ranking[:3]
        told = [
            trial.event(shown.id, first, "order", 39.90, event_id="4711"),
            trial.event(shown.id, first, "order", "39.90", event_id="4711"),  # again: replaces nothing
            trial.event(shown.id, first, "order", 5, event_id="4711"),
            trial.event(shown.id, second, "order", Decimal("0.1"), event_id="4711"),  # another line of the same order
            trial.event(shown.id, first, "order", "-39.90", event_id="4711 back"),
            trial.event(shown.id, third, "order", 1995, wait=False),  # in cents, without an id: once
            trial.event(shown.id, third, "order", 7),
            trial.event(shown.id, third, "cart"),
            trial.event(shown.id, third, "cart", event_id="\0\ud800"),
        ]
        assert {one.outcome for one in told} == {ClickOutcome.COUNTED}
        assert [one.rank for one in told[:4]] == [1, 1, 1, 2]
        assert sorted(rows(trial)) == sorted(
            [
                (first, "order", 39_900_000),
                (second, "order", 100_000),
                (first, "order", -39_900_000),
                (third, "order", 1_995_000_000),
                (third, "cart", 0),
                (third, "cart", 0),
            ]
        )
        assert trial.report().clicks == 0  # an order is no click
    store.close()


def test_what_becomes_of_events(tmp_path: Path) -> None:
    clock = Clock(START)
    with shop(tmp_path / "t.db", clock) as trial:
        shown = trial.rank("q", A, B, unit="u", wait=True)
        document, later = shown.ranking[0], shown.ranking[3]
        fallback = trial.rank("q", [None], B)
        outcomes = [
            trial.event(id, on, action, 1.0, event_id=str(at), time=START + after).outcome.value
            for at, (id, on, action, after) in enumerate(
                [
                    (shown.id, document, "order", 6.9 * DAY),
                    (shown.id, document, "cart", 0.9 * DAY),
                    (shown.id, document, "cart", 1.1 * DAY),  # counts for no metric any more
                    (shown.id, document, "order", 7.1 * DAY),  # beyond the longest window
                    (shown.id, document, "order", -3_600),
                    (shown.id, document, "signup", 10),
                    (shown.id, later, "order", 10),
                    (shown.id, "sku-99", "order", 10),
                    (shown.id, "x" * 2_000, "order", 10),
                    (shown.id[:-1] + "A", document, "order", 10),
                    ("", document, "order", 10),
                    (fallback.id, A[0], "order", 10),
                ]
            )
        ]
        assert outcomes == [
            "counted", "counted", "late", "late", "early", "not measured", "later page", "not shown", "not shown",
            "not ours", "not ours", "fallback",
        ]  # fmt: skip
        assert [action for _, action, _ in rows(trial)] == ["order", "cart", "cart", "signup"]
        clock.now += 60
        again = trial.rank("q", A, B, unit="u", wait=True)
        assert trial.event(again.id, document, "order").outcome == ClickOutcome.LATER_VIEW
        tallies = trial.report().tallies
        told = {what: n for what, n in tallies.items() if what.startswith("events")}
        assert told == {
            "events after the longest window": 1,
            "events after their window": 1,
            "events before their impression": 1,
            "events of actions that no metric counts": 1,
            "events off the drawn page": 1,
            "events on fallbacks": 1,
            "events on later views": 1,
            "events on what was not shown": 2,
            "events with an id that is not ours": 2,
        }


def test_an_event_may_come_before_its_impression_is_stored(tmp_path: Path) -> None:
    with shop(tmp_path / "one.db") as one, shop(tmp_path / "two.db") as two:
        shown = one.rank("q", A, B, unit="u", wait=True)  # the same ids: the trials have the same seed
        assert two.event(shown.id, shown.ranking[0], "order", 3).outcome == ClickOutcome.WAITING
        two.rank("q", A, B, unit="u", wait=True)
        assert rows(two) == [(shown.ranking[0], "order", 3_000_000)]


def test_events_of_the_share_that_takes_no_part_count_for_nothing(tmp_path: Path) -> None:
    with shop(tmp_path / "t.db", share=0.0) as trial:
        shown = trial.rank("q", A, B, unit="u")
        assert trial.event(shown.id, A[0], "order").outcome == ClickOutcome.OUTSIDE
        assert rows(trial) == []


def test_without_metrics_of_events_they_are_kept_for_the_click_window(tmp_path: Path) -> None:
    clock = Clock(START)
    with shop(tmp_path / "t.db", clock, metrics=(), click_window=60.0) as trial:
        shown = trial.rank("q", A, B, unit="u", wait=True)
        assert trial.event(shown.id, shown.ranking[0], "order").outcome == ClickOutcome.UNMEASURED
        clock.now += 62
        assert trial.event(shown.id, shown.ranking[1], "order").outcome == ClickOutcome.LATE
        assert len(rows(trial)) == 1
    signup = Events(actions=("signup",), window="3d")
    with shop(tmp_path / "t.db", clock, metrics=[signup]) as trial:
        assert trial.config.event_windows == {"signup": 3 * DAY}
        assert trial.event(shown.id, shown.ranking[1], "signup").outcome == ClickOutcome.COUNTED


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (("Order", 1), "action is 'Order', must be 1 to 40 lower-case letters"),
        (("click", None), "clicks are not events with a value"),
        (("order", "39,90"), "value is '39,90', must be a number such as 39.90"),
        (("order", float("nan")), "value is nan, must be a number"),
        (("order", 1e11), "must be a number such as 39.90, from -10,000,000,000"),
        (("order", True), "value is True"),
        (("order", [1]), r"value is \[1\]"),
        (("order", -5), "value is -5: a refund needs an event_id"),
    ],
)
def test_what_cannot_be_an_event_is_refused_and_named(tmp_path: Path, event: tuple[Any, Any], says: str) -> None:
    with shop(tmp_path / "t.db") as trial:
        shown = trial.rank("q", A, B, unit="u", wait=True)
        with pytest.raises(ValueError, match=says):
            trial.event(shown.id, shown.ranking[0], *event)
        assert rows(trial) == []


def test_erased_searches_take_their_events_with_them(tmp_path: Path) -> None:
    clock = Clock(START)
    with shop(tmp_path / "t.db", clock) as trial:
        shown = trial.rank("q", A, B, unit="u", wait=True)
        trial.event(shown.id, shown.ranking[0], "order", 3)
        clock.now += 60
        trial.erase("asked for it", unit="u")
        assert rows(trial) == []
        assert trial.event(shown.id, shown.ranking[0], "order", 3).outcome == ClickOutcome.VOID
        assert rows(trial) == []


def test_a_report_has_what_was_sold_to_the_cent(tmp_path: Path) -> None:
    clock = Clock(START)
    metrics = [Orders(window="1h", role="primary"), Revenue(window="1h", cap=50), Carts(window="1h")]
    with shop(tmp_path / "t.db", clock, metrics=metrics) as trial:
        for number in range(60):
            clock.now += 1
            shown = trial.rank("q", A, B, unit=f"u{number}")
            first, second = shown.ranking[:2]
            if number % 2 == 0:
                trial.click(shown.id, first, wait=False)
            if number % 6 == 0:
                trial.event(shown.id, first, "order", 39.90, event_id=f"{number}", wait=False)
                trial.event(shown.id, first, "order", 39.90, event_id=f"{number}", wait=False)
            if number % 12 == 0:
                trial.event(shown.id, first, "order", -39.90, event_id=f"{number} back", wait=False)
            if number % 30 == 0:
                trial.event(shown.id, second, "order", "100", wait=False)  # without a click; capped
            trial.event(shown.id, first, "cart", time=clock.now + 7_200, wait=False)  # too late
        clock.now += 7_200
        found = {row.title: row for row in trial.report().metrics}
    assert {title: (row.value * 60, row.waiting) for title, row in found.items()} == {
        "orders": (pytest.approx(10 + 2), 0),
        "revenue": (pytest.approx((10 - 5) * 39.90 + 2 * 50), 0),
        "carts": (0, 0),
        "clicks": (pytest.approx(30), 0),
    }
    assert found["orders"].direct == pytest.approx(2 / 12)
