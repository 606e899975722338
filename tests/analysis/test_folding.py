"""Statistics of a log that grows: what is kept is what would be worked out anew, and is given up when it is no longer true."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cut_logs import THETA, personal, shared
from ranktrial.analysis import estimate
from ranktrial.analysis.guardrails.draws import draws_against_chances
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.log import Log, folding
from ranktrial.log.folding import Kept, Statistic, fold


def growing(log: Log, kept: Kept, first: int) -> Log:
    """The first impressions of a log, as a source of logs makes them that keeps what was found."""
    part = log.take(slice(0, first))
    object.__setattr__(part, "kept", kept)
    return part


def arms(log: Log) -> tuple[IntArray, FloatArray]:
    """A's list, B's list or another one that was shown, and the probabilities of these for each design."""
    shares = log.ab_shares
    return np.where(log.arm == 0, 0, np.where(log.arm > 0, 1, 2)), np.column_stack([1 - shares.sum(1), shares])


def sample_ratio(log: Log) -> list[float]:
    found = fold(log, draws_against_chances(log, "sample ratio", 3, arms))[0]
    return [found.p, *found.seen, *found.expected, *found.spread]


def ab(log: Log) -> list[float]:
    found = estimate(log, estimator="adjusted", cross_fit="past")
    assert found.at is not None
    return [*found.at, *found.x, found.delta, found.standard_error]


def rank_aware(log: Log) -> list[float]:
    found = estimate(log, theta=THETA, cross_fit="past", uncovered="leave out")
    return [*found.x, found.delta, found.standard_error, found.effective_clicks]


@pytest.mark.parametrize("numbers", [sample_ratio, ab, rank_aware])
@pytest.mark.parametrize("make", [shared, personal])
def test_statistics_are_the_same_however_a_log_is_cut_and_grows(
    make: Callable[[], Log], numbers: Callable[[Log], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make()
    whole = {first: numbers(log.take(slice(0, first))) for first in (500, 640, 900)}
    for size in (900, 64, 7):
        monkeypatch.setattr(folding, "CHUNK", size)
        monkeypatch.setattr(folding, "SHARED", 1)
        kept = Kept(grows=True)
        for first, expected in whole.items():
            np.testing.assert_allclose(numbers(growing(log, kept, first)), expected, rtol=1e-9, atol=1e-12)


def counting(beliefs: tuple[int, ...] | None = ()) -> tuple[Statistic[int, int], list[int]]:
    """Number of clicks, and the first impression of each chunk that was looked at."""
    looked: list[int] = []

    def contribution(rows: slice, part: Log, before: int | None) -> int:
        looked.append(rows.start)
        return (before or 0) + int(part.clicks.sum())

    return Statistic("clicks", beliefs, contribution, lambda parts: parts[-1]), looked


def test_only_what_is_new_is_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "CHUNK", 100)
    log, kept = personal(), Kept(grows=True)

    def looked_at(part: Log, beliefs: tuple[int, ...] | None = ()) -> list[int]:
        statistic, looked = counting(beliefs)
        assert fold(part, statistic) == [part.clicks.sum()]
        return looked

    assert looked_at(growing(log, kept, 450)) == [0, 100, 200, 300, 400]
    assert looked_at(growing(log, kept, 450)) == []
    assert looked_at(growing(log, kept, 470)) == [400]  # the last chunk has grown
    assert looked_at(growing(log, kept, 620)) == [400, 500, 600]
    late = growing(log, kept, 620)
    late.clicks[250, 0] = ~late.clicks[250, 0]
    assert looked_at(late) == [200, 300, 400, 500, 600]  # a late click
    assert looked_at(late.take(slice(None))) == [0, 100, 200, 300, 400, 500, 600]  # a log of its own
    again = growing(late, kept, 620)
    assert looked_at(again) == []
    assert looked_at(again, (1,)) == [0, 100, 200, 300, 400, 500, 600]  # other beliefs
    assert looked_at(again, (1,)) == []
    assert looked_at(again, None) == looked_at(again, None) == [0, 100, 200, 300, 400, 500, 600]


def test_a_log_is_pickled_without_what_it_keeps() -> None:
    log = growing(shared(), Kept(grows=True), 300)
    fold(log, counting()[0])
    again = pickle.loads(pickle.dumps(log))
    assert (len(again), again.kept.grows) == (300, False)
    assert fold(again, counting()[0]) == [log.clicks.sum()]
    np.testing.assert_array_equal(again.clicks, log.clicks)


def test_fits_are_made_again_when_the_first_impressions_or_the_beliefs_are_others() -> None:
    log, kept = personal(), Kept(grows=True)
    made: list[Any] = []

    def fit(first: Log) -> int:
        made.append(len(first))
        return len(made)

    for part, first, beliefs, new in (
        (log, 500, (1,), True), (log, 500, (1,), False), (log, 510, (1,), True), (log, 510, (2,), True),
        (log, 510, (1,), False),
    ):  # fmt: skip
        before = len(made)
        kept.fitted(growing(part, kept, 600), first, "a fit", beliefs, fit)
        assert (len(made) > before) is new
    other = growing(log, kept, 600)
    other.clicks[3, 0] = ~other.clicks[3, 0]
    assert kept.fitted(other, 510, "a fit", (1,), fit) == 4
    assert kept.fitted(other, 510, "a fit", (1,), fit) == 4
