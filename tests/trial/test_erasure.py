"""Erased rows are gone: from the report, from memory, from the disk; the rest is as if they had never been."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from live_server import A, B, click, is_problem, rank, send, serving, start
from ranktrial.cli import app
from ranktrial.report.schema import Report
from ranktrial.store.base import Erased
from ranktrial.trial import Trial
from ranktrial.trial.history import this_user
from simulated_trial import Ticks, World

WORLD = World.make(queries=15)
OPTIONS: dict[str, Any] = {"k": 5, "seed": 1, "background": False, "timeout": 60.0, "method": "LogOpt(holdback=0.3)"}
PERSON, QUERY, DOCUMENT = "ann@example.com", "how to tell my doctor", "a-page-on-illness"


def search(trial: Trial, number: int) -> None:
    """A search of one person for what nobody else looks for, and a click."""
    documents = [DOCUMENT, *(f"d{n}" for n in range(9))]
    shown = trial.rank(f"{QUERY} {number}", documents, documents[::-1], unit=PERSON, size=5, wait=True)
    trial.click(shown.id, shown.ranking[0])


def numbers(report: Report) -> tuple[Any, ...]:
    return str(report.decision), report.interval, report.impressions, report.clicks, report.contributors, report.tallies


def test_an_erased_unit_leaves_no_trace_in_the_report(tmp_path: Path) -> None:
    """As if it had never come: the same numbers to the last bit, also in another process that had read it before."""
    with Trial.create(tmp_path / "t.db", clock=Ticks(), **OPTIONS) as trial:
        WORLD.run(trial, 500, seed=1)
        expected = trial.report()
        for number in range(7):
            search(trial, number)
        with Trial.open(tmp_path / "t.db", background=False) as other:
            assert other.report().impressions == 507
            trial.exclude(PERSON, "a mistake that names ann")
            assert trial.erase("asked for it", unit=PERSON) == Erased(7, 7)
            for one in (trial, other):
                report = one.report()
                assert numbers(report) == numbers(expected)
                _, entry = report.history
                erased = "erased a visitor (7 searches and 7 clicks, no longer in any number)"
                assert str(entry).endswith(f"UTC: {erased} by {this_user()}: asked for it")
                assert "no longer in any number" in str(report)


def test_nothing_of_it_is_left_on_the_disk(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", clock=Ticks(), **OPTIONS) as trial:
        WORLD.run(trial, 300, seed=1)
        for number in range(30):
            search(trial, number)
        WORLD.run(trial, 300, seed=2)

        def on_disk(text: str) -> bool:
            return any(text.encode() in one.read_bytes() for one in tmp_path.iterdir())

        assert (on_disk(QUERY), on_disk(DOCUMENT)) == (True, True)
        trial.erase("asked for it", unit=PERSON)
        assert (on_disk(QUERY), on_disk(DOCUMENT), on_disk("q1")) == (False, False, True)


def test_what_is_old_is_erased_and_the_rest_stays(tmp_path: Path) -> None:
    clock = Ticks()
    with Trial.create(tmp_path / "t.db", clock=clock, **OPTIONS) as trial:
        WORLD.run(trial, 400, seed=1)
        cut = float(trial.log().time[250]) / 1e6
        kept = trial.log().take(trial.log().time >= trial.log().time[250])
        assert trial.erase("kept for a day", before=cut).impressions == 250
        assert len(trial.log()) == 150
        assert trial.log().time.tolist() == kept.time.tolist()
        assert trial.log().clicks.tolist() == kept.clicks.tolist()
        assert trial.erase("kept for a day", before=cut) == Erased(0, 0)
        trial.erase("kept for a day", before=cut + 1)
        _, entry = trial.history()
        assert "everything before " in entry.detail
        assert entry.unit is None
        assert trial.rank("q", A, B, unit="new", wait=True).fallback is None


def test_somebody_who_comes_back_is_somebody_new(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        before = trial.rank("q", A, B, unit=PERSON, wait=True)
        trial.erase("asked for it", unit=PERSON)
        assert trial.click(before.id, before.ranking[0]).outcome == "void"
        again = trial.rank("another", A, B, unit=PERSON, wait=True)
        assert trial.click(again.id, again.ranking[0]).outcome == "counted"
        assert (trial.report().impressions, trial.report().clicks) == (1, 1)


@pytest.mark.parametrize("read", [Trial.report, Trial.log, Trial.update])
def test_what_another_process_erased_is_forgotten_where_the_log_is_read(
    tmp_path: Path, read: Callable[[Trial], Any]
) -> None:
    """Also without anything in the background."""
    with (
        Trial.create(tmp_path / "t.db", **OPTIONS) as trial,
        Trial.open(tmp_path / "t.db", background=False) as other,
    ):
        old = trial.rank("q", A, B, unit=PERSON, wait=True)
        other.erase("asked for it", unit=PERSON)
        read(trial)
        assert trial.click(old.id, old.ranking[0]).outcome == "void"
        new = trial.rank("q", A, B, unit=PERSON, wait=True)
        assert trial.report().impressions == 1, new


@pytest.mark.parametrize("erased", [{"unit": PERSON}, {"before": 1_000.0}])
def test_an_erased_id_does_not_count_after_the_same_search(tmp_path: Path, erased: dict[str, Any]) -> None:
    """The same person, query and lists are the same impression again, with an id of its own."""
    now = [500.0]
    with Trial.create(tmp_path / "t.db", **{**OPTIONS, "clock": lambda: now[0]}) as trial:
        old = trial.rank("q", A, B, unit=PERSON, wait=True)
        now[0] = 2_000.0
        trial.erase("asked for it", **erased)
        assert trial.click(old.id, old.ranking[0]).outcome == "void"
        now[0] = 3_000.0
        new = trial.rank("q", A, B, unit=PERSON, wait=True)
        assert new.id != old.id
        for shown, outcome in ((old, "void"), (new, "counted")):
            assert trial.click(shown.id, shown.ranking[1]).outcome == outcome
        assert trial.seen(old.id, old.ranking) == "void"
        report = trial.report()
        assert (report.impressions, report.clicks) == (1, 1)
        assert report.tallies["clicks on erased impressions"] == 2
    with Trial.open(tmp_path / "t.db", background=False) as later:
        assert later.click(old.id, old.ranking[2]).outcome == "void"
        assert later.report().clicks == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give either a unit or a time"),
        ({"unit": "u", "before": 1.0}, "give either a unit or a time"),
        ({"unit": ""}, "unit is '', must be text"),
        ({"before": "2999-01-01"}, "before is 32472144000.0, must be between 0 and"),
        ({"before": 1e12}, "before is 1000000000000.0, must be in seconds"),
        ({"before": "x"}, "before is 'x', must be"),
        ({"unit": "u", "reason": ""}, "reason is '', must be text"),
    ],
)
def test_what_cannot_be_erased(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        trial.rank("q", A, B, unit="u", wait=True)
        with pytest.raises(ValueError, match=says):
            trial.erase(**{"reason": "why", **given})
        assert (len(trial.log()), len(trial.history())) == (1, 1)


@pytest.mark.slow
def test_over_http(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as client, serving(tmp_path / "t.db") as other:
        start(client)
        shown = [rank(client, unit) for unit in ("ann", "bob", "bob ")]
        send(client, *(click(one["id"], one["ranking"][0]) for one in shown))
        assert other.get("/v1/trials/t/report").json()["impressions"] == 3
        answer = client.post("/v1/trials/t/erase", json={"unit": "ann", "reason": "ticket 4711"})
        assert answer.status_code == 200, answer.text
        assert [(one["what"], one["reason"]) for one in answer.json()["history"][1:]] == [("erased", "ticket 4711")]
        for one in (client, other):
            assert one.get("/v1/trials/t/report").json()["impressions"] == 2
        answer = client.post("/v1/trials/t/erase", json={"before": "2020-01-01", "reason": "old"})
        assert len(answer.json()["history"]) == 2  # there was nothing
        for body in (
            {"reason": "x"},
            {"unit": "a"},
            {"unit": "a", "before": "2020-01-01", "reason": "x"},
            {"before": "2999-01-01", "reason": "x"},
            {"before": "soon", "reason": "x"},
        ):
            is_problem(client.post("/v1/trials/t/erase", json=body), 422)
        is_problem(client.delete("/v1/trials/none"), 404)
        is_problem(client.delete("/v1/trials/t"), 409, says="trial 't' is running: stop it first")
        client.post("/v1/trials/t/stop")
        assert client.delete("/v1/trials/t").json() == {"impressions": 2, "clicks": 2, "events": 0}
        is_problem(client.get("/v1/trials/t/report"), 404)
        is_problem(client.delete("/v1/trials/t"), 404)
        assert send(client, click(shown[1]["id"], "a0"))[0]["outcome"] == "not ours"
        while other.get("/v1/trials/t/report").status_code != 404:  # within a second
            pass
        assert send(other, click(shown[1]["id"], "a0"))[0]["outcome"] == "not ours"
        start(client)
        assert rank(client, "ann")["fallback"] is None
        assert rank(other, "bob")["fallback"] is None
        assert client.get("/v1/trials/t/report").json()["impressions"] == 2


def test_on_the_command_line(tmp_path: Path) -> None:
    store = str(tmp_path / "t.db")
    for name in ("hats", "shoes"):
        with Trial.create(store, name, clock=Ticks(), **OPTIONS) as trial:
            for unit in ("ann", "bob"):
                trial.rank("q", A, B, unit=unit)

    def told(*arguments: str) -> Any:
        done = CliRunner().invoke(app, ["erase", store, *arguments, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    one = {"impressions": 1, "clicks": 0, "events": 0}
    assert told("--unit", "ann", "--reason", "asked") == {"hats": one, "shoes": one}
    assert told("--unit", "bob", "--reason", "asked", "--name", "hats") == {"hats": one}
    assert told("--before", "2020-01-01", "--reason", "old")["shoes"]["impressions"] == 0
    assert told("--keep-days", "30", "--reason", "old")["shoes"] == one  # of 1970 and later
    for arguments in (
        [],
        ["--unit", "a", "--before", "2020-01-01", "--reason", "x"],
        ["--unit", "a"],
        ["--everything"],
        ["--everything", "--name", "hats"],
        ["--unit", "a", "--reason", "x", "--name", "caps"],
    ):
        assert CliRunner().invoke(app, ["erase", store, *arguments]).exit_code == 2, arguments
    with Trial.open(store, "hats", background=False) as trial:
        trial.stop()
    done = CliRunner().invoke(app, ["erase", store, "--everything", "--name", "hats"])
    assert "hats: erased 0 searches and 0 clicks, and the trial" in done.stdout
    with Trial.open(store, background=False) as trial:  # the only one
        assert trial.name == "shoes"


def test_names_of_units_are_not_in_the_file(tmp_path: Path) -> None:
    """Only numbers that a keyed hash makes of them."""
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        shown = trial.rank("q", A, B, unit=PERSON, wait=True)
        trial.click(shown.id, shown.ranking[0])
        trial.exclude(PERSON, "a robot")
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"a robot" in raw
    assert PERSON.encode() not in raw
