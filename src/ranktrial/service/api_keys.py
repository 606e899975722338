"""API keys of the service, each with scopes and perhaps trials, kept as hashes: in a small file beside a store that is a file,
in the database of a store that is in one.

A key is ``rt_<id>_<secret>``: the id finds its entry, the secret (256 random bits) is compared as a hash in constant time.
Keys are read again when they change: one that is added or revoked counts within a second, without a restart.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import IO, Literal, get_args

from ranktrial import checks
from ranktrial.store import is_postgres
from ranktrial.store.sqlite_file import tighten

Scope = Literal["serve", "ingest", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
NOBODY = "0" * 64
LOOK_EVERY = 0.5  # seconds
LONGEST_LIFE = 3.2e9  # seconds: a century


@dataclass(frozen=True)
class ApiKey:
    """Stored entry of an API key: a hash, enough to recognise the key, not enough to use it.

    Attributes:
        id: Identifier in lists and logs.
        name: Name of its owner.
        scopes: Actions it allows.
        digest: Hash of its secret.
        created: Time of creation.
        trials: The trials it is restricted to; empty for all.
        expires: Time of expiry; None for never.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    digest: str
    created: str
    trials: tuple[str, ...] = ()
    expires: str | None = None

    def may_use(self, trial: str) -> bool:
        """True if the key may be used for this trial."""
        return not self.trials or trial in self.trials

    @property
    def expired(self) -> bool:
        """True if the key has expired."""
        return self.expires is not None and self.expires <= _utc(time.time())


class Keys(ABC):
    """The keys of a service, wherever they are kept.

    Attributes:
        place: Where that is, for messages.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._known: dict[str, ApiKey] | None = None  # by id
        self._looked = -LOOK_EVERY

    @abstractmethod
    def all(self) -> list[ApiKey]:
        """All keys, in the order in which they were made. Raises ValueError or StoreError where they cannot be read."""

    @abstractmethod
    def exist(self) -> bool:
        """True if any keys exist, so that requests need one."""

    @abstractmethod
    def _changing(self) -> AbstractContextManager[list[ApiKey]]:
        """The keys that have not expired, to be changed: they are replaced in one step, two who change them take turns."""

    @abstractmethod
    def _reload(self) -> None:
        """Read the keys again, or have that done, if they may have changed."""

    def recognise(self, presented: str) -> ApiKey | None:
        """The key that was presented, or None; takes as long for a wrong secret as for an unknown id."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._reload()
        prefix, _, rest = presented.partition("_")
        id, _, secret = rest.partition("_")
        known = (self._known or {}).get(id) if prefix == "rt" else None
        same = hmac.compare_digest(_digest(secret), known.digest if known else NOBODY)
        return known if same and known and not known.expired else None

    def add(
        self, name: str, scopes: Sequence[str], *, trials: Sequence[str] = (), lifetime: float | None = None
    ) -> str:
        """Make a key with these scopes. What is returned is told once and kept nowhere.

        Args:
            name: Whose it is.
            scopes: What it may do.
            trials: Names of the only trials it is for; of all by default.
            lifetime: Seconds until it expires; never by default.
        """
        if not scopes:
            raise ValueError(f"a key needs at least one scope of {', '.join(SCOPES)}")
        allowed: tuple[Scope, ...] = tuple(checks.one_of("scope", scope, SCOPES) for scope in dict.fromkeys(scopes))
        expires = (
            None if lifetime is None else _utc(time.time() + checks.between("lifetime", lifetime, 0, LONGEST_LIFE))
        )
        with self._changing() as keys:
            return _append(keys, name, allowed, tuple(dict.fromkeys(trials)), expires)

    def rotate(self, id: str, keep: float) -> str:
        """Make a key with the scopes of this one, which expires after ``keep`` seconds: time to hand the new one out.

        The new one lives for ever, or until the old one would have expired.
        """
        checks.between("keep", keep, 0, LONGEST_LIFE)
        with self._changing() as keys:
            at = self._find(keys, id)
            old = keys[at]
            until = _utc(time.time() + keep)
            keys[at] = replace(old, expires=min(until, old.expires or until))
            return _append(keys, old.name, old.scopes, old.trials, old.expires)

    def revoke(self, id: str) -> ApiKey:
        """Revoke a key, and return its entry."""
        with self._changing() as keys:
            return keys.pop(self._find(keys, id))

    def _find(self, keys: Sequence[ApiKey], id: str) -> int:
        for at, key in enumerate(keys):
            if key.id == id:
                return at
        raise ValueError(f"{self.place} has no key {id!r}; it has {', '.join(k.id for k in keys) or 'none'}")

    def _parsed(self, text: str) -> list[ApiKey]:
        try:
            lists = {"scopes": (), "trials": ()}
            return [
                ApiKey(**{**one, **{name: tuple(one.get(name, none)) for name, none in lists.items()}})
                for one in json.loads(text)
            ]
        except (TypeError, KeyError, ValueError) as problem:
            raise ValueError(f"{self.place} is not a file of keys: {problem}") from problem

    @staticmethod
    def _written(keys: Sequence[ApiKey]) -> str:
        return json.dumps([asdict(key) for key in keys], indent=1)


class KeyFile(Keys):
    """The keys in a file, which only its owner can read. A file that cannot be read admits nobody."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(str(path))
        self.path = Path(path)
        self._state: tuple[int, int] | None = None
        self._lock = threading.Lock()

    @classmethod
    def beside(cls, store: str | Path) -> KeyFile:
        """The file where the keys of a store in a file are unless told otherwise."""
        return cls(f"{store}.keys")

    def all(self) -> list[ApiKey]:
        if not self.path.exists():
            return []
        tighten(self.path)
        return self._parsed(self.path.read_text())

    def exist(self) -> bool:
        return self.path.exists()

    @contextmanager
    def _changing(self) -> Iterator[list[ApiKey]]:
        with _owner_only(f"{self.path}.lock") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            keys = [key for key in self.all() if not key.expired]
            yield keys
            new = Path(f"{self.path}.new")
            with _owner_only(new) as file:
                file.write(self._written(keys))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)

    def _reload(self) -> None:
        with self._lock:
            try:
                found = self.path.stat()
                state = found.st_mtime_ns, found.st_ino
                if state != self._state:
                    self._known, self._state = {key.id: key for key in self.all()}, state
            except (OSError, ValueError):
                self._known, self._state = {}, None


def keys_of(store: str | Path) -> Keys:
    """The keys of a store where they are unless told otherwise."""
    if not is_postgres(store):
        return KeyFile.beside(store)
    from ranktrial.service.postgres_keys import KeyTable

    return KeyTable(str(store))


def _append(
    keys: list[ApiKey], name: str, scopes: tuple[Scope, ...], trials: tuple[str, ...], expires: str | None
) -> str:
    """Add a new key to the list, and return it as it is told."""
    id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    keys.append(ApiKey(id, name, scopes, _digest(secret), _utc(time.time()), trials, expires))
    return f"rt_{id}_{secret}"


def _utc(seconds: float) -> str:
    """A time as text, which sorts by time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _owner_only(path: str | Path) -> IO[str]:
    """A file to write to that nobody else can read."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")


def _digest(secret: str) -> str:
    """The hash of a secret. A plain one is enough: the secret is random, there is nothing to guess."""
    return sha256(secret.encode(errors="surrogateescape")).hexdigest()
