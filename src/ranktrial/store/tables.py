"""Tables of what is rare: trials with their versions and history, position bias, messages that wait to be sent.

``SHARED_TABLES`` is the schema of these and of all other tables that are alike in both databases.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from ranktrial.methods import Beliefs
from ranktrial.store.base import Bias, ConfigVersion, Entry, HistoryRow, Message, MessageRow, StoreError, TrialRow
from ranktrial.store.database import INSERT_ENTRY, Database

SHARED_TABLES = """
    CREATE TABLE trials (name {name} PRIMARY KEY, secret {bytes} NOT NULL, shows text);
    CREATE TABLE versions (
        id {id}, trial text NOT NULL, number integer NOT NULL, config text NOT NULL, turn integer NOT NULL,
        UNIQUE (trial, number)
    );
    CREATE TABLE biases (
        id {id}, version integer NOT NULL, follows integer NOT NULL, impressions bigint NOT NULL, theta text NOT NULL,
        fitted integer NOT NULL, note text NOT NULL, relevance double precision NOT NULL, more text NOT NULL,
        effects {bytes} NOT NULL, UNIQUE (version, follows)
    );
    CREATE TABLE designs (
        id {id}, digest {bytes} NOT NULL UNIQUE, query text, bias integer, documents text, a {bytes}, b {bytes},
        rankings {bytes}, weights {bytes}, rest {bytes}
    );
    CREATE TABLE voids (id {row}, version integer NOT NULL, key {bytes} NOT NULL UNIQUE, reason text NOT NULL);
    CREATE TABLE marks (
        id {row}, version integer NOT NULL, key {bytes} NOT NULL, kind integer NOT NULL, UNIQUE (key, kind)
    );
    CREATE TABLE history (
        id {id}, trial text NOT NULL, time bigint NOT NULL, what text NOT NULL, unit bigint, reason text NOT NULL,
        who text NOT NULL, detail text NOT NULL
    );
    CREATE TABLE erasures (
        id {id}, trial text NOT NULL, time bigint NOT NULL, earlier_than bigint, impressions bigint NOT NULL,
        clicks bigint NOT NULL, designs bigint NOT NULL, reason text NOT NULL, who text NOT NULL,
        events bigint NOT NULL DEFAULT 0
    );
    CREATE TABLE outbox (
        number_of_row {id}, trial text NOT NULL, subject text NOT NULL, number bigint NOT NULL, state text NOT NULL,
        hook text NOT NULL, time bigint NOT NULL, id text NOT NULL, body text NOT NULL, due bigint,
        attempts bigint NOT NULL, UNIQUE (trial, subject, number, hook)
    );
    CREATE TABLE leases (name text PRIMARY KEY, holder text NOT NULL, until bigint NOT NULL);
"""
LAST_TURN = "coalesce((SELECT max(v.turn) FROM versions v WHERE v.trial = ?), 0)"
BIAS_COLUMNS = "id, impressions, theta, fitted, note, relevance, more"
MESSAGE_COLUMNS = ", ".join(Message._fields)
LEAD = """
    INSERT INTO leases (name, holder, until) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE leases.holder = excluded.holder OR leases.until <= ?
"""


class TrialTables:
    """Trials with their versions and history."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, name: str | None) -> TrialRow:
        """The trial of this name, the only one of the store if no name is given. Raises StoreError."""
        found = [
            TrialRow(*row) for row in self._database.select("SELECT name, secret, shows FROM trials ORDER BY name")
        ]
        place, names = self._database.place, ", ".join(row.name for row in found) or "none"
        if name is None and len(found) != 1:
            raise StoreError(f"{place} holds {len(found)} trials ({names}): say which by its name")
        for row in found:
            if name in (None, row.name):
                return row
        raise StoreError(f"{place} holds no trial {name!r}; it holds {names}")

    def names(self) -> list[str]:
        """Names of all trials, sorted."""
        return [row[0] for row in self._database.select("SELECT name FROM trials ORDER BY name")]

    def of_version(self, version: int) -> str | None:
        """Name of the trial that a version's id belongs to."""
        found = self._database.select("SELECT trial FROM versions WHERE id = ? AND number > 0", (version,))
        return str(found[0][0]) if found else None

    def add(self, name: str, secret: bytes) -> None:
        """Add a trial, unless there is one of that name."""
        statement = "INSERT INTO trials (name, secret) VALUES (?, ?) ON CONFLICT DO NOTHING"
        self._database.execute(statement, (name, secret))

    def stop(
        self, name: str, shows: Literal["A", "B"] | None = None, entry: Entry | None = None, *, running: bool = False
    ) -> None:
        """Mark a trial as stopped, with the ranker whose list is shown from now on; the entry goes into its history, in the
        same transaction, if that is new. Without a ranker it is A, unless the trial is stopped already. With ``running``
        nothing is done to a trial that is stopped.
        """
        statement = "UPDATE trials SET shows = ? WHERE name = ? AND (shows IS NULL OR shows <> ?)"
        self._database.execute(statement, (shows or "A", name, None if running else shows), (name, entry))

    def versions(self, trial: str) -> list[ConfigVersion]:
        """All versions of a trial, in order of their number."""
        statement = "SELECT id, number, config, turn FROM versions WHERE trial = ? AND number > 0 ORDER BY number"
        return [ConfigVersion(*row) for row in self._database.select(statement, (trial,))]

    def add_version(self, trial: str, number: int, config: str, entry: Entry | None = None) -> None:
        """Add a version, which is then the current one, and the entry with it, unless the trial has one of that number."""
        statement = f"""INSERT INTO versions (trial, number, config, turn) VALUES (?, ?, ?, {LAST_TURN} + 1)
                        ON CONFLICT DO NOTHING"""
        self._database.execute(statement, (trial, number, config, trial), (trial, entry))

    def make_current(self, trial: str, number: int, entry: Entry | None = None) -> None:
        """Make a version the current one, and add the entry, unless it is."""
        statement = f"UPDATE versions SET turn = {LAST_TURN} + 1 WHERE trial = ? AND number = ? AND turn < {LAST_TURN}"
        self._database.execute(statement, (trial, trial, number, trial), (trial, entry))

    def reconfigure(self, version: ConfigVersion, trial: str, config: str, entry: Entry | None = None) -> None:
        """Put another configuration in place of a version's, and add the entry, unless somebody else has meanwhile."""
        statement = "UPDATE versions SET config = ? WHERE id = ? AND config = ?"
        self._database.execute(statement, (config, version.id, version.config), (trial, entry))

    def history(self, trial: str) -> list[HistoryRow]:
        """All entries of a trial's history, in the order in which they were made."""
        statement = f"SELECT {', '.join(HistoryRow._fields)} FROM history WHERE trial = ? ORDER BY id"
        return list(map(HistoryRow._make, self._database.select(statement, (trial,))))

    def add_history(self, trial: str, entry: Entry) -> None:
        """Add an entry; on the disk when this returns."""
        self._database.execute(INSERT_ENTRY, (trial, *entry))


class BiasTable:
    """Position bias of versions, as it was fitted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, version: int) -> list[Bias]:
        """Position bias of a version, the latest last."""
        found = self._database.select(f"SELECT {BIAS_COLUMNS} FROM biases WHERE version = ? ORDER BY id", (version,))
        return [
            Bias(id, impressions, tuple(map(float.fromhex, theta.split())), bool(fitted), *rest)
            for id, impressions, theta, fitted, *rest in found
        ]

    def effects(self, bias: int) -> bytes:
        """The ``effects`` that came with a bias: what is known of single documents (``log.known``)."""
        found = self._database.select("SELECT effects FROM biases WHERE id = ?", (bias,))
        return bytes(found[0][0]) if found else b""

    def add(
        self,
        version: int,
        impressions: int,
        beliefs: Beliefs,
        follows: int,
        effects: bytes = b"",
        entry: tuple[str, Entry] | None = None,
    ) -> None:
        """Add position bias, to the last bit, unless the same theta is known from the same number of impressions; with it goes
        an entry of the history of the trial of that name.

        ``follows`` is the id of the one before it, 0 for the first: where another has followed that one meanwhile, from
        another instance, nothing is added, so that all instances have the same.
        """
        same = version, impressions, " ".join(value.hex() for value in beliefs.theta.tolist())
        rest = int(beliefs.fitted), beliefs.note, beliefs.relevance, json.dumps(beliefs.more), effects
        self._database.execute(
            """INSERT INTO biases (version, impressions, theta, follows, fitted, note, relevance, more, effects)
               SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?
               WHERE NOT EXISTS (SELECT 1 FROM biases WHERE version = ? AND impressions = ? AND theta = ?)
               ON CONFLICT DO NOTHING""",
            (*same, follows, *rest, *same),
            entry,
        )


class MessageTable:
    """Messages that wait to be sent, and the lease of the process that sends them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages, all or none; one with the trial, subject, number and hook of one that is there is left out."""
        if messages:
            many = ", ".join([f"(?{', ?' * (len(Message._fields) - 1)})"] * len(messages))
            statement = f"INSERT INTO outbox ({MESSAGE_COLUMNS}) VALUES {many} ON CONFLICT DO NOTHING"
            self._database.execute(statement, [value for message in messages for value in message])

    def messages(self, trial: str, *, due: int | None = None) -> list[MessageRow]:
        """Messages of a trial in the order in which they were added: all, or those that are due at a time (microseconds)."""
        condition, values = ("", ()) if due is None else (" AND due <= ?", (due,))
        statement = (
            f"SELECT number_of_row, {MESSAGE_COLUMNS} FROM outbox WHERE trial = ?{condition} ORDER BY number_of_row"
        )
        return [MessageRow(row, Message(*rest)) for row, *rest in self._database.select(statement, (trial, *values))]

    def retry(self, row: int, due: int | None, attempts: int) -> None:
        """Note when a message is due next, None for never, and how often it was tried in vain."""
        self._database.execute("UPDATE outbox SET due = ?, attempts = ? WHERE number_of_row = ?", (due, attempts, row))

    def lead(self, name: str, holder: str, length: int, now: int | None = None) -> bool:
        """Take or keep a lease for so long, unless somebody else has it (microseconds); True if ``holder`` has it now.

        Args:
            now: The time, for trials that have one of their own; by default that of the database where it has a clock, so that
                clocks of instances may differ.
        """
        now = self._database.now() if now is None else now
        held = "SELECT 1 FROM leases WHERE name = ? AND holder <> ? AND until > ?"
        if not self._database.select(held, (name, holder, now)):  # which asks before it writes
            self._database.execute(LEAD, (name, holder, now + length, now))
        return bool(self._database.select("SELECT 1 FROM leases WHERE name = ? AND holder = ?", (name, holder)))
