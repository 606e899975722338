"""Kills between any two steps of what a trial does by itself, and of whoever looks after it among several instances."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from live_server import wait_until
from ranktrial.trial import Trial
from receiver import SECRET, Receiver, receiving
from store.kinds import KINDS, Kind, available

pytestmark = pytest.mark.slow
TESTS = str(Path(__file__).parents[1])
STEPS = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from ranktrial.store.postgres.database import PostgresDatabase
from ranktrial.store.sqlite_database import SQLiteDatabase
from ranktrial.trial import Trial, Webhook
from store.kinds import KINDS

place = KINDS[sys.argv[1]](Path(sys.argv[2]))
DAY, A, B = 86_400.0, ["a", "b", "c"], ["c", "b", "a"]
steps, fatal = 0, 0

def step():
    global steps
    steps += 1
    if steps == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

def deadly(function):
    def call(*arguments, **options):
        step()
        result = function(*arguments, **options)
        step()
        return result
    return call

for owner, name in ((SQLiteDatabase, "execute"), (PostgresDatabase, "execute"), (Webhook, "send")):
    setattr(owner, name, deadly(getattr(owner, name)))

def live(name, start, operator):
    '''A trial in two days: set up, searched, grown, stopped by a guard; all that is done already is not done again.'''
    now = [start]
    store = place.open()
    trial = Trial.create(
        store, name, k=3, seed=1, ramp=[(0.5, "1d"), (1.0, None)], background=False, timeout=60, guards={"fallbacks": 0.1},
        clock=lambda: now[0], webhooks=[Webhook(sys.argv[3], sys.argv[5])],
    )
    for user in range(10):
        trial.rank("q", A, B, unit=f"u{user}", wait=True)
    for _ in range(4):
        trial.supervisor.step()
        now[0] += DAY / 2
    if not trial.stopped:
        store.tally(trial.state.version.id, "fallback: nothing but faults", 500)
        store.flush()
    for _ in range(3):
        trial.supervisor.step()
        now[0] += 60
    store.close()

def decided(name, start, operator):
    '''A trial whose share an operator changes, which serves its winner, and whose winner the operator takes back.'''
    now = [start]
    store = place.open()
    trial = Trial.create(
        store, name, k=3, seed=1, method="AB()", tightest_at=150, background=False, timeout=60, then="serve winner",
        whole_weeks=False, clock=lambda: now[0], webhooks=[Webhook(sys.argv[3], sys.argv[5])],
    )
    trial.supervisor.step()
    if operator:
        trial.set_share(0.9)
    if not trial.stopped:
        for user in range(160):
            shown = trial.rank("q", A, B, unit=f"u{user}")
            if shown.fallback is None and (shown.ranking[0] == "c" or user % 5 == 0):
                trial.click(shown.id, shown.ranking[0], wait=False)
        store.flush()
    for _ in range(3):
        now[0] += 120
        trial.supervisor.step()
        trial.watcher.step()
    if operator and trial.shows == "B":
        trial.stop("complaints", show="A")
    for _ in range(2):
        now[0] += 120
        trial.supervisor.step()
    store.close()

live = {"live": live, "decided": decided}[sys.argv[6]]

def begun(name, start, at=0, operator=True):
    '''An instance in a process of its own, which is killed at a step; returns its number, and where it writes its steps.'''
    global fatal, steps
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        fatal, steps = at, 0
        try:
            live(name, start, operator)
            os.write(there, str(steps).encode())
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    os.close(there)
    return child, here

def ended(child, here):
    '''The status of an instance, and the steps that it took.'''
    told = os.read(here, 100)
    os.close(here)
    return os.waitpid(child, 0)[1], int(told or 0)

live("warm", 1.7e9, True)
status, number = ended(*begun("whole", 1.7e9))
assert status == 0, status
for at in range(1, number + 1):
    status, _ = ended(*begun(f"killed {at}", 1.7e9, at))
    assert status == signal.SIGKILL, (at, status)
    others = [begun(f"killed {at}", 1.7e9 + 3 * DAY, operator=operator) for operator in (True, False)]
    found = [ended(*one) for one in others]
    found.append(ended(*begun(f"killed {at}", 1.7e9 + 6 * DAY, operator=False)))  # sends what these left when they ended
    assert all(status == 0 for status, _ in found), (at, found)
print(number)
"""
WATCH = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from ranktrial.trial import Trial, Webhook, supervisor
from store.kinds import KINDS
supervisor.LEASE = float(sys.argv[6])
took = supervisor.Supervisor._take

def noted(self, seconds):
    '''Notes from when to when this process takes itself for the leader, by the clock of the machine.'''
    start, held = time.monotonic(), took(self, seconds)
    if held:
        with (Path(sys.argv[2]) / "led.txt").open("a") as file:
            print(self._me, time.monotonic(), start + seconds, file=file)
    return held

supervisor.Supervisor._take = noted
trial = Trial.open(KINDS[sys.argv[1]](Path(sys.argv[2])).open(), "t", webhooks=[Webhook(sys.argv[3], sys.argv[5])])
print(trial.supervisor._me, flush=True)
time.sleep(600)
"""


LIVES = {  # what the history of each says, and what is told
    "live": (
        [("changed", "share: 0.5 -> 1"), ("stopped", "(A is shown from now on)")],
        ["started", "share changed", "harm"],
    ),
    "decided": (
        [
            ("changed", "share: 1 -> 0.9"),
            ("stopped", "(B is shown from now on)"),
            ("stopped", "(A is shown from now on)"),
        ],
        ["started", "share changed", "stopped", "stopped"],
    ),
}


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("kind", available())
def test_killed_at_every_step_nothing_is_lost_and_nothing_done_twice(tmp_path: Path, kind: str, life: str) -> None:
    """One of three instances dies at a step, and the two others go on at the same time."""
    place: Kind = KINDS[kind](tmp_path)  # which tells other processes where its server is
    done, told_of = LIVES[life]
    with receiving() as receiver:
        run = subprocess.run(
            [sys.executable, "-c", STEPS, kind, str(tmp_path), receiver.url, TESTS, SECRET, life],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        steps = int(run.stdout)
        assert steps >= 20
        with contextlib.closing(place.open()) as store:
            for name in ("whole", *(f"killed {step}" for step in range(1, steps + 1))):
                history = [(row.what, row.detail) for row in store.trials.history(name)]
                found = [one for one in history if one[0] != "version"]
                assert sorted(found) == sorted(done), name
                # An operator may change the share after the other instance has served the winner.
                assert [one for one in found if one[0] == "stopped"] == [one for one in done if one[0] == "stopped"], (
                    name
                )
                assert [what for what, _ in history].count("version") == 1
                told = Counter({one["id"]: one["type"] for one in receiver.bodies if one["trial"] == name}.values())
                assert told >= Counter(told_of), name
                assert all(number == max(told_of.count(what), 1) for what, number in told.items()), (name, told)
                assert [row for row in store.outbox.messages(name) if row.message.due is not None] == []
    assert receiver.forged == 0


@pytest.mark.parametrize("kind", available())
def test_another_takes_over_when_the_one_that_leads_is_killed(tmp_path: Path, kind: str) -> None:
    place: Kind = KINDS[kind](tmp_path)
    alive: dict[str, subprocess.Popen[str]] = {}
    with receiving() as receiver, contextlib.closing(place.open()) as store:
        trial = Trial.create(store, "t", k=3, seed=1, background=False)

        def begin() -> None:
            arguments = [sys.executable, "-c", WATCH, kind, str(tmp_path), receiver.url, TESTS, SECRET, "1.0"]
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            alive[process.stdout.readline().strip()] = process

        def holder() -> str:
            return str(store._database.select("SELECT holder FROM leases")[0][0])  # type: ignore[attr-defined]

        try:
            for _ in range(3):
                begin()
            for turn in range(3):
                wait_until(lambda turn=turn: len(receiver.kinds()) == turn + 1)  # type: ignore[misc]
                leader = holder()
                os.kill(alive[leader].pid, signal.SIGKILL)
                alive.pop(leader).wait()
                trial.set_share(0.1 * (turn + 1))
                wait_until(lambda leader=leader: holder() != leader)  # type: ignore[misc]
                begin()
            wait_until(lambda: len(receiver.kinds()) == 4)
        finally:
            for process in alive.values():
                process.kill()
                process.wait()
        assert_shares(receiver)
    assert_one_leads(tmp_path / "led.txt")


def assert_shares(receiver: Receiver) -> None:
    """Each change was told, in its order."""
    told = receiver.told()
    assert [kind for kind, _ in told] == ["started", *["share changed"] * 3]
    assert [text.partition("take part ")[2].partition(",")[0] for _, text in told[1:]] == [
        "1 -> 0.1", "0.1 -> 0.2", "0.2 -> 0.3",
    ]  # fmt: skip


def assert_one_leads(file: Path) -> None:
    """No process was given the lease while another took itself for the leader."""
    rows = sorted(
        (float(given), float(until), who) for who, given, until in map(str.split, file.read_text().splitlines())
    )
    assert len({who for _, _, who in rows}) >= 4
    for (_, until, before), (given, _, who) in pairwise(rows):
        assert who == before or given >= until
