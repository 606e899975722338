"""Checks of every store: acknowledged means on the disk, every row once, in order, with a bounded queue."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranktrial import tokens
from ranktrial.log.designs import Design
from ranktrial.methods import Beliefs
from ranktrial.store.base import (
    MOST_PUBLIC,
    REFUSED,
    REFUSED_EVENTS,
    Click,
    ClickRow,
    Entry,
    Event,
    EventRow,
    Impression,
    ImpressionCount,
    ImpressionRow,
    Nothing,
    Overloaded,
    Row,
    StoredClicks,
    StoreError,
    StoreUnavailable,
    TrialRow,
    Void,
    VoidRow,
)
from ranktrial.store.protocols import Store
from ranktrial.store.stored import Phase, Stored
from ranktrial.trial import Trial
from ranktrial.trial.versions import current_version
from store.kinds import DESIGN, KINDS, Kind, failure, impression, key

ROWS: list[type[Any]] = [ImpressionRow, ClickRow, EventRow, VoidRow]


def order(number: int, event_id: str = "order 1", *, version: int = 1, **given: Any) -> Event:
    event = Event(key(number), version, "x", "order", event_id, 39_900_000, number * 10 + 5, 0)
    return event._replace(**given)


def start_writing(stored: Stored) -> None:
    """Wait until a row is being written: it is then no longer in the queue."""
    while stored.stage is not Phase.RUNNING:
        assert not stored.done(), "it was stored or refused before anybody saw it being written"
        threading.Event().wait(0.001)


# --- the log ----------------------------------------------------------------------------------------------------------------


def test_what_is_acknowledged_is_there_for_others(kind: Kind, store: Store) -> None:
    store.put(impression(1)).result()
    with contextlib.closing(kind.open()) as other:
        for one in (store, other):
            found = one.impression(key(1))
            assert found is not None
            assert found.design.digest == DESIGN.digest
            assert (found.key, found.version, found.place, found.unit, found.time) == (key(1), 1, 0, 1, 1)
            assert one.impression(key(2)) is None


def test_an_impression_keeps_its_segment(store: Store) -> None:
    store.put(replace(impression(1), segment=7))
    store.put(impression(2))
    store.flush()
    assert [row.segment for row in store.rows(ImpressionRow, 1, 0)] == [7, 0]


def test_an_impression_keeps_its_covariates(store: Store) -> None:
    for row in (replace(impression(1), covariates=b"\x00\x00\xc0\x7f\x00\x00@@"), impression(2)):
        store.put(row)
    store.flush()
    assert [row.covariates for row in store.rows(ImpressionRow, 1, 0)] == [b"\x00\x00\xc0\x7f\x00\x00@@", None]


def test_rows_are_read_as_they_were_put_in(store: Store) -> None:
    store.put(impression(1, place=1))
    store.put(Click(key(1), 1, "x", False))
    store.put(StoredClicks(1, (Click(key(1), 1, "y", True, time=7), Click(key(2), 1, "x", False))))
    store.put(Click(key(1), 2, "z", False))
    store.put(Void(key(2), 1, "why", 2))
    store.flush()
    (shown,), clicks, voids = (
        list(store.rows(ImpressionRow, 1, 0)),
        list(store.rows(ClickRow, 1, 0)),
        list(store.rows(VoidRow, 1, 0)),
    )
    assert shown == ImpressionRow(shown.id, key(1), shown.design, 1, 1, 1)
    assert sorted(row[1:] for row in clicks) == [(key(1), "x", 0, 0), (key(1), "y", 1, 7), (key(2), "x", 0, 0)]
    assert [row[1:] for row in voids] == [(key(2), "why")]
    (design,) = store.designs([shown.design, shown.design + 1])
    assert (design.id, design.digest, design.query, design.bias) == (shown.design, DESIGN.digest, "q", 1)
    assert Design.from_row(design).documents == DESIGN.documents
    assert {type(row) for row in (shown, *clicks, *voids)} == {ImpressionRow, ClickRow, VoidRow}


def test_rows_are_read_in_order_from_where_one_was(store: Store) -> None:
    for number in range(20):
        store.put(impression(number))
        store.put(Click(key(number), 1, "x", False))
        store.put(order(number))
        store.put(Void(key(100 + number), 1, "why", 0))
    store.flush()
    for kind in ROWS:
        ids = [row.id for row in store.rows(kind, 1, 0)]
        assert ids == sorted(set(ids))
        assert [row.id for row in store.rows(kind, 1, ids[11])] == ids[12:]
        assert list(store.rows(kind, 1, ids[-1])) == list(store.rows(kind, 2, 0)) == []
    ids = [row.id for row in store.rows(ImpressionRow, 1, 0)]
    assert store.count(1, 0) == ImpressionCount(20, ids[-1], 0, 19)
    assert store.count(1, ids[4]) == ImpressionCount(15, ids[-1], 5, 19)
    assert store.count(1, ids[-1]) == ImpressionCount(0, ids[-1])


def test_rows_are_stored_once(store: Store) -> None:
    for _ in range(3):
        store.put(impression(1))
        store.put(Click(key(1), 1, "x", False))
        store.put(Void(key(2), 1, "why", 2))
    store.flush()
    assert [len(list(store.rows(kind, 1, 0))) for kind in (*ROWS[:2], VoidRow)] == [1, 1, 1]
    assert store.tallies(1) == {"duplicate clicks": 2}
    assert store.void(key(2)) == "why"
    assert len(list(store.designs(range(1, 10)))) == 1


def test_events_are_read_as_they_were_put_in(kind: Kind, store: Store) -> None:
    """Before or after their impression, alone or with clicks; negative and large amounts, any text."""
    texts: dict[str, Any] = {"document": "x \0 \U0001f45f", "action": "cart", "event_id": "\x1a0 'a' \u00e9"}
    store.put(order(1))
    store.put(impression(1))
    store.put(
        StoredClicks(1, (order(1, **texts, amount=-(10**16), time=10**17), Click(key(1), 1, "x", False), order(2)))
    )
    store.put(order(1, version=2, event_id="of another version")).result()
    with contextlib.closing(kind.open()) as other:
        for one in (store, other):
            found = list(one.rows(EventRow, 1, 0))
            assert found == sorted(found)
            assert {type(row) for row in found} == {EventRow}
            assert sorted(row[1:] for row in found) == [
                (key(1), "x", "order", 39_900_000, 15),
                (key(1), texts["document"], "cart", -(10**16), 10**17),
                (key(2), "x", "order", 39_900_000, 25),
            ]
            assert len(list(one.rows(ClickRow, 1, 0))) == len(list(one.rows(EventRow, 2, 0))) == 1
    assert list(store.rows(EventRow, 1, found[-1].id)) == []
    assert store.tallies(1) == store.tallies(2) == {}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("public", [True, False])
def test_an_event_replaces_none_of_its_id(store: Store, together: bool, public: bool) -> None:
    some = [
        order(1, public=public),
        order(1, amount=-7, document="y", time=1, public=public),
        order(1, "order 2", public=public),
        order(2, public=public),
        order(1, amount=1, public=public),
    ]
    for _ in range(2):
        for row in [StoredClicks(1, tuple(some))] if together else some:
            store.put(row)
        store.flush()
    kept = sorted((row.key, row.document, row.amount, row.time) for row in store.rows(EventRow, 1, 0))
    assert kept == [(key(1), "x", 39_900_000, 15)] * 2 + [(key(2), "x", 39_900_000, 25)]
    assert store.tallies(1) == {"duplicate events": 7}


def test_what_an_impression_may_have_of_public_events_is_bounded(store: Store) -> None:
    """Events with a key are always kept."""
    many = MOST_PUBLIC + 20
    for row in (*(order(1, f"{number}", public=True) for number in range(many)), order(2, public=True)):
        store.put(row)
    store.flush()
    store.put(
        StoredClicks(1, (order(1, "late", public=True), order(1, "0", public=True), order(1, "with a key")))
    ).result()
    assert [row.key for row in store.rows(EventRow, 1, 0)].count(key(1)) == MOST_PUBLIC + 1
    assert store.tallies(1) == {REFUSED_EVENTS: 21, "duplicate events": 1}


def test_a_click_keeps_the_time_of_its_first_report(store: Store) -> None:
    for time in (5, 3, 9):
        store.put(Click(key(1), 1, "x", False, time=time)).result()
        store.put(Click(key(1), 1, "other", False, limit=3, time=time)).result()
    assert sorted(row[2:] for row in store.rows(ClickRow, 1, 0)) == [("other", 0, 5), ("x", 0, 5)]


def test_a_design_is_stored_as_it_was_drawn(kind: Kind, store: Store) -> None:
    """In about 300 bytes beyond query and ids, for lists of ten: any instance shows the same without the code that made it."""
    a, b = [f"id {i}" for i in range(10)], [f"id {i}" for i in (1, 0, 12, 3, 11, 5, 2, 10, 8, 9)]
    with contextlib.closing(kind.open()) as other:
        trial = Trial.create(store, "t", method="LogOpt()", background=False, own_store=False)
        for unit in map(str, range(20)):
            shown = trial.rank("q", a, b, unit=unit, wait=True)
            for one in (store, other):
                found = one.impression(read_key(trial, shown.id))
                assert found is not None
                assert Design.from_row(found.design).top(found.place) == shown.ranking[:10]
        (row,) = store.designs(range(1, 1000))
        assert sum(map(len, (row.digest, row.a, row.b, row.rankings, row.weights, row.rest))) < 350


def read_key(trial: Trial, id: str) -> bytes:
    token = tokens.read_token(id, trial.state.secret)
    assert token is not None
    return token.key


@pytest.mark.parametrize("together", [True, False])
def test_what_an_impression_may_have_of_limited_clicks_is_bounded(store: Store, together: bool) -> None:
    """Whatever the order; clicks without a limit are always kept."""
    junk = [Click(key(1), 1, f"junk {number}", False, limit=3) for number in range(100)]
    others = (Click(key(1), 1, "x", False), Click(key(1), 1, "y", False), Click(key(2), 1, "junk", False, limit=3))
    for _ in range(2):
        some = [junk[0], *others[:1], *junk, *others[1:]]
        for row in [StoredClicks(1, tuple(some))] if together else some:
            store.put(row)
        store.flush()
    kept = [(row.key, row.document) for row in store.rows(ClickRow, 1, 0)]
    on_one = [document for of, document in kept if of == key(1)]
    assert len(on_one) <= 3 + 2
    assert {"x", "y"} < set(on_one)
    assert (key(2), "junk") in kept
    assert store.tallies(1)[REFUSED] + store.tallies(1)["duplicate clicks"] == 2 * 104 - len(kept)
    assert store.tallies(1)[REFUSED] >= 2 * 97


def test_one_key_shown_in_two_ways_is_void(store: Store) -> None:
    store.put(impression(1, place=0))
    store.put(impression(1, place=0))
    store.put(impression(2, place=0))
    store.put(impression(2, place=1))
    store.flush()
    assert store.void(key(1)) is None
    assert store.void(key(2)) == "shown in two ways"


def test_only_one_s_own_impression_is_voided(store: Store) -> None:
    store.put(impression(1))  # at time 1
    store.put(Void(key(1), 1, "another of that key", 7))
    store.put(impression(2))
    store.put(Void(key(2), 1, "its own", 2))
    store.flush()
    assert [store.void(key(number)) for number in (1, 2)] == [None, "its own"]


def test_many_rows_in_one_commit(kind: Kind, store: Store) -> None:
    """More than fit in a statement; some twice, one in two ways; the designs of a commit that failed are not relied on."""
    with kind.stalled():
        rows: list[Row] = [impression(number) for number in (*range(130), *range(20))]
        rows += [Click(key(number), 1, "x", False) for number in (*range(130), *range(30))]
        futures = [store.put(row) for row in (*rows, impression(77, place=1))]
        bad = store.put(Click(key(0), 1, "\ud800", False))
    for future in futures:
        future.result(60)
    assert isinstance(failure(bad), UnicodeEncodeError)
    shown = list(store.rows(ImpressionRow, 1, 0))
    assert sorted(row.key for row in shown) == [key(number) for number in range(130)]
    assert len({row.design for row in shown}) == 1
    assert store.impression(key(129)) is not None  # with its design
    assert len(list(store.rows(ClickRow, 1, 0))) == 130
    assert [row.key for row in store.rows(VoidRow, 1, 0)] == [key(77)]
    assert store.tallies(1)["duplicate clicks"] == 30


def test_a_full_queue_refuses_and_recovers(kind: Kind) -> None:
    with contextlib.closing(kind.open(queue_size=5)) as store:
        with kind.stalled():
            taken = [store.put(impression(0))]
            start_writing(taken[0])  # it is this one that waits for the others, outside the queue
            taken += [store.put(impression(number)) for number in range(1, 6)]
            assert store.waiting == 5
            with pytest.raises(Overloaded, match="5 rows wait"):
                store.put(impression(6))
            void = store.put(Void(key(0), 1, "always possible", 0))
        for future in (*taken, void):
            future.result(60)
        assert len(list(store.rows(ImpressionRow, 1, 0))) == len(taken)
        store.put(impression(99)).result(60)
        assert store.waiting == 0


def test_what_is_taken_back_in_time_is_not_written(kind: Kind, store: Store) -> None:
    with kind.stalled():
        first = store.put(impression(0))
        start_writing(first)
        second = store.put(impression(1))
        assert second.cancel()
        assert not first.cancel()
    first.result(60)
    with pytest.raises(CancelledError):
        second.result(60)
    store.flush()
    assert [row.key for row in store.rows(ImpressionRow, 1, 0)] == [key(0)]


def test_a_bad_row_does_not_take_others_with_it(kind: Kind, store: Store) -> None:
    with kind.stalled():
        rows: list[Row] = [impression(0), Click(key(0), 1, "\ud800", False), impression(1)]
        futures = [store.put(row) for row in rows]
    futures[0].result(60)
    futures[2].result(60)
    assert isinstance(failure(futures[1]), UnicodeEncodeError)
    assert store.tallies(1) == {"failed writes": 1}


def test_tallies_survive_a_store_that_is_down(kind: Kind) -> None:
    with contextlib.closing(kind.open(write_timeout=0.01)) as store:
        with kind.stalled():
            store.tally(1, "trouble", 2)
            with pytest.raises(StoreUnavailable):
                store.put(impression(1)).result(60)
            assert store.tallies(1) == {"trouble": 2, "failed writes": 1}
        store.put(Nothing()).result(60)
    with contextlib.closing(kind.open()) as again:
        assert again.tallies(1) == {"trouble": 2, "failed writes": 1}


def test_tallies_that_may_wait_come_with_the_next_row(kind: Kind) -> None:
    with contextlib.closing(kind.open()) as store, contextlib.closing(kind.open()) as other:
        store.tally(1, "later", soon=False)
        assert (store.tallies(1), other.tallies(1)) == ({"later": 1}, {})
        store.put(impression(1)).result(60)
        assert other.tallies(1) == {"later": 1}


WRITE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from store.kinds import KINDS, impression
store = KINDS[sys.argv[1]](Path(sys.argv[2])).open(write_timeout=120)
first = int(sys.argv[3])
futures = [store.put(impression(number)) for number in range(first, first + 300)]
for future in futures:
    future.result()
store.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KINDS))
def test_several_processes_write_to_one_store(name: str, tmp_path: Path) -> None:
    kind = KINDS[name](tmp_path)  # starts its server, if it has one, before there are other processes
    arguments = [sys.executable, "-c", WRITE, name, str(tmp_path)]
    tests = str(Path(__file__).parents[1])
    writers = [subprocess.Popen([*arguments, first, tests]) for first in ("0", "150")]
    assert [writer.wait() for writer in writers] == [0, 0]
    with contextlib.closing(kind.open()) as store:
        assert sorted(row.key for row in store.rows(ImpressionRow, 1, 0)) == [key(number) for number in range(450)]
        assert store.count(1, 0).impressions == 450
        assert list(store.rows(VoidRow, 1, 0)) == []


def test_closed_is_closed(kind: Kind) -> None:
    store = kind.open()
    last = store.put(impression(1))
    store.close()
    store.close()
    assert failure(last, 0) is None
    with pytest.raises(StoreError, match="closed"):
        store.put(impression(2))
    with pytest.raises(StoreError, match="closed"):
        store.impression(key(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KINDS))
def test_rows_are_refused_or_stored_while_the_store_is_closed(name: str, tmp_path: Path) -> None:
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        store = KINDS[name](folder).open()
        accepted: list[Stored] = []

        def put_forever(store: Store = store, accepted: list[Stored] = accepted) -> None:
            with contextlib.suppress(StoreError, Overloaded):
                while True:
                    accepted.append(store.put(Nothing()))

        thread = threading.Thread(target=put_forever)
        thread.start()
        store.close()
        thread.join()
        for stored in accepted:
            stored.result(0)


# --- trials -----------------------------------------------------------------------------------------------------------------


def test_trials_are_found_by_name_or_because_there_is_one(store: Store) -> None:
    with pytest.raises(StoreError, match="holds 0 trials"):
        store.trials.find(None)
    store.trials.add("shoes", b"secret")
    store.trials.add("shoes", b"another")
    assert store.trials.find(None) == store.trials.find("shoes") == TrialRow("shoes", b"secret", None)
    store.trials.add("hats", b"hidden")
    store.trials.stop("shoes")
    assert store.trials.names() == ["hats", "shoes"]
    assert [(store.trials.find(name).stopped, store.trials.find(name).shows) for name in ("hats", "shoes")] == [
        (False, None), (True, "A"),
    ]  # fmt: skip
    with pytest.raises(StoreError, match=r"holds 2 trials \(hats, shoes\): say which"):
        store.trials.find(None)
    with pytest.raises(StoreError, match="holds no trial 'socks'; it holds hats, shoes"):
        store.trials.find("socks")


def test_history_is_kept_in_order(store: Store) -> None:
    entries = [
        Entry(5, "excluded", -(2**63), "a robot"),
        Entry(5, "included", 7, "no robot"),
        Entry(3, "excluded", 7, "a robot \u2013 \U0001f916"),
        Entry(9, "renamed", None, "", "key 77 (me)", "to A (old) and B (new)"),
    ]
    for entry in entries:
        store.trials.add_history("shoes", entry)
    store.trials.add_history("hats", Entry(1, "excluded", 1, "why"))
    found = store.trials.history("shoes")
    assert [row[1:] for row in found] == entries
    assert [row.id for row in found] == sorted({row.id for row in found})
    assert store.trials.history("socks") == []


def test_what_is_done_once_is_one_entry(store: Store) -> None:
    """Two instances that make the same version or stop the same trial leave one entry, that of the one which did it."""
    store.trials.add("shoes", b"s" * 32)
    for who in ("ann", "bob"):
        store.trials.add_version("shoes", 1, "config", Entry(1, "version", who=who, detail="1"))
    version = store.trials.versions("shoes")[0].id
    for who in ("bob", "ann"):
        store.biases.add(version, 0, Beliefs(np.array([1.0])), 0, b"", ("shoes", Entry(2, "updated", who=who)))
    (first,) = store.trials.versions("shoes")
    store.trials.reconfigure(first, "shoes", "other config", Entry(3, "changed", who="ann"))
    store.trials.reconfigure(first, "shoes", "from what is there no more", Entry(3, "changed", who="bob"))
    for who in ("ann", "bob"):
        store.trials.stop("shoes", entry=Entry(4, "stopped", who=who, reason="enough"))
    assert [(row.what, row.who) for row in store.trials.history("shoes")] == [
        ("version", "ann"), ("updated", "bob"), ("changed", "ann"), ("stopped", "ann"),
    ]  # fmt: skip
    assert [one.config for one in store.trials.versions("shoes")] == ["other config"]
    store.trials.stop("hats", entry=Entry(4, "stopped"))
    assert store.trials.history("hats") == []


def test_a_stopped_trial_shows_what_was_chosen(store: Store) -> None:
    """Without a choice it is A, and a choice that was made stays; another choice is another entry."""
    store.trials.add("shoes", b"s" * 32)
    for time, shows in enumerate((None, "A", "B", None, "B", "A")):
        store.trials.stop("shoes", shows, Entry(time, "stopped"))  # type: ignore[arg-type]
    assert [row.time for row in store.trials.history("shoes")] == [0, 2, 5]
    assert store.trials.find("shoes").shows == "A"


def test_the_current_version_may_be_an_earlier_one(store: Store) -> None:
    for number in (1, 2, 3):
        store.trials.add_version("shoes", number, f"config {number}")
        assert current_version(store.trials.versions("shoes")).number == number
    store.trials.add_version("hats", 1, "config")
    for time, number in enumerate((2, 2, 1, 9)):
        store.trials.make_current("shoes", number, Entry(time, "version"))
    assert [row.time for row in store.trials.history("shoes")] == [
        0,
        2,
    ]  # not when it is current, nor if there is none such
    assert current_version(store.trials.versions("shoes")).number == 1
    store.trials.add_version("shoes", 4, "config 4")
    assert current_version(store.trials.versions("shoes")).number == 4
    assert current_version(store.trials.versions("hats")).number == 1


def test_versions_have_a_number_in_their_trial_and_an_id_in_the_store(store: Store) -> None:
    for trial, number in (("shoes", 1), ("hats", 1), ("shoes", 2), ("shoes", 2)):
        store.trials.add_version(trial, number, f"{trial} {number}")
    versions = [*store.trials.versions("shoes"), *store.trials.versions("hats")]
    assert [(one.number, one.config) for one in versions] == [(1, "shoes 1"), (2, "shoes 2"), (1, "hats 1")]
    assert len({one.id for one in versions}) == 3
    assert [store.trials.of_version(one.id) for one in versions] == ["shoes", "shoes", "hats"]
    assert store.trials.of_version(max(one.id for one in versions) + 1) is None
    assert store.trials.versions("socks") == []


def test_of_two_refits_that_follow_the_same_one_the_first_is_kept(kind: Kind, store: Store) -> None:
    with contextlib.closing(kind.open()) as other:
        store.biases.add(1, 0, Beliefs(np.array([1.0]), note="first"), 0)
        other.biases.add(1, 0, Beliefs(np.array([0.9]), note="first, too"), 0)
        (first,) = other.biases.of(1)
        other.biases.add(1, 5, Beliefs(np.array([0.8]), note="second"), first.id)
        store.biases.add(1, 5, Beliefs(np.array([0.7]), note="second, too"), first.id)
        store.biases.add(1, 9, Beliefs(np.array([0.6]), note="an old one, late"), first.id)
        assert [one.note for one in store.biases.of(1)] == ["first", "second"]
        store.biases.add(1, 9, Beliefs(np.array([0.5]), note="third"), store.biases.of(1)[-1].id)
        assert [one.note for one in other.biases.of(1)] == ["first", "second", "third"]


def test_position_bias_is_kept_to_the_last_bit(store: Store) -> None:
    theta = (1.0, 1 / 3, 0.1 + 0.2, 5e-324)
    for impressions, fitted in ((0, False), (0, True), (7, True)):
        follows = max((one.id for one in store.biases.of(1)), default=0)
        store.biases.add(
            1, impressions, Beliefs(np.array(theta), 0.1 + 0.2, fitted, f"after {impressions}", 1 / 3), follows
        )
    store.biases.add(2, 0, Beliefs(np.array(theta[:1]), note="of another version"), 0)
    known = store.biases.of(1)
    assert [(one.impressions, one.theta, one.fitted, one.note) for one in known] == [
        (0, theta, False, "after 0"),
        (7, theta, True, "after 7"),
    ]
    assert known[0].id < known[1].id
    assert (known[1].beliefs.relevance, known[1].beliefs.plain) == (0.1 + 0.2, 1 / 3)
    assert known[1].beliefs.theta.tolist() == list(theta)


# --- erasure ----------------------------------------------------------------------------------------------------------------


def other_design(query: str) -> Design:
    return Design(query, 1, DESIGN.documents, DESIGN.a, DESIGN.b, DESIGN.rankings, DESIGN.weights, ())


def fill(store: Store) -> tuple[int, int]:
    """Two versions of two trials; units 0 to 4, a click, an event and a void each, a query of their own and one that all
    share.
    """
    for trial in ("shoes", "hats"):
        store.trials.add(trial, b"secret")
        store.trials.add_version(trial, 1, "config")
    shoes, hats = (store.trials.versions(trial)[0].id for trial in ("shoes", "hats"))
    for number in range(20):
        version, unit = (shoes, hats)[number // 10], number % 5
        design = DESIGN if number % 2 else other_design(f"query of {unit} in {version}")
        store.put(Impression(key(number), version, design, 0, unit, number * 10))
        store.put(Click(key(number), version, "x", False))
        store.put(order(number, version=version))
        store.put(Void(key(number), version, "why", number * 10))
    store.put(Click(key(99), shoes, "waits", False))
    store.put(order(99, version=shoes))
    store.tally(shoes, "something")
    store.flush()
    return shoes, hats


def stored(store: Store, version: int) -> list[tuple[bytes, bool, bool]]:
    """Keys of the impressions, and whether each has its click and event, and its void."""
    clicks, events, voids = ({row.key for row in store.rows(kind, version, 0)} for kind in ROWS[1:])
    return [
        (row.key, row.key in clicks and row.key in events, row.key in voids)
        for row in store.rows(ImpressionRow, version, 0)
    ]


def queries(store: Store) -> set[str]:
    return {row.query for row in store.designs(range(1, 100))}


def test_a_unit_is_erased_from_one_trial(kind: Kind, store: Store) -> None:
    shoes, hats = fill(store)
    store.trials.add_history("shoes", Entry(1, "excluded", 3, "a robot"))
    store.trials.add_history("shoes", Entry(1, "excluded", 4, "another"))
    assert store.eraser.erase("shoes", 7, "asked for it", unit=3, who="ann") == (2, 2, 2)
    left = [number for number in range(10) if number % 5 != 3]
    assert stored(store, shoes) == [(key(number), True, True) for number in left]
    assert len(stored(store, hats)) == 10
    assert store.impression(key(3)) is None
    assert f"query of 3 in {shoes}" not in queries(store)
    assert {"q", f"query of 2 in {shoes}", f"query of 3 in {hats}"} <= queries(store)
    assert [row[1:] for row in store.eraser.erasures("shoes")] == [(7, None, 2, 2, 1, "asked for it", "ann", 2)]
    assert [row.unit for row in store.trials.history("shoes")] == [4]
    assert store.eraser.erase("shoes", 8, "again", unit=3) == (0, 0, 0)
    assert store.eraser.erase("shoes", 8, "nobody", unit=77) == (0, 0, 0)
    assert (len(store.eraser.erasures("shoes")), store.eraser.erasures("hats")) == (1, [])
    assert store.tallies(shoes) == {"something": 1}
    with contextlib.closing(kind.open()) as other:
        assert len(stored(other, shoes)) == 8


def test_what_is_old_is_erased_and_is_one_entry(store: Store) -> None:
    shoes, hats = fill(store)
    assert store.eraser.erase("shoes", 7, "30 days", before=40) == (4, 4, 4)
    assert store.eraser.erase("shoes", 8, "30 days", before=40) == (0, 0, 0)
    assert store.eraser.erase("shoes", 9, "40 days", before=60, who="bob") == (2, 2, 2)
    assert [row[0] for row in stored(store, shoes)] == [key(number) for number in range(6, 10)]
    assert len(stored(store, hats)) == 10
    assert [row[1:] for row in store.eraser.erasures("shoes")] == [(9, 60, 6, 6, 3, "40 days", "bob", 6)]
    for kind in ROWS[1:3]:
        assert {row.key for row in store.rows(kind, shoes, 0)} == {key(number) for number in (*range(6, 10), 99)}


def test_more_is_erased_than_fits_in_a_statement_while_others_write(kind: Kind, store: Store) -> None:
    """Erasure by another process: designs that this one relies on may be gone, and are stored anew."""
    store.trials.add_version("shoes", 1, "config")
    (version,) = (one.id for one in store.trials.versions("shoes"))
    for number in range(1200):
        store.put(Impression(key(number), version, other_design(f"q{number % 700}"), 0, number % 2, number))
    store.flush(60)
    with contextlib.closing(kind.open()) as other:
        assert other.eraser.erase("shoes", 1, "why", before=1100) == (1100, 0, 0)
        assert other.eraser.erasures("shoes")[0].designs == 600
    for number in range(2000, 2700):
        store.put(Impression(key(number), version, other_design(f"q{number % 700}"), 0, 1, number))
    store.flush(60)
    assert len(stored(store, version)) == 100 + 700
    for number in (1150, 2000, 2300, 2699):
        found = store.impression(key(number))
        assert found is not None
        assert found.design.query == f"q{number % 700}"


def test_a_trial_is_erased_with_all_that_is_stored_of_it(store: Store) -> None:
    shoes, hats = fill(store)
    store.biases.add(shoes, 0, Beliefs(np.array([1.0])), 0)
    store.trials.add_history("shoes", Entry(1, "excluded", 3, "a robot"))
    store.eraser.erase("shoes", 7, "asked for it", unit=3, who="ann")
    assert store.eraser.erase_trial("shoes") == (8, 9, 9)
    assert store.trials.names() == ["hats"]
    assert (store.trials.versions("shoes"), store.trials.history("shoes"), store.eraser.erasures("shoes")) == (
        [],
        [],
        [],
    )
    assert [list(store.rows(kind, shoes, 0)) for kind in ROWS] == [[]] * 4
    assert (store.biases.of(shoes), store.tallies(shoes), store.trials.of_version(shoes)) == ([], {}, None)
    assert queries(store) == {"q", *(f"query of {unit} in {hats}" for unit in range(5))}
    assert len(stored(store, hats)) == 10
    store.trials.add("shoes", b"another")
    store.trials.add_version("shoes", 1, "config")
    assert store.trials.versions("shoes")[0].id not in (shoes, hats)  # an id that was handed out stays one of nobody
    assert store.trials.of_version(store.trials.versions("shoes")[0].id) == "shoes"
