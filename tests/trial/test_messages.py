"""Messages to those who run a trial: what there is to tell, signed and sent to a receiver until it is taken."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import DAY, Clock
from live_server import rank, serving, start, wait_until
from ranktrial.cli.serve import read_webhooks
from ranktrial.interval import Interval
from ranktrial.store.base import HistoryRow, StoreUnavailable
from ranktrial.trial import Trial, Webhook
from ranktrial.trial.messages import NOT_AGAIN_BEFORE, News, Told, of_history, of_report, untold
from ranktrial.trial.supervisor import FIRST_RETRY, GIVE_UP, LONGEST_RETRY, PATIENCE
from receiver import SECRET, Receiver, receiving
from simulated_trial import World
from store.kinds import Kind

A = [f"a{i}" for i in range(6)]
B = ["a1", "a0", "b2", "b3", "a4"]
OPTIONS: dict[str, Any] = {"k": 3, "seed": 1, "background": False, "timeout": 60.0, "who": "ann"}
WORLD = World.make(queries=10, k=3, noise=0.6)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def hook(receiver: Receiver) -> Webhook:
    return Webhook(receiver.url, SECRET)


# --- what there is to tell ----------------------------------------------------------------------------------------------------


def test_a_change_is_told_once_and_what_flickers_once_an_hour() -> None:
    """A check that fails in every other look, one a minute, for a day."""
    told: dict[str, Told] = {}
    times = []
    for look in range(24 * 60):
        now = 60.0 * look
        state = News("check", "fail" if look % 2 else "", "guardrail", "")
        for one, number in untold([state], told, now):
            told[one.subject] = Told(number, one.state, now)
            times.append(now)
    assert [told["check"].number, len(times)] == [24, 24]
    assert min(np.diff(times)) >= NOT_AGAIN_BEFORE


def test_news_of_the_history() -> None:
    def row(id: int, what: str, detail: str = "", reason: str = "", when: float = 0.0) -> HistoryRow:
        return HistoryRow(id, int(when * 1e6), what, None, reason, "ann", detail)

    rows = [
        row(1, "version", "1: LogOpt(), k=10"),
        row(2, "changed", "smallest: 0.1 -> 0.2"),
        row(3, "changed", "smallest: 0.2 -> 0.1; share: 0.01 -> 0.1", "all is well"),
        row(4, "updated", "position bias"),
        row(5, "excluded"),
        row(6, "version", "2 (k: 10 -> 5)"),
        row(7, "stopped", "(B is shown from now on)", "B is better", 8 * DAY),
    ]
    assert [(one.kind, one.text) for one in of_history("shoes", rows, 100.0)] == [
        ("started", "shoes has started, LogOpt(), k=10, by ann"),
        ("share changed", "shoes: share of the visitors who take part 0.01 -> 0.1, by ann: all is well"),
        ("started", "shoes goes on with another version, 2 (k: 10 -> 5), by ann"),
        ("stopped", "shoes is stopped (B is shown from now on), by ann: B is better"),
    ]
    assert [one.subject for one in of_history("shoes", rows, 8 * DAY)] == [
        "history 7"
    ]  # the others are no news any more


def test_first_results_are_told_once_their_interval_says_something(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", "shoes", clock=Clock(), **OPTIONS) as trial:
        WORLD.run(trial, 300, seed=1)
        report = trial.report()
    value = report.ctr
    intervals = {
        Interval(-np.inf, np.inf): False,
        Interval(-0.51 * value, 0.51 * value): False,
        Interval(-0.49 * value, 0.49 * value): True,
        Interval(0.01 * value, 3 * value): True,
        Interval(-3 * value, -0.01 * value): True,
    }
    for interval, told in intervals.items():
        decision = replace(report.decision, interval=interval)
        kinds = [one.kind for one in of_report(report.model_copy(update={"decision": decision}))]
        assert ("first results" in kinds) == told, interval


# --- sent and taken -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_life_of_a_trial_as_those_who_run_it_hear_of_it(kind: Kind, receiver: Receiver) -> None:
    """A week in fast motion; two processes look after it, and every message comes once."""
    clock = Clock()
    with contextlib.closing(kind.open()) as here, contextlib.closing(kind.open()) as there:
        options = {**OPTIONS, "clock": clock, "webhooks": [hook(receiver)]}
        ramp = [(0.5, "1d"), (1.0, None)]
        trial = Trial.create(here, "shoes", method="AB()", ramp=ramp, smallest=0.05, **options)
        del options["who"]
        other = Trial.open(there, **{name: options[name] for name in ("clock", "webhooks", "background")})

        def later(seconds: float) -> None:
            clock.now += seconds
            for one in (trial, other, other, trial):
                one.supervisor.step()

        later(0)
        assert receiver.told() == [("started", "shoes has started, AB(), k=3, by ann")]
        for hour in range(36):
            random = np.random.default_rng(hour)
            for i in range(60):
                query = f"q{random.integers(10)}"
                shown = trial.rank(query, WORLD.a[query], WORLD.b[query], f"u{hour}-{i}", size=3)
                for document in shown.ranking if shown.fallback is None else ():
                    if random.random() < WORLD.zeta[query][document] ** (1 + (document in WORLD.b[query][:3])):
                        trial.click(shown.id, document, wait=False)
                clock.now += 60
            trial.watcher.step()
            later(0)
        assert receiver.kinds()[0] == "started"
        assert receiver.kinds().count("first results") == 1
        assert receiver.kinds().index("first results") < receiver.kinds().index("decided")
        assert receiver.kinds().count("share changed") == 1
        assert "decided" in receiver.kinds()
        (text,) = [text for kind, text in receiver.told() if kind == "decided"]
        assert text.startswith("shoes: decided. B gets 39% fewer clicks than A.")
        later(3 * DAY)
        later(7_200)
        assert receiver.kinds()[-1] == "no searches"
        assert "Does the site still call the trial?" in receiver.told()[-1][1]
        other.stop("A is better", who="bob")
        later(1)
        assert receiver.told()[-1] == ("stopped", "shoes is stopped (A is shown from now on), by bob: A is better")
        later(30 * DAY)
        assert len(receiver.ids()) == len(set(receiver.ids()))
        assert receiver.forged == 0
        assert len([row for row in here.outbox.messages("shoes") if row.message.due is not None]) == 0


def test_what_a_message_is(tmp_path: Path, receiver: Receiver) -> None:
    with Trial.create(tmp_path / "t.db", "shoes", clock=Clock(), webhooks=[hook(receiver)], **OPTIONS) as trial:
        trial.supervisor.step()
    (body,) = receiver.bodies
    assert body.pop("id").startswith("msg_")
    assert body == {
        "type": "started", "time": "2023-11-14T22:13:20Z", "trial": "shoes", "data": {"who": "ann", "reason": ""},
        "text": body["text"],
    }  # fmt: skip


def test_a_check_that_fails_and_is_mended(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock()
    with Trial.create(tmp_path / "t.db", "shoes", clock=clock, webhooks=[hook(receiver)], **OPTIONS) as trial:
        WORLD.run(trial, 300, seed=1)
        trial.store.tally(1, "fallback: the disk is full", 200)
        clock.now += 60
        trial.supervisor.step()
        trial.store.tally(1, "fallback: the disk is full", -200)
        for later, kinds in ((60, []), (1_800, []), (1_800, ["guardrail mended"])):
            clock.now += later
            trial.supervisor.step()
            assert [kind for kind, text in receiver.told() if '"fallbacks"' in text][1:] == kinds
    texts = [text for kind, text in receiver.told() if '"fallbacks"' in text]
    assert texts[0].startswith(
        'shoes: the check "fallbacks" fails. Left out of the estimate: 200 fallback: the disk is full'
    )
    assert texts[1].startswith('shoes: the check "fallbacks" does not fail any more.')


@pytest.mark.slow
def test_what_is_not_taken_is_sent_again_later_and_later(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock()
    with Trial.create(tmp_path / "t.db", clock=clock, webhooks=[hook(receiver)], **OPTIONS) as trial:
        receiver.answers = [500] * 12
        attempts = []
        while not receiver.bodies:
            before = len(receiver.refused)
            trial.supervisor.step()
            if len(receiver.refused) > before:
                attempts.append(clock.now)
            clock.now += 1 if len(attempts) < 8 else 60
        waits = np.diff(attempts)
        assert [round(wait / FIRST_RETRY) for wait in waits[:6]] == [1, 2, 4, 8, 16, 32]
        assert max(waits) <= LONGEST_RETRY + 60
        assert {one["id"] for one in receiver.refused} == set(receiver.ids())  # the same message each time
        assert len(receiver.bodies) == 1


@pytest.mark.slow
def test_after_a_week_it_is_given_up(tmp_path: Path) -> None:
    clock = Clock()
    nobody = Webhook("http://127.0.0.1:9/", SECRET)
    with Trial.create(tmp_path / "t.db", clock=clock, webhooks=[nobody], **OPTIONS) as trial:
        trial.supervisor.step()
        tries = 0
        while any(row.message.due is not None for row in trial.store.outbox.messages("trial")):
            clock.now += LONGEST_RETRY
            tries += 1
            trial.supervisor.step()
        assert tries * LONGEST_RETRY <= GIVE_UP
        assert trial.store.outbox.messages("trial")[0].message.attempts == tries + 1


def test_two_receivers_get_the_same_message_and_one_does_not_wait_for_the_other(
    tmp_path: Path, receiver: Receiver
) -> None:
    with receiving() as second:
        clock = Clock()
        with Trial.create(tmp_path / "t.db", clock=clock, webhooks=[hook(second), hook(receiver)], **OPTIONS) as trial:
            second.answers = [503]
            trial.supervisor.step()
            assert (len(receiver.bodies), len(second.bodies)) == (1, 0)
            clock.now += FIRST_RETRY
            trial.supervisor.step()
            assert receiver.bodies == second.bodies == second.refused


def test_a_receiver_that_is_new_does_not_hear_old_news(tmp_path: Path, receiver: Receiver) -> None:
    with receiving() as second:
        clock = Clock()
        with Trial.create(tmp_path / "t.db", clock=clock, webhooks=[hook(receiver)], **OPTIONS) as trial:
            trial.supervisor.step()
        with Trial.open(tmp_path / "t.db", clock=clock, webhooks=[hook(second)], background=False) as trial:
            trial.supervisor.step()
            trial.set_share(0.5)
            trial.supervisor.step()
        assert (receiver.kinds(), second.kinds()) == (["started"], ["share changed"])


def test_a_store_in_trouble_is_told_at_once_and_when_it_is_well_again(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process sends it, under one id: there is nowhere to agree on who does."""
    clock = Clock()
    options: dict[str, Any] = {"clock": clock, "webhooks": [hook(receiver)], "background": False}
    with (
        Trial.create(tmp_path / "t.db", **OPTIONS, **{n: options[n] for n in ("clock", "webhooks")}) as one,
        Trial.open(tmp_path / "t.db", **options) as two,
    ):
        for trial in (one, two):
            trial.supervisor.step()
        (tmp_path / "t.db").rename(tmp_path / "away.db")
        for _ in range(5):
            for trial in (one, two):
                with pytest.raises(StoreUnavailable):
                    trial.supervisor.step()
            clock.now += PATIENCE / 2
        assert receiver.kinds() == ["started", "store in trouble"]
        assert len(receiver.bodies) == 3
        (tmp_path / "away.db").rename(tmp_path / "t.db")
        wait_until(lambda: well(one) and well(two))
        assert receiver.kinds() == ["started", "store in trouble", "store well again"]
        assert len(receiver.bodies) == 4


def well(trial: Trial) -> bool:
    try:
        trial.supervisor.step()
        trial.supervisor.step()
    except StoreUnavailable:
        return False
    return True


# --- one leads --------------------------------------------------------------------------------------------------------------


def test_one_looks_after_the_trial_until_its_lease_ends(kind: Kind, receiver: Receiver) -> None:
    clock = Clock()
    with contextlib.closing(kind.open()) as here, contextlib.closing(kind.open()) as there:
        one = Trial.create(here, clock=clock, webhooks=[hook(receiver)], **OPTIONS)
        two = Trial.open(there, clock=clock, webhooks=[hook(receiver)], background=False)
        one.supervisor.step()
        one.set_share(0.5)
        for _ in range(14):
            clock.now += 1
            two.supervisor.step()
        assert receiver.kinds() == ["started"]  # one is gone, and nobody knows yet
        clock.now += 1
        two.supervisor.step()
        assert receiver.kinds() == ["started", "share changed"]
        one.set_share(0.6)
        clock.now += 1
        one.supervisor.step()
        assert len(receiver.kinds()) == 2
        two.supervisor.close()  # goes as it should
        one.supervisor.step()
        assert len(receiver.kinds()) == 3


def test_a_trial_with_nothing_to_look_after_costs_no_lease(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", clock=Clock(), **OPTIONS) as trial:
        trial.supervisor.step()
        now = int(Clock().now * 1e6)
        assert trial.store.outbox.lead("trial trial", "somebody else", 0, now)  # which is over at once
        Trial.create(tmp_path / "t.db", guards={"clicks": 0.1}, **OPTIONS).close()
        trial.supervisor.step()
        assert not trial.store.outbox.lead("trial trial", "somebody else", 0, now)


# --- in a service, and on the command line ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_service_tells(tmp_path: Path, receiver: Receiver) -> None:
    with serving(tmp_path / "t.db", webhooks=[hook(receiver)]) as client:
        start(client)
        rank(client, "u")
        client.post("/v1/trials/t/share", json={"share": 0.5})
        wait_until(lambda: "share changed" in receiver.kinds())
        client.post("/v1/trials/t/stop", json={"reason": "enough"})
        wait_until(lambda: "stopped" in receiver.kinds())
    Trial.create(tmp_path / "t.db", "second", **OPTIONS).close()
    with Trial.open(tmp_path / "t.db", "second", background=False) as trial:
        trial.stop("while no service ran")
    with serving(tmp_path / "t.db", webhooks=[hook(receiver)]):
        wait_until(lambda: receiver.kinds().count("stopped") == 2)
    assert receiver.forged == 0
    assert len(set(receiver.ids())) == len(receiver.ids())


@pytest.mark.parametrize(
    "url",
    [
        "chat.example/hook",
        "ftp://chat.example",
        "https://",
        "https://chat.example/#x",
        "http://a b/",
        "http://x/\u00e9",
        "",
    ],
)
def test_what_is_no_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ValueError, match="must be http") as refused:
        Webhook(url)
    assert len(url) < 10 or url not in str(refused.value)


def test_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="begins with whsec_ and is not base64"):
        Webhook("https://chat.example", "whsec_!")
    assert Webhook("https://chat.example", "whsec_" + base64.b64encode(b"key").decode())._key == b"key"
    assert "chat" not in repr(Webhook("https://chat.example/T0", "secret"))
    monkeypatch.setenv("RANKTRIAL_WEBHOOK_SECRET", "from outside")
    assert [one.secret for one in read_webhooks(["https://a.example", "https://b.example"], None)] == [
        "from outside"
    ] * 2
    file = tmp_path / "secret"
    file.write_text("from a file\n")
    assert read_webhooks(["https://a.example"], file)[0].secret == "from a file"
    file.write_text(" \n")
    for path in (file, tmp_path / "none"):
        with pytest.raises(ValueError, match="--webhook-secret"):
            read_webhooks([], path)
