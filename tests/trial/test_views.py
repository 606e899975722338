"""Searches that a unit repeats are views of one impression, of which the first counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import Clock
from ranktrial.analysis import estimate
from ranktrial.methods import LogOpt
from ranktrial.trial import ClickOutcome, Trial

THETA, ZETA = (1.0, 0.4), {"x": 0.7, "y": 0.2, "z": 0.5}
A, B = ["x", "y"], ["z", "x"]
DELTA = (0.7 + 0.4 * 0.2) - (0.5 + 0.4 * 0.7)  # 0: A and B are equally good
MINUTE = 60.0


@pytest.fixture
def trial(tmp_path: Path, clock: Clock) -> Iterator[Trial]:
    options: dict[str, Any] = {"k": 2, "seed": 5, "background": False, "timeout": 60.0, "clock": clock}
    with Trial.create(tmp_path / "t.db", method=LogOpt(bias="known"), theta=THETA, **options) as made:
        yield made


def chance(ranking: list[str], clicked: tuple[bool, ...]) -> float:
    """Probability of a click pattern on one view."""
    examined = [theta * ZETA[document] for theta, document in zip(THETA, ranking)]
    return float(np.prod([p if c else 1 - p for p, c in zip(examined, clicked)]))


@pytest.mark.slow
def test_impressions_seen_twice_are_worth_delta_exactly(trial: Trial, clock: Clock) -> None:
    """Every ranking, every click pattern on the first view and every one on the second: their mean value is Delta, here 0.

    All clicks together are worth 0.064: they are not those of a user who looks once.
    """
    patterns = list(itertools.product([False, True], repeat=2))
    probability, numbers = [], itertools.count()
    design = None
    for first, second in itertools.product(patterns, patterns):
        seen: set[int] = set()
        while design is None or seen != set(np.flatnonzero(design.weights).tolist()):
            unit = f"u{next(numbers)}"
            shown = trial.rank("q", A, B, unit=unit, wait=True)
            assert shown._impression is not None
            design, place = shown._impression.design, shown._impression.place
            again = place in seen
            seen.add(place)
            clock.now += MINUTE
            later = trial.rank("q", A, B, unit=unit)
            assert later.ranking == shown.ranking
            for view, clicked in ((shown, first), (later, second)):
                for document, yes in zip(view.ranking, clicked):
                    if yes:
                        trial.click(view.id, document)
            p = design.weights[place] * chance(shown.ranking, first) * chance(shown.ranking, second)
            probability.append(0.0 if again else p)
    log = trial.log()
    assert sum(probability) == pytest.approx(1, abs=1e-12)
    values = estimate(log, theta=THETA, estimator="ips").x
    assert probability @ values == pytest.approx(DELTA, abs=1e-12)
    report = trial.report()
    assert report.tallies["views after the first"] == len(log)
    assert report.tallies["clicks on later views"] > 0


def test_a_retry_is_the_same_view_and_a_later_one_is_not(trial: Trial, clock: Clock) -> None:
    first = trial.rank("q", A, B, unit="u", wait=True)
    clock.now += 30
    assert trial.rank("q", A, B, unit="u").id == first.id
    clock.now += 1
    later = trial.rank("q", A, B, unit="u")
    assert (later.ranking, later.fallback) == (first.ranking, None)
    assert later.id != first.id
    clock.now += 1
    assert trial.rank("q", A, B, unit="u").id == later.id  # a retry of the later view
    assert trial.click(later.id, first.ranking[0]).outcome == ClickOutcome.LATER_VIEW
    assert trial.click(first.id, first.ranking[1]).outcome == ClickOutcome.COUNTED  # in a window that was left open
    report = trial.report()
    assert (report.impressions, report.clicks) == (1, 1)
    assert report.tallies == {"views after the first": 1, "clicks on later views": 1}
    clock.now += MINUTE
    trial.rank("q", A, B, unit="u")
    assert trial.report().tallies["views after the first"] == 2


def test_later_pages_belong_to_the_view_before_them(trial: Trial, clock: Clock) -> None:
    lists = [*A, "v"], [*B, "w"]
    first = trial.rank("q", *lists, unit="u", size=1)
    clock.now += MINUTE
    assert trial.rank("q", *lists, unit="u", offset=1, size=1).id == first.id  # people scroll when they please
    later = trial.rank("q", *lists, unit="u", size=1)
    assert trial.rank("q", *lists, unit="u", offset=1, size=1).id == later.id != first.id


def test_a_later_view_in_another_process(trial: Trial, clock: Clock) -> None:
    first = trial.rank("q", A, B, unit="u", wait=True)
    with Trial.open(trial.store, background=False, timeout=60.0, clock=clock) as other:
        assert other.rank("q", A, B, unit="u", look=False, wait=True).id == first.id
    clock.now += MINUTE
    with Trial.open(trial.store, background=False, timeout=60.0, clock=clock) as other:
        later = other.rank("q", A, B, unit="u", look=False, wait=True)
    assert later.ranking == first.ranking
    assert trial.click(later.id, later.ranking[0]).outcome == ClickOutcome.LATER_VIEW


def test_searches_without_a_unit_are_impressions_of_their_own(trial: Trial, clock: Clock) -> None:
    for _ in range(3):
        shown = trial.rank("q", A, B)
        assert trial.click(shown.id, shown.ranking[0]).outcome == ClickOutcome.COUNTED
        clock.now += MINUTE
    assert (trial.report().impressions, trial.report().clicks) == (3, 3)
