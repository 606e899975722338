"""Segments of a live trial: given with a search, stored with its impression, counted where they are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live_server import A, B
from ranktrial.trial import Trial
from simulated_trial import Ticks, World
from store.kinds import Kind

OPTIONS: dict[str, Any] = {"k": 5, "seed": 1, "background": False, "timeout": 60.0}
DEVICES = {"device": ["phone", "desktop"]}


def test_a_search_keeps_the_segment_it_was_given_first(kind: Kind) -> None:
    store = kind.open()
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


def test_head_and_tail_go_on_where_they_were_when_a_trial_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Trial.create(path, segments={"query": "head/tail"}, **OPTIONS) as trial:
        for number in range(1_100):
            trial.rank("often" if number % 3 else f"rare {number}", A, B, unit=f"u{number}")
        first = trial.rank("socks", A, B, unit="v", wait=True)  # of the tail
    for background in (True, False):  # counted when it is opened, or with the first search
        with Trial.open(path, background=background) as trial:
            again = trial.rank("socks", A, B, unit="v", wait=True)  # a retry: as it was stored
            assert (again.id, again.ranking) == (first.id, first.ranking)
            for query in ("often", "seldom", *["socks"] * 3):
                trial.rank(query, A, B, unit=f"{background} {query}", wait=True)
            log = trial.log()
            parts = [("other", "head", "tail")[level] for level in log.levels("query")[1_100:]]
            assert parts == ["tail", "head", "tail", "tail", "head", "tail", "tail"][: len(parts)]
    assert len(parts) == 7


def devices_search(trial: Trial, searches: int, *, visible: int, seed: int = 1) -> None:
    """Visitors of a small world, half of them on phones that show few results."""
    world, random = World.make(queries=12), np.random.default_rng(seed)
    names = list(world.zeta)
    for number in range(searches):
        query, phone = names[random.integers(len(names))], bool(random.random() < 0.5)
        device = "phone" if phone else "desktop"
        shown = trial.rank(
            query, world.a[query], world.b[query], unit=f"u{seed} {number}", size=5, segment={"device": device}
        )
        for rank, document in enumerate(shown.ranking):
            seen = world.theta[rank] * (rank < visible or not phone)
            if random.random() < seen * world.zeta[query][document]:
                trial.click(shown.id, document, wait=False)
    trial.store.flush()


@pytest.mark.slow
def test_designs_are_made_with_the_theta_of_the_segment_once_it_differs(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", segments=DEVICES, clock=Ticks(), **OPTIONS) as trial:
        devices_search(trial, 6_000, visible=2)
        bias = trial.update()
        assert bias.beliefs.attribute == "device"
        other, phone, desktop = (beliefs.theta for beliefs in bias.beliefs.by_segment)
        assert np.array_equal(other, np.array(bias.theta))
        assert phone[3] < 0.1 < desktop[3]
        devices_search(trial, 300, visible=2, seed=2)
        log = trial.log()
        late = np.flatnonzero(log.beliefs[log.design] == bias.id)
        assert len(late) == 300
        of_device = [set(log.design[late[log.levels("device")[late] == value]].tolist()) for value in (1, 2)]
        assert not of_device[0] & of_device[1]  # the segment is part of the design's key
        report = trial.report()
        assert report.decision.state != "not trusted"
    with Trial.open(tmp_path / "t.db", background=False) as trial:  # what was learnt is in the store
        assert trial.state.policy.bias.beliefs.thetas == bias.beliefs.thetas


def test_one_design_serves_all_where_theta_does_not_differ(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", segments=DEVICES, clock=Ticks(), **OPTIONS) as trial:
        devices_search(trial, 1_500, visible=5)
        bias = trial.update()
        assert not bias.beliefs.attribute
        assert "attribute" not in bias.more
        devices_search(trial, 300, visible=5, seed=2)
        log = trial.log()
        late = np.flatnonzero(log.beliefs[log.design] == bias.id)
        of_device = [set(log.design[late[log.levels("device")[late] == value]].tolist()) for value in (1, 2)]
        assert len(of_device[0] & of_device[1]) >= 10
