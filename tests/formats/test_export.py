"""An export has every row that the trial counts, once, whatever happens on the way."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ranktrial.formats import layout, read_log
from ranktrial.formats.exporting import Exported, export
from ranktrial.formats.layout import DESIGNS, IMPRESSIONS, TABLES, LogFolder
from ranktrial.log import Log, apply_rules
from ranktrial.log.rules import Rules
from ranktrial.store.base import Event, ImpressionRow, LogRow, VoidRow
from ranktrial.store.sqlite_file import synced
from ranktrial.tokens import read_token
from ranktrial.trial import Trial
from ranktrial.trial.history import excluded_units
from simulated_trial import Ticks, World

WORLD = World.make(queries=6, k=3)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with Trial.create(
        tmp_path / "t.db", k=3, background=False, clock=Ticks(), seed=5, method="LogOpt(holdback=0.3)"
    ) as one:
        yield one


def rows(folder: Path) -> list[Any]:
    """Impressions of a folder as any reader of Parquet sees them, in order."""
    place = LogFolder(folder)
    names = ", ".join(IMPRESSIONS)
    return duckdb.execute(f"SELECT {names} FROM {place.scan('impressions')} ORDER BY time, impression").fetchall()


def counted(trial: Trial) -> list[Any]:
    """Pages and clicks of the trial's own log."""
    log = trial.log()
    table = []
    for at in range(len(log)):
        slots = [slot for slot in log.rankings[log.row[at]].tolist() if slot >= 0]
        arm = {1: "a", -1: "b", 0: None}[int(log.arm[at])]
        shown = [log.documents[log.document[slot]] for slot in slots]
        place = int(log.row[at] - log.row_offsets[log.design[at]])
        clicked = log.clicks[at].astype(int).tolist()[: len(slots)]
        table.append(
            (int(log.time[at]), int(log.unit[at]), log.queries[log.query[log.design[at]]], place, arm, shown, clicked)
        )
    return table


def exported(folder: Path) -> list[Any]:
    return [(r[2], r[4], r[5], r[7], r[8], r[9], r[10]) for r in rows(folder)]


def test_an_export_holds_what_the_trial_counts(trial: Trial, tmp_path: Path) -> None:
    WORLD.run(trial, 300, seed=1, users=80)
    done = export(trial.store, trial.name, tmp_path / "log")
    assert done.impressions == len(trial.log())
    assert exported(tmp_path / "log") == counted(trial)
    designs = duckdb.execute(f"SELECT * FROM read_parquet('{tmp_path}/log/designs/*.parquet')")
    assert [column[0] for column in designs.description] == list(DESIGNS)
    for row in (dict(zip(DESIGNS, one)) for one in designs.fetchall()):
        assert sum(row["probabilities"]) == pytest.approx(1, abs=1e-12)
        assert [row["documents"].index(id) + 1 for id in row["a"]] == row["rankings"][-6:-3]  # plain lists come last
        assert [row["rank_b"][row["documents"].index(id)] for id in row["b"]] == [1, 2, 3]


def test_a_second_run_adds_what_is_new_and_a_third_nothing(trial: Trial, tmp_path: Path) -> None:
    WORLD.run(trial, 100, seed=1)
    first = export(trial.store, trial.name, tmp_path / "log")
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "log").rglob("*.parquet")}
    WORLD.run(trial, 50, seed=2, start=100)
    second = export(trial.store, trial.name, tmp_path / "log")
    assert (first.impressions, second.impressions, second.rewritten) == (100, 50, 0)
    assert {file: file.stat().st_mtime_ns for file in files} == files  # what was there is not touched
    assert export(trial.store, trial.name, tmp_path / "log") == Exported()
    assert exported(tmp_path / "log") == counted(trial)


def test_clicks_and_voids_that_come_later_change_their_rows(trial: Trial, tmp_path: Path) -> None:
    shown = [trial.rank("q0", WORLD.a["q0"], WORLD.b["q0"], unit=f"u{i}", size=3, wait=True) for i in range(10)]
    trial.click(shown[0].id, shown[0].ranking[1])
    export(trial.store, trial.name, tmp_path / "log")
    trial.click(shown[0].id, shown[0].ranking[0])
    trial.click(shown[3].id, shown[3].ranking[2])
    trial.showing.take_back(shown[5], "not shown after all")
    trial.store.flush()
    done = export(trial.store, trial.name, tmp_path / "log")
    assert (done.impressions, done.rewritten) == (0, 1)
    assert exported(tmp_path / "log") == counted(trial)
    clicked = [row[10] for row in rows(tmp_path / "log")]
    assert clicked[0] == [1, 1, 0]
    assert clicked[3] == [0, 0, 1]
    assert len(clicked) == 9


def test_late_clicks_and_clicks_below_the_page_do_not_count(trial: Trial, tmp_path: Path) -> None:
    shown = trial.rank("q0", WORLD.a["q0"], WORLD.b["q0"], unit="u", wait=True)
    trial.click(shown.id, shown.ranking[0], time=1_700_000_000 + 90_000)
    trial.click(shown.id, shown.ranking[4])
    export(trial.store, trial.name, tmp_path / "log")
    assert rows(tmp_path / "log")[0][10] == [0, 0, 0]
    assert exported(tmp_path / "log") == counted(trial)


class Behind:
    """A store whose newest impressions cannot be read yet, as beside a trial that is writing them."""

    def __init__(self, store: Any, upto: int) -> None:
        self._store, self._upto = store, upto

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def rows(self, kind: type[LogRow], version: int, after: int) -> Iterator[LogRow]:
        rows = self._store.rows(kind, version, after)
        return (row for row in rows if row.id <= self._upto) if kind is ImpressionRow else rows


def test_clicks_that_are_there_before_their_impressions_wait_for_them(trial: Trial, tmp_path: Path) -> None:
    WORLD.run(trial, 200, seed=1)
    ahead = export(Behind(trial.store, 60), trial.name, tmp_path / "log")
    assert ahead.waiting > 0
    assert export(Behind(trial.store, 130), trial.name, tmp_path / "log").impressions == 70
    assert export(trial.store, trial.name, tmp_path / "log").waiting == 0
    assert exported(tmp_path / "log") == counted(trial)


def test_clicks_wait_in_a_folder_whose_path_looks_like_a_partition(trial: Trial, tmp_path: Path) -> None:
    WORLD.run(trial, 200, seed=1)
    folder = tmp_path / "date=2026-10-01" / "log"
    assert export(Behind(trial.store, 60), trial.name, folder).waiting > 0
    assert export(trial.store, trial.name, folder).waiting == 0
    assert exported(folder) == counted(trial)


class Growing(Behind):
    """A store to which a trial adds while it is read."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.store, 2**62)
        self.running, self.start = trial, 1000

    def rows(self, kind: type[LogRow], version: int, after: int) -> Iterator[LogRow]:
        if kind is VoidRow:
            self._more()
        for row in self._store.rows(kind, version, after):
            yield row
            if kind is ImpressionRow and row.id % 40 == 0:
                self._more()

    def _more(self) -> None:
        WORLD.run(self.running, 10, seed=self.start, start=self.start)
        self.start += 10


def test_an_export_beside_a_running_trial_has_each_row_once(trial: Trial, tmp_path: Path) -> None:
    WORLD.run(trial, 150, seed=1)
    growing = Growing(trial)
    for _ in range(3):
        export(growing, trial.name, tmp_path / "log")
    export(trial.store, trial.name, tmp_path / "log")
    assert exported(tmp_path / "log") == counted(trial)
    assert len({row[3] for row in rows(tmp_path / "log")}) == len(rows(tmp_path / "log"))


class Killed(BaseException):
    """Stand-in for kill -9 as seen from inside: nothing after it runs."""


@pytest.mark.slow
def test_an_export_killed_at_any_step_is_resumed(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that changes the folder is the last one once."""
    WORLD.run(trial, 60, seed=1)
    steps = 0
    for at in range(1, 1000):
        folder = tmp_path / f"log{at}"
        export(Behind(trial.store, 30), trial.name, folder)
        before = exported(folder)
        left = [at]

        def killing(call: Any, left: list[int] = left) -> Any:
            def called(*values: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed
                if left[0] < 0:
                    raise AssertionError("something ran after the kill")
                return call(*values, **options)

            return called

        with monkeypatch.context() as patch:
            patch.setattr("ranktrial.formats.layout.os.replace", killing(os.replace))
            patch.setattr("ranktrial.formats.layout.shutil.rmtree", killing(shutil.rmtree))
            patch.setattr(layout, "synced", killing(synced))
            patch.setattr(Path, "unlink", killing(Path.unlink))
            patch.setattr(Path, "write_text", killing(Path.write_text))
            patch.setattr("ranktrial.formats.exporting._NewRows.__exit__", lambda stage, *_: stage.db.close())
            try:
                export(trial.store, trial.name, folder)
            except Killed:
                steps += 1
                assert len(exported(folder)) in (len(before), len(counted(trial)))  # never half
            else:
                break
        export(trial.store, trial.name, folder)
        assert exported(folder) == counted(trial)
        assert not (folder / layout.ASIDE).exists()
    assert steps >= 10


EXPORTS_AND_DIES = """
import os, signal, sys
from ranktrial.trial import Trial
from ranktrial.formats import export, layout

store, folder, left = sys.argv[1], sys.argv[2], int(sys.argv[3])

def dying(call):
    def called(*values, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*values, **options)
    return called

layout.os.replace, layout.synced = dying(os.replace), dying(layout.synced)
with Trial.open(store, background=False) as trial:
    export(trial.store, trial.name, folder)
"""


@pytest.mark.slow
def test_processes_that_are_killed_beside_a_running_trial_leave_each_row_once(trial: Trial, tmp_path: Path) -> None:
    """kill -9 before, at and after the journal of a commit, until a run gets through; the trial goes on meanwhile."""
    folder, ends = tmp_path / "log", []
    for step in (1, 3, 5, 7, 1000):
        WORLD.run(trial, 40, seed=step, start=100 * step)
        trial.store.flush()
        command = [sys.executable, "-c", EXPORTS_AND_DIES, str(tmp_path / "t.db"), str(folder), str(step)]
        ends.append(subprocess.run(command, check=False).returncode)
    assert ends == [-signal.SIGKILL] * 4 + [0]
    assert exported(folder) == counted(trial)
    assert len({row[3] for row in rows(folder)}) == len(rows(folder)) == 200


def test_a_damaged_design_leaves_its_impressions_out(trial: Trial, tmp_path: Path) -> None:
    WORLD.run(trial, 50, seed=1)
    trial.close()
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("UPDATE designs SET query = 'other' WHERE id = 1")
    with Trial.open(tmp_path / "t.db", background=False) as again:
        done = export(again.store, again.name, tmp_path / "log")
        assert done.damaged > 0
        assert done.damaged == again.log().left_out["damaged impressions"]
        assert exported(tmp_path / "log") == counted(again)


def test_each_trial_has_a_folder_of_its_own(trial: Trial, tmp_path: Path) -> None:
    export(trial.store, trial.name, tmp_path / "log")
    trial.store.trials.add("another", b"secret")
    with pytest.raises(ValueError, match="holds the log of trial 'trial', not of 'another'"):
        export(trial.store, "another", tmp_path / "log")


def test_one_process_writes_at_a_time(trial: Trial, tmp_path: Path) -> None:
    with LogFolder(tmp_path / "log").writing(), pytest.raises(ValueError, match="is being written by another process"):
        export(trial.store, trial.name, tmp_path / "log")


def test_the_page_on_logs_documents_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/log-formats.md").read_text(encoding="utf-8")
    for columns in TABLES.values():
        for name, (kind, what) in columns.items():
            assert f"| `{name}` | {kind} | {what} |" in page


def test_units_that_are_excluded_are_in_the_files_and_left_out_of_what_is_read(trial: Trial, tmp_path: Path) -> None:
    WORLD.run(trial, 100, seed=1, users=10)
    trial.exclude("u3", "a robot")
    export(trial.store, trial.name, tmp_path / "log")
    folder = LogFolder(tmp_path / "log")
    log = trial.log()
    kept, _ = apply_rules(log, Rules(), excluded_units(trial.store, trial.name))
    assert 0 < len(kept) < len(log)
    assert len(read_log(folder.path)) == len(rows(tmp_path / "log")) == len(kept)
    count = f"SELECT count(*) FROM {folder.scan('impressions', everyone=True)}"
    assert duckdb.execute(count).fetchall() == [(len(log),)]
    trial.include("u3", "it was a person")
    assert export(trial.store, trial.name, tmp_path / "log").impressions == 0
    assert exported(tmp_path / "log") == counted(trial)


def test_an_export_says_that_units_were_erased_since_its_folder_was_begun(trial: Trial, tmp_path: Path) -> None:
    """Retention is no erasure of a person: a store may be kept short and its log long."""
    WORLD.run(trial, 60, seed=1)
    folder, store = tmp_path / "log", trial.store
    trial.erase("asked for before", unit="user 1")
    before = export(store, trial.name, folder)
    assert (before.impressions, before.erased) == (len(trial.log()), 0)
    unit = trial.log().unit[0]
    gone = trial.erase("asked for", unit=f"#{int(unit) % 2**64:016x}").impressions
    assert 0 < gone == export(store, trial.name, folder).erased == export(store, trial.name, folder).erased
    assert len(rows(folder)) == before.impressions  # still there
    trial.erase("retention", before=1.0)
    assert export(store, trial.name, folder).erased == gone
    shutil.rmtree(folder)
    again = export(store, trial.name, folder)
    assert (again.impressions, again.erased) == (before.impressions - gone, 0)


def test_an_export_keeps_the_attributes_of_searches(tmp_path: Path) -> None:
    """Also of searches whose file is written anew, and of a value that no search should have."""
    options: Any = {"k": 3, "background": False, "clock": Ticks(), "seed": 5}
    segments = {"device": ["phone", "desktop"], "query": "head/tail"}
    with Trial.create(tmp_path / "t.db", segments=segments, **options) as trial:
        shown = []
        for at, device in enumerate(["desktop", "phone", "fridge", None, "phone"]):
            given = None if device is None else {"device": device}
            shown.append(trial.rank("q0", WORLD.a["q0"], WORLD.b["q0"], unit=f"u{at}", wait=True, segment=given))
        export(trial.store, trial.name, tmp_path / "log")
        trial.click(shown[1].id, shown[1].ranking[0])
        trial.store.flush()
        assert export(trial.store, trial.name, tmp_path / "log").rewritten == 1
        own, log = trial.log(), read_log(tmp_path / "log")
    assert log.attributes.attributes == own.attributes.attributes
    assert log.segment.tolist() == own.segment.tolist()
    assert log.levels("device").tolist() == [2, 1, 0, 0, 1]


def happened(log: Log) -> list[tuple[int, int, str, int, int]]:
    """Impression, rank, action, amount and delay of every event."""
    events = log.events
    columns = (column.tolist() for column in (events.at, events.rank, events.action, events.amount, events.delay))
    return sorted((at, rank, log.actions[action], amount, delay) for at, rank, action, amount, delay in zip(*columns))


def test_an_export_keeps_events_however_late_they_come(trial: Trial, tmp_path: Path) -> None:
    """Orders, refunds and times of clicks are rows of their own: no file is written anew for them."""
    shown = [trial.rank("q0", WORLD.a["q0"], WORLD.b["q0"], unit=f"u{i}", size=3, wait=True) for i in range(3)]
    start = trial.log().time.tolist()

    def event(at: int, rank: int, amount: int, id: str, delay: int = 60_000_000) -> None:
        token = read_token(shown[at].id, trial.state.secret)
        assert token is not None
        document = shown[at].ranking[rank] if rank < 3 else "elsewhere"
        moment = start[at] + delay
        trial.store.put(Event(token.key, token.version, document, "order", id, amount, moment, token.second)).result(10)

    event(0, 1, 39_900_000, "1")
    event(0, 3, 5_000_000, "2")  # on nothing that was shown
    done = export(trial.store, trial.name, tmp_path / "log", clock=lambda: 2e9)
    assert (done.impressions, done.events) == (3, 2)
    event(0, 1, -9_900_000, "3", delay=86_400_000_000)
    event(0, 1, 1, "1")  # again
    event(2, 0, 0, "1", delay=-5_000_000)  # by a clock that is behind
    trial.showing.take_back(shown[2], "not shown after all")
    trial.store.flush()
    done = export(trial.store, trial.name, tmp_path / "log", clock=lambda: 2e9 + 1)
    assert (done.impressions, done.events, done.rewritten) == (0, 2, 1)
    log = read_log(tmp_path / "log")
    assert happened(log) == [(0, 1, "order", -9_900_000, 86_400_000_000), (0, 1, "order", 39_900_000, 60_000_000)]
    assert log.read_at == 2_000_000_001_000_000
    assert export(trial.store, trial.name, tmp_path / "log") == Exported()
