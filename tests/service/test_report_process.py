"""Reports and refits of a service: in a process of their own, the same as in one's own, and no matter of life and death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from instances import told
from live_server import A, B, is_problem, rank, serving, start, wait_until
from ranktrial.service import report_process as module
from ranktrial.service.report_process import ReportFailed, ReportProcess
from ranktrial.service.trials import Trials
from ranktrial.store import SQLiteStore
from ranktrial.store.base import StoreError
from ranktrial.trial import Trial

METHOD = "LogOpt(schedule=(20,), holdback=0.5)"


def make(path: Path, units: int = 60) -> None:
    with Trial.create(path, "t", method=METHOD, k=3, seed=1, background=False) as trial:
        for unit in range(units):
            shown = trial.rank(f"q{unit % 7}", A, B, unit=str(unit))
            for document in shown.ranking[: unit % 3]:
                trial.click(shown.id, document, wait=False)
        trial.store.flush()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ReportProcess]:
    make(tmp_path / "t.db")
    made = ReportProcess(tmp_path / "t.db")
    yield made
    made.close()


def without_latency(report: Any) -> dict[str, Any]:
    found = report.to_dict()
    found["guardrails"] = [one for one in found["guardrails"] if one["name"] != "latency"]
    return dict(found)


@pytest.mark.slow
def test_a_report_is_the_one_that_a_trial_makes_itself_again_and_again(process: ReportProcess, tmp_path: Path) -> None:
    with Trial.open(tmp_path / "t.db", background=False) as trial:
        assert repr(without_latency(process.report("t", 10, []))) == repr(told(trial))
        trial.rank("another", A, B, unit="another", wait=True)
        second = process.report("t", 10, [7_000_000] * 100)
        assert second.impressions == 61
        assert repr(without_latency(second)) == repr(told(trial))
        (latency,) = (one for one in second.guardrails if one.name == "latency")
        assert "less than 7.00 ms" in latency.text
        trial.stop()
        assert process.report("t", 10, []).stopped
        trial.erase("asked for it", unit="3")
        assert process.report("t", 10, []).impressions == 60


@pytest.mark.slow
def test_refits_are_in_the_store_when_they_are_done(process: ReportProcess, tmp_path: Path) -> None:
    with Trial.open(tmp_path / "t.db", background=False, learner=process) as trial:
        trial.watcher.step()  # one is due
        assert [bias.impressions for bias in trial.store.biases.of(1)] == [0, 20]
        assert trial.state.policy.bias.impressions == 20
        assert not trial.learning._readers  # nothing was read here
        assert trial.update().impressions == 60


@pytest.mark.slow
def test_what_is_wrong_with_a_store_is_told_and_the_next_report_begins_anew(
    process: ReportProcess, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="holds no trial 'u'"):
        process.learn("u", 1, None, "somebody")
    assert process.report("t", 10, []).impressions == 60


def test_an_error_that_cannot_be_sent_is_told_in_words() -> None:
    class Odd(Exception):  # noqa: N818 (only here)
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    try:
        raise Odd(1, 2)
    except Odd as problem:
        told = module._portable(problem)
    assert (type(told), str(told)) == (RuntimeError, "Odd: 1 and 2")
    assert "raise Odd(1, 2)" in told.__notes__[0]


@pytest.mark.slow
def test_a_process_that_was_killed_costs_at_most_one_report(process: ReportProcess) -> None:
    assert process.report("t", 10, []).impressions == 60
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGSTOP)
    waiting = process.begin_report("t", 10, [])
    os.kill(process._process.pid, signal.SIGKILL)
    with pytest.raises(ReportFailed, match=r"ended \(status -9\)"):
        waiting.result()
    assert process.report("t", 10, []).impressions == 60


@pytest.mark.slow
def test_it_is_killed_when_it_takes_too_long_and_ends_with_whoever_asks(tmp_path: Path) -> None:
    make(tmp_path / "t.db")
    process = ReportProcess(tmp_path / "t.db", longest=0.0)
    with pytest.raises(ReportFailed, match="took longer than 0 s"):
        process.report("t", 10, [])
    process._longest = 100.0
    assert process.report("t", 10, []).impressions == 60
    child = process._process
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    running, waiting = process.begin_report("t", 10, []), process.begin_report("t", 10, [])
    os.kill(child.pid, signal.SIGCONT)
    process.close()
    assert child.poll() is not None
    assert running.done()
    with pytest.raises(CancelledError):
        waiting.result()


@pytest.mark.slow
def test_it_ends_when_whoever_asks_is_killed(tmp_path: Path) -> None:
    make(tmp_path / "t.db")
    code = """
import sys
from ranktrial.service.report_process import ReportProcess
process = ReportProcess(sys.argv[1])
process.report("t", 10, [])
print(process._process.pid, flush=True)
sys.stdin.read()
"""
    arguments = [sys.executable, "-c", code, str(tmp_path / "t.db")]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe) as asking:
        assert asking.stdout is not None
        assert asking.stderr is not None
        os.kill(int(asking.stdout.readline()), 0)  # it is there
        asking.kill()
        asking.stderr.read()  # which both have open: returns when both have ended


@pytest.mark.slow
def test_without_a_report_the_service_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SQLiteStore(tmp_path / "t.db").close()
    with serving(tmp_path / "t.db") as client:
        start(client)
        rank(client, "u")
        with monkeypatch.context() as broken:
            broken.setattr(module, "START", "raise SystemExit(3)")
            answer = client.get("/v1/trials/t/report")
            is_problem(answer, 500, says="the process that makes reports ended (status 3); nothing else is affected")
            assert rank(client, "v")["fallback"] is None
        assert client.get("/v1/trials/t/report").json()["impressions"] == 2


def test_a_refit_that_the_end_of_the_service_cuts_short_is_no_failure(tmp_path: Path) -> None:
    make(tmp_path / "t.db")
    process, store = ReportProcess(tmp_path / "t.db"), SQLiteStore(tmp_path / "t.db")
    trials = Trials(store, process)
    trials.open("t")  # a refit is due, for which a process is started
    wait_until(lambda: process._process is not None)
    trials.close()
    assert "background failures" not in store.tallies(1)
    assert [bias.impressions for bias in store.biases.of(1)] == [0]
    store.close()
