"""Checks of events count units: one visitor is one visitor, whoever is excluded or erased takes their events along, and what
anybody can send makes nothing fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ranktrial.analysis.guardrails.status import Guardrail
from ranktrial.store.base import MarkRow
from ranktrial.store.marks import Mark, mark
from ranktrial.store.protocols import Store
from ranktrial.trial import Shown, Trial
from simulated_trial import Ticks

A, B = ["a", "b", "c", "d", "e", "f", "g", "h"], ["c", "e", "a", "b", "g", "d", "h", "f"]
PAGES, DUPLICATES, CLICKS = "the page shows what was drawn", "duplicate clicks", "clicks"
HONEST = 200


@pytest.fixture
def trial(store: Store) -> Iterator[Trial]:
    """Two hundred honest visitors, of whom every second clicks once."""
    options: dict[str, Any] = {"k": 3, "seed": 5, "background": False, "timeout": 60.0, "clock": Ticks()}
    with Trial.create(store, "t", own_store=False, **options) as made:
        for visitor in range(HONEST):
            shown = made.rank(f"q{visitor % 7}", A, B, unit=f"honest {visitor}", size=3)
            if visitor % 2:
                made.click(shown.id, shown.ranking[visitor % 3], wait=False)
        yield made


def checks(trial: Trial) -> dict[str, Guardrail]:
    return {one.name: one for one in trial.report().guardrails}


def statuses(trial: Trial) -> dict[str, tuple[str, float]]:
    found = checks(trial)
    return {name: (found[name].status, found[name].value) for name in (PAGES, DUPLICATES, CLICKS)}


def visits(trial: Trial, unit: str, pages: int) -> list[Shown]:
    return [trial.rank(f"q {unit} {page}", A, B, unit=unit, size=3) for page in range(pages)]


def replays(trial: Trial, unit: str, pages: int, public: bool) -> None:
    """Send one click of each page thirty times."""
    for shown in visits(trial, unit, pages):
        for _ in range(30):
            trial.click(shown.id, shown.ranking[0], wait=False, public=public)


def false_pages(trial: Trial, unit: str, pages: int, public: bool) -> None:
    """Say that pages were displayed otherwise."""
    for shown in visits(trial, unit, pages):
        trial.seen(shown.id, shown.ranking[::-1], public=public)


def false_positions(trial: Trial, unit: str, pages: int, public: bool) -> None:
    for shown in visits(trial, unit, pages):
        trial.click(shown.id, shown.ranking[0], position=3, wait=False, public=public)


def off_page(trial: Trial, unit: str, pages: int, public: bool) -> None:
    """Click on what would stand on a later page, which nobody asked for."""
    for shown in visits(trial, unit, pages):
        trial.click(shown.id, next(one for one in A if one not in shown.ranking), wait=False, public=public)


def junk(trial: Trial, unit: str, pages: int, public: bool) -> None:
    for shown in visits(trial, unit, pages):
        for number in range(5):
            trial.click(shown.id, f"junk {number}", wait=False, public=public)


def late(trial: Trial, unit: str, pages: int, public: bool) -> None:
    """Clicks of days after, which a key is trusted to tell."""
    for shown in visits(trial, unit, pages):
        trial.click(shown.id, shown.ranking[0], time=9e10, wait=False, public=public)


Deed = Callable[[Trial, str, int, bool], None]
DEEDS: dict[Deed, str] = {
    replays: DUPLICATES, false_pages: PAGES, false_positions: PAGES, off_page: PAGES, junk: CLICKS
}  # fmt: skip
every_deed = pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)


@pytest.mark.parametrize("deed", [*DEEDS, late], ids=lambda deed: deed.__name__)
def test_one_visitor_makes_nothing_fail(trial: Trial, deed: Deed) -> None:
    """With a key even, and as often as they like."""
    before = statuses(trial)
    deed(trial, "hostile", 40, False)
    found = checks(trial)[DEEDS.get(deed, CLICKS)]
    assert found.status in ("pass", "warn"), found.text
    trial.exclude("hostile", "sends what is not so")
    assert statuses(trial) == before
    trial.include("hostile", "not so bad")
    assert checks(trial)[found.name].value == found.value
    trial.erase("asked for it", unit="hostile")
    assert statuses(trial) == before


@pytest.mark.slow
@every_deed
def test_many_units_that_anybody_can_make_up_only_warn(trial: Trial, deed: Deed) -> None:
    for number in range(120):
        deed(trial, f"made up {number}", 1, True)
    assert checks(trial)[DEEDS[deed]].status == "warn"


@every_deed
def test_the_same_with_a_key_fails(trial: Trial, deed: Deed) -> None:
    """It is a fault of the site then, as in every third visit."""
    for number in range(120):
        deed(trial, f"visitor {number}", 1, False)
    assert checks(trial)[DEEDS[deed]].status == "fail"


def test_a_few_false_pages_on_a_site_that_sends_none(trial: Trial) -> None:
    for number in range(10):
        false_pages(trial, f"hostile {number}", 1, True)
    assert checks(trial)[PAGES].status == "warn"


def test_marks_are_kept_once(trial: Trial) -> None:
    shown = trial.rank("q", A, B, unit="u", size=3)
    for public in (True, False, True):
        for _ in range(3):
            trial.click(shown.id, shown.ranking[0], position=1, public=public)
            trial.seen(shown.id, shown.ranking, public=public)
    trial.store.flush()
    found = [row.kind for row in trial.store.rows(MarkRow, 1, 0)]
    expected = {mark(Mark.AT_RANK, True), mark(Mark.SEEN, True), mark(Mark.AGAIN, True), mark(Mark.AGAIN, False)}
    assert sorted(found) == sorted(expected)
    marked = trial.log().marked
    assert {kind for kind, units in marked.items() if len(units)} == expected
    assert all(len(units) == 1 for units in marked.values())
    np.testing.assert_array_equal(marked[mark(Mark.SEEN, True)], marked[mark(Mark.AGAIN, False)])
