"""Several instances on one store: what one does the others take over, and killing any of them loses nothing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import instances
from live_server import A, B, click, rank, send, serving, start
from postgres_server import Server
from ranktrial.trial import Trial
from store.kinds import InPostgres, Kind


@pytest.fixture
def pair(kind: Kind) -> Iterator[tuple[Trial, Trial]]:
    """One trial in two processes' stores, which refit position bias after 3 and 9 impressions."""
    method = "LogOpt(schedule=(3, 9))"
    with contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(
                Trial.create(kind.open(), k=3, seed=4, method=method, background=False, timeout=60, own_store=True)
            )
            for _ in range(2)
        )
        yield one, two


def show(trial: Trial, *units: int) -> None:
    for unit in units:
        shown = trial.rank("q", A, B, unit=f"u{unit}", wait=True)
        assert shown.fallback is None
        trial.click(shown.id, shown.ranking[unit % 3])


@pytest.mark.slow
def test_a_refit_is_made_once_and_taken_over_by_all(pair: tuple[Trial, Trial]) -> None:
    one, two = pair
    show(one, 0, 1)
    show(two, 2, 3)
    one.watcher.step()
    show(two, 4, 5)
    two.watcher.step()  # has more clicks than the first had, and must not fit its own for the same point
    assert [bias.impressions for bias in one.store.biases.of(1)] == [0, 3]
    assert one.state.policy.bias == two.state.policy.bias
    show(two, *range(6, 12))
    # Both find it due and fit, each with the log that it knows; the one that comes second takes over the first's.
    for trial in (one, two):
        trial.state.count_searches()
    two.watcher.update(two.watcher.due(), "the schedule")
    late = one.watcher.update(one.watcher.due(), "the schedule")
    assert late == two.state.policy.bias == one.state.policy.bias
    assert [bias.impressions for bias in one.store.biases.of(1)] == [0, 3, 9]


def test_a_retry_at_another_instance_shows_the_same_though_it_knows_another_theta(pair: tuple[Trial, Trial]) -> None:
    one, two = pair
    show(one, *range(12))
    one.update()
    assert one.state.policy.bias != two.state.policy.bias
    for unit in map(str, range(40)):
        first = one.rank("another", A, B, unit=unit, wait=True)
        second = two.rank("another", A, B, unit=unit, wait=True, look=False)
        assert (second.id, second.ranking, second.fallback) == (first.id, first.ranking, None)
    assert len(one.log()) == 52
    assert "void impressions" not in one.report().tallies


@pytest.mark.slow
def test_services_on_one_postgres_know_each_other_s_trials_versions_clicks_and_end(tmp_path: Path) -> None:
    place = InPostgres(tmp_path)
    with serving(place.url) as here, serving(place.url) as there:  # type: ignore[arg-type]
        start(here)
        shown = rank(here, "u")
        (result,) = send(there, click(shown["id"], shown["ranking"][0]))  # judged by what the other one showed
        assert result["outcome"] == "counted"
        assert rank(there, "u") == shown
        (result,) = send(there, click(shown["id"], "nothing of ours"))
        assert result["outcome"] == "not shown"
        start(there, k=2, new_version=True)
        here.app.state.trials.refresh()  # type: ignore[attr-defined]
        newer = rank(here, "v")
        assert len(newer["id"]) == len(shown["id"])
        (result,) = send(here, click(shown["id"], shown["ranking"][1]))  # an earlier version's still count
        assert result["outcome"] == "counted"
        reports = [client.get("/v1/trials/t/report").json() for client in (here, there)]
        assert [(one["version"], one["impressions"]) for one in reports] == [(2, 1)] * 2
        assert there.post("/v1/trials/t/stop").status_code == 200
        for trial in (here.app.state.trials.opened["t"], there.app.state.trials.opened["t"]):  # type: ignore[attr-defined]
            trial.watcher.step()
        assert rank(here, "w")["fallback"] == "the trial is stopped, A is shown"


@pytest.mark.slow
def test_killed_and_restarted_under_load_nothing_is_lost_and_nothing_counts_twice(tmp_path: Path) -> None:
    """A small one; ``python -m benchmarks instances`` has three instances, thirty kills and two restarts."""
    try:
        server = Server()
    except FileNotFoundError as problem:
        pytest.skip(str(problem))
    try:
        done = instances.run(server, tmp_path, instances=2, kills=2, restarts=2, visitors=4, pause=0.5, seed=3)
    finally:
        server.remove()
    assert (done.lost, done.twice, done.unexpected, done.same_report) == (0, 0, 0, True)
    assert done.impressions > 50
    assert done.refits > 1
    assert (done.kills, done.restarts) == (4, 2)


@pytest.mark.slow
def test_an_instance_waits_for_a_database_that_is_only_just_starting() -> None:
    """The command itself, keys and all: it has asked the database in vain when that is started."""
    server = Server()
    try:
        url = server.url("late")
        Trial.create(url, "t", k=3, background=False).close()
        server.stop()
        code = "from ranktrial.cli import main; main()"
        asked = [sys.executable, "-c", code, "serve", url, "--port", "0"]
        with subprocess.Popen(asked, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                first = json.loads(process.stderr.readline())
                assert first["event"] == "waiting for the store"
                assert "No such file or directory" in first["problem"]  # the server's socket
                server.start()
                while (line := json.loads(process.stderr.readline()))["event"] != "listening":
                    pass
                with httpx.Client(base_url=line["page"], timeout=60) as client:
                    assert [one["name"] for one in client.get("/v1/trials").json()["trials"]] == ["t"]
            finally:
                process.kill()
    finally:
        server.remove()
