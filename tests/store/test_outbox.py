"""Messages that wait to be sent, and leases, alike in all kinds of stores."""

from __future__ import annotations

import contextlib
import time

import pytest

from ranktrial.store.base import Message
from ranktrial.store.postgres import PostgresStore
from ranktrial.store.protocols import Store
from store.kinds import Kind


def message(
    number: int, *, subject: str = "decision", hook: str = "h", due: int | None = 10, trial: str = "t"
) -> Message:
    return Message(trial, subject, number, "B", hook, 5, f"id {number}", '{"text": "na\u00efve \\u0000"}', due)


def test_messages_are_kept_once_in_their_order_and_all_or_none(kind: Kind, store: Store) -> None:
    first = [message(1), message(1, hook="other"), message(1, subject="history 3", due=None)]
    store.outbox.add(first)
    store.outbox.add([])
    with contextlib.closing(kind.open()) as other:
        other.outbox.add([message(1)._replace(body="too late", state="A"), message(2, due=20), message(1, trial="u")])
        assert [row.message for row in other.outbox.messages("t")] == [*first, message(2, due=20)]
        rows = other.outbox.messages("t")
    assert [row.row for row in rows] == sorted({row.row for row in rows})
    with pytest.raises(Exception, match=r"(?i)null"):
        store.outbox.add([message(3), message(4)._replace(body=None)])  # type: ignore[arg-type]
    assert len(store.outbox.messages("t")) == 4


def test_due_messages_are_found_until_they_are_sent(store: Store) -> None:
    store.outbox.add([message(1, due=10), message(2, due=20), message(3, due=None)])
    assert store.outbox.messages("t", due=9) == []
    one, two = store.outbox.messages("t", due=20)
    store.outbox.retry(one.row, 30, 1)
    store.outbox.retry(two.row, None, 0)
    assert store.outbox.messages("t", due=29) == []
    (again,) = store.outbox.messages("t", due=30)
    assert again.message == message(1, due=30)._replace(attempts=1)
    assert len(store.outbox.messages("t")) == 3  # what was sent is not forgotten


def test_a_trial_that_is_erased_takes_its_messages_along(store: Store) -> None:
    store.trials.add("t", b"s" * 32)
    store.outbox.add([message(1), message(1, trial="u")])
    store.eraser.erase_trial("t")
    assert (store.outbox.messages("t"), len(store.outbox.messages("u"))) == ([], 1)


def test_a_lease_has_one_holder_until_it_ends(kind: Kind, store: Store) -> None:
    with contextlib.closing(kind.open()) as other:
        assert store.outbox.lead("t", "me", 10, 0)
        assert not other.outbox.lead("t", "you", 10, 9)
        assert other.outbox.lead("another", "you", 10, 9)
        assert store.outbox.lead("t", "me", 10, 9)  # kept
        assert not other.outbox.lead("t", "you", 10, 10)
        assert other.outbox.lead("t", "you", 10, 19)
        assert not store.outbox.lead("t", "me", 10, 20)
        assert other.outbox.lead("t", "you", 0, 20)  # given back
        assert store.outbox.lead("t", "me", 10, 21)


def test_a_lease_goes_by_the_clock_of_the_store(kind: Kind, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance whose clock is hours ahead takes no lease that another still has, where the database has a clock."""
    with contextlib.closing(kind.open()) as other:
        assert store.outbox.lead("t", "me", 60_000_000)
        if isinstance(other, PostgresStore):
            ahead = time.time_ns() + 3_600_000_000_000
            monkeypatch.setattr(time, "time_ns", lambda: ahead)
        assert not other.outbox.lead("t", "you", 60_000_000)
        assert store.outbox.lead("t", "me", 0)  # given back
        assert other.outbox.lead("t", "you", 60_000_000)
