"""Particulars of the store in PostgreSQL: order of rows, partitions, restarts, addresses, schema versions, keys."""

from __future__ import annotations

import contextlib
import inspect
import json
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from postgres_server import PASSWORD, Server
from ranktrial.cli import app
from ranktrial.log.designs import Design
from ranktrial.service.postgres_keys import KeyTable
from ranktrial.store import name_of, open_store
from ranktrial.store.base import (
    Click,
    ClickRow,
    Entry,
    Event,
    EventRow,
    Impression,
    ImpressionRow,
    Nothing,
    StoredClicks,
    StoreError,
    StoreUnavailable,
    Void,
    VoidRow,
)
from ranktrial.store.migrations import FIRST
from ranktrial.store.postgres import PostgresStore, database
from ranktrial.store.postgres import store as module
from ranktrial.store.postgres.batch import write
from ranktrial.store.postgres.connection import Address, Connection
from ranktrial.store.postgres.schema import MIGRATIONS, month_of
from ranktrial.trial import Trial
from store.kinds import DESIGN, InPostgres, failure, impression, key

RUN = CliRunner()
NOVEMBER, DECEMBER = 1_952_000_000, 1_955_000_000  # seconds of 2031


@pytest.fixture
def kind(tmp_path: Path) -> InPostgres:
    return InPostgres(tmp_path)


@pytest.fixture
def store(kind: InPostgres) -> Iterator[PostgresStore]:
    with contextlib.closing(kind.open()) as made:
        yield made


@pytest.fixture
def other(kind: InPostgres, store: PostgresStore) -> Iterator[Connection]:
    with contextlib.closing(kind.holding()) as made:
        yield made


def order(number: int, time: int = 0, *, public: bool = False) -> Event:
    return Event(key(number), 1, "x", "order", "order 1", 7, time * 1_000_000, NOVEMBER, public)


def at(number: int, second: int, place: int = 0) -> Impression[Any]:
    return Impression(key(number), 1, DESIGN, place, number, second * 1_000_000 + number)


# --- order ------------------------------------------------------------------------------------------------------------------


def test_no_row_appears_behind_the_place_up_to_which_a_reader_was(
    kind: InPostgres, store: PostgresStore, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that drew its ids first may end last; whoever read meanwhile must find its rows later."""
    monkeypatch.setattr(database, "OTHERS_END", 0.0)
    store.put(impression(1)).result()
    with contextlib.closing(kind.open()) as slow:
        other.execute(
            """CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
               $$BEGIN IF NEW.reason = 'wait' THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN NEW; END$$"""
        )
        other.execute("CREATE TRIGGER wait BEFORE INSERT ON voids FOR EACH ROW EXECUTE FUNCTION wait()")
        other.commit()
        other.execute("SELECT pg_advisory_xact_lock(1)")
        waiting = slow.put(Void(key(9), 1, "wait", 9))
        while other.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            assert not waiting.done()
        store.put(impression(2)).result()  # drawn after the void's id, committed before it
        read = [row.key for row in store.rows(ImpressionRow, 1, 0)]
        assert read == [key(1)]
        last = next(iter(store.rows(ImpressionRow, 1, 0))).id
        assert store.count(1, 0)[:2] == (1, last)
        other.rollback()
        waiting.result(60)
    assert [row.key for row in store.rows(ImpressionRow, 1, last)] == [key(2)]
    assert [row.key for row in store.rows(VoidRow, 1, last)] == [key(9)]


def test_what_was_acknowledged_before_is_read_though_others_are_writing(kind: InPostgres, store: PostgresStore) -> None:
    stop = threading.Event()

    def write(number: int) -> None:
        with contextlib.closing(kind.open()) as mine:
            while not stop.is_set():
                number += 2
                mine.put(impression(number)).result(60)

    writers = [threading.Thread(target=write, args=(1_000_000 * first,)) for first in (1, 2)]
    for writer in writers:
        writer.start()
    after = 0
    for number in range(50):
        store.put(impression(number)).result(60)
        rows = list(store.rows(ImpressionRow, 1, after))
        assert key(number) in {row.key for row in rows}
        after = rows[-1].id
    stop.set()
    for writer in writers:
        writer.join()


# --- partitions -------------------------------------------------------------------------------------------------------------


def partitions(other: Connection) -> dict[str, int]:
    other.rollback()
    names = [row[0] for row in other.execute("SELECT inhrelid::regclass::text FROM pg_inherits ORDER BY 1")]
    mine = [
        name
        for name in names
        if name.startswith(("impressions_203", "clicks_203", "events_203")) and not name.endswith("key")
    ]
    return {
        name: (other.execute(f"SELECT count(*) FROM {name}").fetchone() or (0,))[0]
        for name in mine
        if "idx" not in name
    }


def test_months_have_partitions_that_are_made_in_time(store: PostgresStore, other: Connection) -> None:
    store.put(at(1, NOVEMBER))
    store.put(Click(key(1), 1, "x", False, None, NOVEMBER))
    store.put(order(1, DECEMBER - 1))  # of the month of its impression
    store.flush()
    made = {f"{table}_2031_{month}" for table in ("impressions", "clicks", "events") for month in (11, 12)}
    assert partitions(other) == {name: int(name.endswith("11")) for name in made}
    store.put(at(2, DECEMBER)).result()
    assert partitions(other)["impressions_2031_12"] == 1
    assert "impressions_2032_01" in partitions(other)
    assert [row.key for row in store.rows(ImpressionRow, 1, 0)] == [key(1), key(2)]


def test_the_same_impression_a_month_later_is_the_same(kind: InPostgres, store: PostgresStore) -> None:
    """The key survives the partitions: a retry, and clicks on what it shows, belong to the month of the first."""
    store.put(at(1, NOVEMBER)).result()
    with contextlib.closing(kind.open()) as later:
        again = Impression(key(1), 1, DESIGN, 1, 1, DECEMBER * 1_000_000, looked=False)
        stored = later.put(again)
        stored.result()
        assert stored.again
        found = later.impression(key(1))
        assert found is not None
        assert (found.time, found.place, later.void(key(1))) == (NOVEMBER * 1_000_000 + 1, 0, None)
        for _ in range(2):
            later.put(StoredClicks(1, (Click(key(1), 1, "x", False, None, NOVEMBER), order(1)))).result()
        assert (
            later.count(1, 0).impressions,
            len(list(later.rows(ClickRow, 1, 0))),
            len(list(later.rows(EventRow, 1, 0))),
        ) == (
            1,
            1,
            1,
        )
        assert later.tallies(1) == {"duplicate clicks": 1, "duplicate events": 1}


def test_instances_that_need_the_same_new_month_at_once(kind: InPostgres) -> None:
    stores = [kind.open() for _ in range(4)]
    futures = [one.put(at(number, NOVEMBER)) for number, one in enumerate(stores)]
    for future in futures:
        future.result(60)
    assert stores[0].count(1, 0).impressions == 4
    for one in stores:
        one.close()


def test_times_that_make_no_sense_are_refused_alone(store: PostgresStore) -> None:
    with pytest.raises(ValueError, match="time is -1 s"):
        month_of(-1)
    good, bad = store.put(at(1, NOVEMBER)), store.put(at(2, 10**13))
    good.result()
    assert isinstance(failure(bad), ValueError)


# --- rows -------------------------------------------------------------------------------------------------------------------


def test_any_text_comes_back_as_it_was(store: PostgresStore) -> None:
    texts = ["", "a\0b", "\x1a", "\x1a0\0\x1a1", "\\", "'; --", "\U0001f45f" * 1000, "x" * 1000]
    for number, text in enumerate(texts):
        design = Design(text, 1, DESIGN.documents, DESIGN.a, DESIGN.b, DESIGN.rankings, DESIGN.weights, ())
        store.put(Impression(key(number), 1, design, 0, 0, 0))
        store.put(StoredClicks(1, (Click(key(number), 1, text, False), Click(key(number), 1, text, False))))
        store.trials.add_history("shoes", Entry(0, "excluded", 0, text))
    store.flush()
    assert [row.document for row in sorted(store.rows(ClickRow, 1, 0), key=lambda row: row.key)] == texts
    assert [row.reason for row in store.trials.history("shoes")] == texts
    found = [store.impression(key(number)) for number in range(len(texts))]
    assert [one.design.query for one in found if one is not None] == texts


def test_a_design_that_somebody_deleted_is_stored_again(store: PostgresStore, other: Connection) -> None:
    store.put(impression(1)).result()
    other.execute("DELETE FROM designs")
    other.commit()
    store.put(impression(2)).result()
    found = store.impression(key(2))
    assert found is not None
    assert found.design.digest == DESIGN.digest


def test_a_server_that_would_lose_commits_is_told_not_to(kind: InPostgres) -> None:
    lazy = kind.url + "&options=-csynchronous_commit%3Doff"
    with contextlib.closing(PostgresStore(lazy)) as store:
        assert store._database.select("SHOW synchronous_commit") == [("on",)]


# --- restarts ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        made = Server()
    except FileNotFoundError as problem:
        pytest.skip(str(problem))
    yield made
    made.remove()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_is_survived_and_nothing_is_lost_or_counted_twice(server: Server, mode: str) -> None:
    with contextlib.closing(PostgresStore(server.url(mode), write_timeout=60)) as store:
        store.put(at(0, NOVEMBER)).result()
        assert store.impression(key(0)) is not None  # a connection that will be idle when the server stops
        server.stop(mode)
        waiting = [store.put(at(number, NOVEMBER)) for number in range(1, 100)]
        waiting += [store.put(Click(key(0), 1, "x", False, None, NOVEMBER)), store.put(order(0))]
        store.tally(1, "meanwhile")
        with pytest.raises(StoreUnavailable):
            store.impression(key(0))
        server.start()
        for future in waiting:
            future.result(60)
        store.put(Click(key(0), 1, "x", False, None, NOVEMBER)).result(60)
        store.put(order(0)).result(60)
        while True:  # the connection may be tried again only a moment later
            with contextlib.suppress(StoreUnavailable):
                assert store.impression(key(0)) is not None
                break
        assert store.count(1, 0).impressions == 100
        assert [row.key for row in store.rows(EventRow, 1, 0)] == [key(0)]
        assert store.tallies(1) == {"meanwhile": 1, "duplicate clicks": 1, "duplicate events": 1}


@pytest.mark.parametrize("simple", [True, False])
def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, simple: bool
) -> None:
    """The connection breaks before a batch is sent, then before its answer comes: each row and each tally is there once."""
    store.put(impression(0)).result()
    broken: list[str] = []

    def fail(connection: Connection, *arguments: Any) -> frozenset[bytes] | None:
        if len(broken) < 2:
            broken.append("before" if not broken else "after")
            if len(broken) == 2:
                write(connection, *arguments)
            connection.close()
            raise psycopg.OperationalError("the connection is lost")
        return write(connection, *arguments)

    monkeypatch.setattr(module, "write", fail)
    store.tally(1, "once", soon=False)
    clicks = [Click(key(0), 1, "x", False)] * 2 + [Click(key(0), 1, "junk", False, limit=5)] * (not simple)
    events = [order(0)] * 2 + [order(1, public=True)] * (not simple)
    store.put(StoredClicks(1, (*clicks, *events))).result(60)
    assert broken == ["before", "after"]
    assert store.tallies(1) == {"once": 1, "duplicate clicks": 1, "duplicate events": 1}
    assert len(list(store.rows(ClickRow, 1, 0))) == len(list(store.rows(EventRow, 1, 0))) == 1 + (not simple)
    again = store.put(Impression(key(7), 1, DESIGN, 0, 7, 7, looked=False))
    again.result(60)
    assert not again.again


def test_a_server_that_is_silent_does_not_hold_anybody_up(
    kind: InPostgres, store: PostgresStore, other: Connection
) -> None:
    with contextlib.closing(PostgresStore(kind.url, read_timeout=60, write_timeout=60)) as hasty:
        hasty.put(impression(1)).result()
        other.execute("LOCK TABLE impression_keys")  # not even readable
        hasty._server.patience, hasty._server.write_timeout = 0.05, 0.2
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"in time|be reached in"):  # a busy machine connects slowly
                hasty.impression(key(1))
            with pytest.raises(StoreUnavailable, match="in time"):
                hasty.put(impression(2)).result(60)
        other.rollback()
        hasty._server.patience = hasty._server.write_timeout = 60  # however busy the machine is
        assert hasty.impression(key(1)) is not None
        hasty.put(impression(2)).result()
        assert hasty.tallies(1) == {"failed writes": 2}


KILLED = """
import sys
from itertools import count
from ranktrial.store.postgres import PostgresStore
from ranktrial.trial import Trial

store = PostgresStore(sys.argv[1], write_timeout=600, read_timeout=600)
trial = Trial.open(store, background=False, timeout=0.01)
for number in count():  # of some, the row is taken back before it is written: then another one waits
    shown = trial.rank("q", ["x", "y", "z"], ["z", "x", "w"], unit=str(number), wait=True)
    print(shown.fallback, flush=True)
"""


@pytest.mark.slow
def test_what_waits_when_its_process_is_killed_is_not_stored_afterwards(
    kind: InPostgres, store: PostgresStore, other: Connection
) -> None:
    """The visitor has seen A's list. The server notices that the process is gone, and ends its transaction."""
    Trial.create(kind.url, "t", k=3, background=False).close()
    other.execute("LOCK TABLE impression_keys IN SHARE MODE")
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    held = f"SELECT 1 FROM pg_locks WHERE pid = {other.info.backend_pid} AND mode = 'ShareLock' AND granted"
    command = [sys.executable, "-c", KILLED, kind.url]
    with (
        psycopg.connect(**Address.read(kind.url).parameters, autocommit=True) as looking,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child,
    ):
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "the store did not answer in time\n"
            while not looking.execute(waiting).fetchall():
                assert child.poll() is None, "the process ended before anything of it waited"
                assert looking.execute(held).fetchall(), "the lock is gone: nothing will wait for it"
                time.sleep(0.01)
        finally:
            child.kill()
        child.wait()
        limit = time.monotonic() + 60
        while looking.execute(waiting).fetchall():
            assert time.monotonic() < limit, "what the dead process asked for still waits"
            time.sleep(0.01)
    other.rollback()
    store.put(impression(1)).result()  # comes after whatever else had waited
    assert [row.key for row in store.rows(ImpressionRow, 1, 0)] == [key(1)]


def test_the_server_notices_a_dead_process_before_an_answer_would_be_late(
    kind: InPostgres, store: PostgresStore
) -> None:
    """So rows that are stored after the death of their process are those of answers that had not waited too long."""
    with psycopg.connect(**Address.read(kind.url).parameters) as one:
        (told,) = one.execute(
            "SELECT setting::int8 FROM pg_settings WHERE name = 'client_connection_check_interval'"
        ).fetchone() or (0,)
    assert 0 < told < 1000 * inspect.signature(Trial.__init__).parameters["timeout"].default


def test_rank_shows_a_while_there_is_no_server_and_recovers(server: Server) -> None:
    a, b = ["x", "y", "z"], ["z", "x", "w"]
    with Trial.create(server.url("rank"), k=3, background=False, timeout=60) as trial:
        assert isinstance(trial.store, PostgresStore)
        trial.store._server.patience = 60  # however busy the machine is
        first = trial.rank("q", a, b, unit="u", wait=True)
        assert first.fallback is None
        trial._timeout = 0.05
        server.stop("immediate")
        for unit in ("v", "u2"):
            shown = trial.rank("q", a, b, unit=unit, wait=True)
            assert shown.ranking == a
            assert shown.fallback in ("the store is not available", "the store did not answer in time")
        server.start()
        trial._timeout = 60
        while trial.rank("q", a, b, unit="w", wait=True).fallback is not None:
            time.sleep(0.05)
        again = trial.rank("q", a, b, unit="u", wait=True)
        assert (again.id, again.ranking) == (first.id, first.ranking)


# --- addresses and schemas --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/db",
        f"postgres://me:{PASSWORD}/{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://me:{PASSWORD}@[::1/db",
        f"postgresql://me@127.0.0.1:1/db?password={PASSWORD}&sslmode=nonsense",
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/db?{PASSWORD}",
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/db?schema=%22",
    ],
)
@pytest.mark.parametrize(
    "command", [["report"], ["serve"], ["migrate"], ["keys", "list"], ["keys", "add", "--scope", "read"]]
)
def test_no_message_tells_the_password(url: str, command: list[str]) -> None:
    done = RUN.invoke(app, [*command, url])
    assert done.exit_code == 2, done.output
    assert "error:" in done.stderr
    assert PASSWORD not in done.output
    with pytest.raises(StoreError) as problem:
        open_store(url)
    assert PASSWORD not in "".join(traceback.format_exception(problem.value))


def test_an_address_is_shown_without_password() -> None:
    assert (
        name_of(f"postgresql://me:{PASSWORD}@db.example:5433/shop?schema=s1")
        == "postgresql://me@db.example:5433/shop?schema=s1"
    )
    assert name_of("postgres:///shop") == "postgresql:///shop"
    assert name_of(Path("shoes.db")) == "shoes.db"


def test_a_schema_of_the_future_and_one_of_the_past(kind: InPostgres, other: Connection) -> None:
    other.execute("UPDATE store_schema SET version = 99")
    other.commit()
    with pytest.raises(StoreError, match=f"has schema 99, this ranktrial knows up to {FIRST}: use a newer ranktrial"):
        kind.open()
    done = RUN.invoke(app, ["migrate", kind.url])
    assert (done.exit_code, PASSWORD in done.output) == (2, False)
    assert "use a newer ranktrial" in done.stderr


def test_a_store_of_before_the_first_release_is_refused(kind: InPostgres, other: Connection) -> None:
    other.execute("ALTER TABLE store_schema RENAME TO schema_version")
    other.commit()
    with pytest.raises(StoreError, match="was made by a ranktrial of before its first release"):
        kind.open()
    done = RUN.invoke(app, ["migrate", kind.url])
    assert (done.exit_code, "begin new trials in a new store" in " ".join(done.stderr.split())) == (2, True)


def test_an_older_schema_waits_for_the_command(
    kind: InPostgres, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = FIRST
    done = RUN.invoke(app, ["migrate", kind.url])
    assert f"has schema {now} already" in " ".join(done.stdout.split())
    monkeypatch.setattr(database, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE more (x integer)"))
    with pytest.raises(StoreError, match=rf"has schema {now}, this ranktrial needs {now + 1}.*ranktrial migrate"):
        kind.open()
    done = RUN.invoke(app, ["migrate", kind.url, "--json"])
    assert json.loads(done.stdout) == {"store": name_of(kind.url), "before": now, "after": now + 1}
    kind.open().close()


def test_a_schema_of_development_is_refused(kind: InPostgres, store: PostgresStore, other: Connection) -> None:
    other.execute("UPDATE store_schema SET version = %s", (FIRST - 1,))
    other.commit()
    with pytest.raises(StoreError, match="of before its first release"):
        kind.open(upgrade=True)


def test_other_people_s_tables_are_left_alone(kind: InPostgres) -> None:
    address = Address.read(kind.url)
    with Connection.to(address) as theirs:
        theirs.execute(f"CREATE SCHEMA {address.schema}")
        theirs.execute("CREATE TABLE trials (theirs integer)")
    with pytest.raises(StoreError, match="something else"):
        kind.open()


def test_what_does_not_exist_is_not_made_by_reading(kind: InPostgres) -> None:
    with pytest.raises(StoreError, match="holds no trials"):
        Trial.open(kind.url)
    with Connection.to(Address.read(kind.url)) as other:
        found = other.execute("SELECT to_regnamespace(%s) IS NULL", (Address.read(kind.url).schema,)).fetchone()
        assert found == (True,)


def test_stores_that_are_opened_at_once_are_made_once(kind: InPostgres) -> None:
    made: list[PostgresStore] = []
    threads = [threading.Thread(target=lambda: made.append(kind.open())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in made:
        one.put(Nothing()).result(60)
        one.close()
    assert len(made) == 4


# --- keys -------------------------------------------------------------------------------------------------------------------


def test_keys_are_in_the_database(kind: InPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(RUN.invoke(app, ["keys", "list", kind.url, "--json"]).stdout) == []
    key = RUN.invoke(app, ["keys", "add", kind.url, "--scope", "serve", "--name", "shop"]).stdout.strip()
    instances, id = [KeyTable(kind.url) for _ in range(2)], key.split("_")[1]
    for keys in instances:
        monkeypatch.setattr(keys, "_reload", keys._load)  # at once, not in a moment
        found = keys.recognise(key)
        assert found is not None
        assert (found.name, found.scopes) == ("shop", ("serve",))
        assert keys.recognise(key + "x") is None
    listed = RUN.invoke(app, ["keys", "list", kind.url, "--json"])
    assert [one["id"] for one in json.loads(listed.stdout)] == [id]
    assert RUN.invoke(app, ["keys", "revoke", kind.url, id]).exit_code == 0
    for keys in instances:
        keys._looked = -1e9
        assert keys.recognise(key) is None


def test_keys_that_are_known_count_while_the_database_is_down(server: Server) -> None:
    url = server.url("keys")
    keys = KeyTable(url)
    key = keys.add("shop", ["serve"])
    assert keys.recognise(key) is not None
    server.stop()
    keys._looked = -1e9
    keys._load()
    assert keys.recognise(key) is not None
    with pytest.raises(StoreUnavailable):
        keys.all()
    server.start()
    assert [one.name for one in keys.all()] == ["shop"]


def test_the_partitions_of_this_month_are_there_before_the_first_row(store: PostgresStore, other: Connection) -> None:
    year, month = month_of(int(time.time()))
    for table in ("impressions", "clicks", "events"):
        assert other.execute("SELECT to_regclass(%s) IS NULL", (f"{table}_{year}_{month:02}",)).fetchone() == (False,)
