"""Connections to PostgreSQL: addresses without their password, calls that end in time, any text there is."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Generator
from itertools import chain
from struct import pack
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg.types.string import StrBinaryDumper, StrDumper, TextBinaryLoader, TextLoader

from ranktrial.store.base import StoreError

SCHEMA = "ranktrial"  # where the tables are, unless the address says otherwise
LOOK_EVERY = 0.05  # seconds between looks at the clock while the server is silent
FIRST_WORDS = 3.0  # seconds that a new connection has to become usable
ESCAPE = "\x1a"  # a control character that no text has a use for; PostgreSQL stores every character but NUL
# A server or a network that is silent for this long is gone.
DEFAULTS = {
    "application_name": "ranktrial",
    "client_encoding": "utf8",
    "connect_timeout": "3",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# An instance that freezes in the middle of a transaction, or goes without a word, must not hold up the others for long. What
# waits when its instance dies is not committed: its visitors may have seen something else, and nobody is left to take it back.
SETTINGS = "-c idle_in_transaction_session_timeout=10s -c client_connection_check_interval=100ms"
# Acknowledged means on the disk, whatever the server's default.
DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


class Address(NamedTuple):
    """Address of a store: parameters of the connection, the schema, and its name in messages, without the password."""

    parameters: dict[str, Any]
    schema: str
    place: str

    @classmethod
    def read(cls, url: str) -> Self:
        """The address that a URL names: what libpq knows, and ``schema=`` for tables elsewhere than in ``ranktrial``."""
        try:
            base, _, asked = url.partition("?")
            query = dict(parse_qsl(asked, strict_parsing=bool(asked)))
            schema = query.pop("schema", SCHEMA)
            known = conninfo_to_dict(f"{base}?{urlencode(query, quote_via=quote)}")
            # What is left of a password in which a / was not written as %2F.
            if not re.fullmatch("[0-9,]*", str(known.get("port", ""))) or "@" in str(known.get("dbname", "")):
                raise ValueError
        except (ValueError, psycopg.Error):  # whose text may hold part of the password
            raise StoreError(
                "the address of the PostgreSQL store cannot be read: it must be postgresql://USER@HOST:PORT/DATABASE, with "
                "special characters in the password written as %XX (or the password in PGPASSWORD, or in ~/.pgpass)"
            ) from None
        if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema):
            raise StoreError(f"schema={schema} is not possible: must be lower-case letters, digits and _")
        user, port = (f"{known[name]}{mark}" if name in known else "" for name, mark in (("user", "@"), ("port", "")))
        host = str(known.get("host", "")) + (f":{port}" if port else "")
        place = f"postgresql://{user}{host}/{known.get('dbname', '')}"
        options = f"{known.pop('options', '')} {SETTINGS} -c search_path={schema}"
        return cls({**DEFAULTS, **known, "options": options}, schema, place + f"?schema={schema}" * (schema != SCHEMA))


class Int8s(list[int]):
    """Whole numbers, to be sent as one array."""


class Byteas(list[bytes]):
    """Bytes, to be sent as one array."""


class TextArray(list[str]):
    """Texts, to be sent as one array."""


class TooLong(psycopg.OperationalError):
    """The server did not answer by the deadline."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose calls end by ``deadline`` (of ``time.monotonic``), whatever the server and the network do."""

    deadline = math.inf

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        left = min(max(self.deadline - time.monotonic(), 0.001), LOOK_EVERY)
        return super().wait(_until(gen, self.deadline), **{**options, "interval": left})

    @classmethod
    def to(cls, address: Address, **options: Any) -> Connection:
        """A new connection."""
        made = cls.connect(**address.parameters, **options)
        made.deadline = time.monotonic() + FIRST_WORDS
        adapters = made.adapters
        for dumper in (Int8Dumper, Int8BinaryDumper):  # one type for all whole numbers: statements are prepared once
            adapters.register_dumper(int, dumper)
        for text in (_TextDumper, _TextBinaryDumper):
            adapters.register_dumper(str, text)
        for kind, array in ((Int8s, _Int8sDumper), (Byteas, _ByteasDumper), (TextArray, _TextsDumper)):
            adapters.register_dumper(kind, array)
        for loader in (_TextLoader, _TextBinaryLoader):
            adapters.register_loader("text", loader)
        made.execute(DURABLE)
        made.commit()
        return made


def _until(gen: Any, deadline: float) -> Generator[Any, Any, Any]:
    """A generator of psycopg that raises TooLong when the server is still silent at the deadline."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= deadline:
                raise TooLong("the server did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


def _escaped(text: str) -> str:
    if "\0" not in text and ESCAPE not in text:
        return text
    return text.replace(ESCAPE, ESCAPE + "1").replace("\0", ESCAPE + "0")


def _unescaped(text: str) -> str:
    if ESCAPE not in text:
        return text
    return text.replace(ESCAPE + "0", "\0").replace(ESCAPE + "1", ESCAPE)


class _TextDumper(StrDumper):
    def dump(self, obj: str) -> Any:
        return super().dump(_escaped(obj))


class _TextBinaryDumper(StrBinaryDumper):
    def dump(self, obj: str) -> Any:
        return super().dump(_escaped(obj))


class _TextLoader(TextLoader):
    def load(self, data: Any) -> str:
        return _unescaped(str(super().load(data)))


class _TextBinaryLoader(TextBinaryLoader):
    def load(self, data: Any) -> str:
        return _unescaped(str(super().load(data)))


class _ArrayDumper(Dumper):
    """Arrays of one dimension in PostgreSQL's binary form, as psycopg makes them, without a look at every value's type."""

    format = Format.BINARY
    element: int

    def dump(self, obj: Any) -> bytes:
        if not obj:
            return pack(">iiI", 0, 0, self.element)
        return pack(">iiIii", 1, 0, self.element, len(obj), 1) + self.values(obj)

    def values(self, obj: Any) -> bytes:
        return b"".join(chain.from_iterable((pack(">i", len(one)), one) for one in obj))


class _Int8sDumper(_ArrayDumper):
    oid, element = 1016, 20

    def values(self, obj: Any) -> bytes:
        return pack(">" + "iq" * len(obj), *chain.from_iterable((8, one) for one in obj))


class _ByteasDumper(_ArrayDumper):
    oid, element = 1001, 17


class _TextsDumper(_ArrayDumper):
    oid, element = 1009, 25

    def values(self, obj: Any) -> bytes:
        return super().values([_escaped(one).encode() for one in obj])
