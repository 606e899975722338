"""Harm that one client can do with the ids it was given: little, and known to be one client's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ranktrial.analysis.guardrails.status import Guardrail
from ranktrial.report.schema import Report
from ranktrial.schema import LONGEST_TEXT
from ranktrial.store.base import REFUSED, ClickRow
from ranktrial.trial import ClickOutcome, Shown, Trial
from ranktrial.trial.clicks import MOST_OTHERS
from simulated_trial import Ticks, World

WORLD = World.make(queries=15)
A, B = WORLD.a["q1"], WORLD.b["q1"]
K = 5
OPTIONS: dict[str, Any] = {"k": K, "seed": 1, "background": False, "timeout": 60.0, "method": "AB()"}


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with Trial.create(tmp_path / "t.db", clock=Ticks(), **OPTIONS) as made:
        WORLD.run(made, 300, seed=1)
        yield made


def clicks_of(report: Report) -> Guardrail:
    return next(one for one in report.guardrails if one.name == "clicks")


def show(trial: Trial, unit: str) -> Shown:
    return trial.rank("q1", A, B, unit=unit, wait=True)


def junk(trial: Trial, shown: Shown, documents: int, text: str = "junk {}") -> set[ClickOutcome]:
    told = trial.judge.take([trial.judge.click(shown.id, text.format(number)) for number in range(documents)])
    trial.store.flush()
    return {one.outcome for one in told}


def test_one_visitor_cannot_make_a_trial_untrustworthy(trial: Trial) -> None:
    """D12: one request of 300 junk documents made every later verdict begin with "Not to be trusted"."""
    before = trial.report()
    assert junk(trial, show(trial, "vandal"), 300) == {ClickOutcome.NOT_SHOWN}
    report = trial.report()
    assert clicks_of(report).status == "pass"
    assert report.clicks == before.clicks
    assert report.tallies["clicks on what was not shown"] == K + MOST_OTHERS
    assert report.tallies[REFUSED] == 300 - K - MOST_OTHERS


def test_many_visitors_with_strange_clicks_do(trial: Trial) -> None:
    """As where a page sends another id than the one that belongs to what it shows."""
    for number in range(30):
        junk(trial, show(trial, f"visitor {number}"), 1)
    told = clicks_of(trial.report())
    assert told.status == "fail"
    assert "from 30 of " in told.text


@pytest.mark.parametrize("known", [True, False])
def test_what_one_id_can_make_a_store_grow_is_bounded(trial: Trial, tmp_path: Path, known: bool) -> None:
    """D12: 60 requests grew the store by 324 MB. Also after a restart, and by clicks on an impression that is not stored."""
    with Trial.create(tmp_path / "elsewhere.db", clock=Ticks(), **OPTIONS) as elsewhere:  # of the same secret
        shown = show(trial if known else elsewhere, "vandal")
    expected = {ClickOutcome.NOT_SHOWN if known else ClickOutcome.WAITING}
    before = sum(1 for _ in trial.store.rows(ClickRow, 1, 0))
    for request in range(5):
        assert junk(trial, shown, 250, f"{request} {{}} ".ljust(LONGEST_TEXT - 10, "x")) == expected
        with Trial.open(trial.store, background=False, timeout=60.0, clock=Ticks()) as again:
            assert junk(again, shown, 250, f"{request} {{}}") == expected
    assert sum(1 for _ in trial.store.rows(ClickRow, 1, 0)) == before + K + MOST_OTHERS
    assert clicks_of(trial.report()).status == "pass"


def test_junk_does_not_displace_clicks_on_the_page(trial: Trial) -> None:
    shown = show(trial, "visitor")
    junk(trial, shown, 300)
    before = trial.report().clicks
    for document in shown.ranking[:K]:
        assert trial.click(shown.id, document).outcome == ClickOutcome.COUNTED
    assert trial.report().clicks == before + K
