"""Messages of trials that wait to be sent, and the lease of the process that sends them, in a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ranktrial.store.base import Message, MessageRow

COLUMNS = ", ".join(Message._fields)
LEAD = """
    INSERT INTO leases (name, holder, until) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE leases.holder = excluded.holder OR leases.until <= ?
"""


class MessageTable:
    """The outbox of a store in SQL; ``StoredMessages`` describes its methods.

    Args:
        select: The rows that a statement finds.
        execute: Changes something; on the disk when it returns.
        now: Time of the store, in microseconds.
    """

    def __init__(
        self,
        select: Callable[[str, Sequence[Any]], list[tuple[Any, ...]]],
        execute: Callable[[str, Sequence[Any]], None],
        now: Callable[[], int],
    ) -> None:
        self._select, self._execute, self._now = select, execute, now

    def add(self, messages: Sequence[Message]) -> None:
        if messages:
            many = ", ".join([f"(?{', ?' * (len(Message._fields) - 1)})"] * len(messages))
            statement = f"INSERT INTO outbox ({COLUMNS}) VALUES {many} ON CONFLICT DO NOTHING"
            self._execute(statement, [value for message in messages for value in message])

    def messages(self, trial: str, *, due: int | None = None) -> list[MessageRow]:
        condition, values = ("", ()) if due is None else (" AND due <= ?", (due,))
        statement = f"SELECT number_of_row, {COLUMNS} FROM outbox WHERE trial = ?{condition} ORDER BY number_of_row"
        return [MessageRow(row, Message(*rest)) for row, *rest in self._select(statement, (trial, *values))]

    def retry(self, row: int, due: int | None, attempts: int) -> None:
        self._execute("UPDATE outbox SET due = ?, attempts = ? WHERE number_of_row = ?", (due, attempts, row))

    def lead(self, name: str, holder: str, length: int, now: int | None = None) -> bool:
        now = self._now() if now is None else now
        held = "SELECT 1 FROM leases WHERE name = ? AND holder <> ? AND until > ?"
        if not self._select(held, (name, holder, now)):  # which asks before it writes
            self._execute(LEAD, (name, holder, now + length, now))
        return bool(self._select("SELECT 1 FROM leases WHERE name = ? AND holder = ?", (name, holder)))
