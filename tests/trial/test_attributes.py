"""Segments of a live trial: given with a search, stored with its impression, counted where they are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live_server import A, B
from ranktrial.trial import Trial
from store.kinds import KINDS, Kind

OPTIONS: dict[str, Any] = {"k": 5, "seed": 1, "background": False, "timeout": 60.0}
DEVICES = {"device": ["phone", "desktop"]}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_search_keeps_the_segment_it_was_given_first(tmp_path: Path, kind: str) -> None:
    place: Kind = KINDS[kind](tmp_path)
    store = place.open()
    with Trial.create(store, segments=DEVICES, **OPTIONS) as trial:
        for at, segment in enumerate([{"device": "phone"}, {"device": "desktop"}, {"device": "fridge"}, {}, None, "x"]):
            shown = trial.rank("q", A, B, unit=f"u{at}", wait=True, segment=segment)  # type: ignore[arg-type]
            assert shown.fallback is None
        again = trial.rank("q", A, B, unit="u0", wait=True, segment={"device": "desktop"})  # a retry
        assert again.fallback is None
        log = trial.log()
        assert log.levels("device").tolist() == [1, 2, 0, 0, 0, 0]
        assert log.take(np.array([1, 0])).levels("device").tolist() == [2, 1]
        assert log.first(2).compact().levels("device").tolist() == [1, 2]
        told = {what: n for what, n in trial.report().tallies.items() if what.startswith("searches of another segment")}
        assert told == {
            "searches of another segment: device is not a declared value": 1,
            "searches of another segment: device is not given": 3,
            "searches of another segment: what is given is not declared": 1,
        }
    with Trial.open(store, background=False) as trial:
        assert trial.log().levels("device").tolist() == [1, 2, 0, 0, 0, 0]
    store.close()


def test_without_declared_segments_nothing_is_stored_or_said(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        trial.rank("q", A, B, unit="u", wait=True)
        assert not trial.log().attributes
        assert len(trial.log().segment) == 0
        trial.rank("q", A, B, unit="v", wait=True, segment={"device": "phone"})
        assert trial.report().tallies == {"searches of another segment: what is given is not declared": 1}


def test_head_and_tail_are_decided_before_a_search_is_shown(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", segments={"query": "head/tail"}, **OPTIONS) as trial:
        for number in range(1_200):
            trial.rank("often" if number % 2 else f"rare {number}", A, B, unit=f"u{number}")
        trial.store.flush()
        levels, log = trial.log().levels("query"), trial.log()
        often = np.array([log.queries[q] == "often" for q in log.asked])
        assert set(levels[:1_000].tolist()) == {0}
        assert set(levels[1_000:][often[1_000:]].tolist()) == {1}
        assert set(levels[1_000:][~often[1_000:]].tolist()) == {2}
