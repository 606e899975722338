"""API keys of the service, each with scopes, kept as hashes in a small file beside the store.

A key is ``rt_<id>_<secret>``: the id finds its entry, the secret (256 random bits) is compared as a hash in constant time.
The file is read again when it changes: a key that is added or revoked counts within a second, without a restart.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

from ranktrial import checks

Scope = Literal["serve", "ingest", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
NOBODY = "0" * 64
LOOK_EVERY = 0.5  # seconds


@dataclass(frozen=True)
class ApiKey:
    """What is kept of a key: enough to recognise it, not enough to use it."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    digest: str
    created: str


class KeyFile:
    """The keys in a file, which only its owner can read. A file that cannot be read admits nobody."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._keys: dict[str, ApiKey] = {}
        self._state: tuple[int, int] | None = None
        self._looked = -LOOK_EVERY
        self._lock = threading.Lock()

    @classmethod
    def beside(cls, store: str | Path) -> KeyFile:
        """The file where a store's keys are unless told otherwise."""
        return cls(f"{store}.keys")

    def recognise(self, presented: str) -> ApiKey | None:
        """The key that was presented, or None; takes as long for a wrong secret as for an unknown id."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._reload()
        prefix, _, rest = presented.partition("_")
        id, _, secret = rest.partition("_")
        known = self._keys.get(id) if prefix == "rt" else None
        same = hmac.compare_digest(_digest(secret), known.digest if known else NOBODY)
        return known if same and known else None

    def all(self) -> list[ApiKey]:
        """All keys, in the order in which they were made. Raises ValueError where the file cannot be read."""
        return _read(self.path)

    def add(self, name: str, scopes: Sequence[str]) -> str:
        """Make a key with these scopes. What is returned is told once and kept nowhere."""
        if not scopes:
            raise ValueError(f"a key needs at least one scope of {', '.join(SCOPES)}")
        allowed: tuple[Scope, ...] = tuple(checks.one_of("scope", scope, SCOPES) for scope in dict.fromkeys(scopes))
        id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._changing() as keys:
            keys.append(ApiKey(id, name, allowed, _digest(secret), created))
        return f"rt_{id}_{secret}"

    def revoke(self, id: str) -> ApiKey:
        """Take a key out of the file, and return it."""
        with self._changing() as keys:
            for key in keys:
                if key.id == id:
                    keys.remove(key)
                    return key
            raise ValueError(f"{self.path} has no key {id!r}; it has {', '.join(k.id for k in keys) or 'none'}")

    @contextmanager
    def _changing(self) -> Iterator[list[ApiKey]]:
        """The keys, to be changed: the file is replaced in one step, and two who change it take turns."""
        with open(f"{self.path}.lock", "w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            keys = _read(self.path)
            yield keys
            new = Path(f"{self.path}.new")
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump([asdict(key) for key in keys], file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)

    def _reload(self) -> None:
        with self._lock:
            try:
                found = self.path.stat()
                state = found.st_mtime_ns, found.st_ino
                if state != self._state:
                    self._keys, self._state = {key.id: key for key in _read(self.path)}, state
            except (OSError, ValueError):
                self._keys, self._state = {}, None


def _digest(secret: str) -> str:
    """The hash of a secret. A plain one is enough: the secret is random, there is nothing to guess."""
    return sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _read(path: Path) -> list[ApiKey]:
    if not path.exists():
        return []
    try:
        return [ApiKey(**{**one, "scopes": tuple(one["scopes"])}) for one in json.loads(path.read_text())]
    except (TypeError, KeyError, ValueError) as problem:
        raise ValueError(f"{path} is not a file of keys: {problem}") from problem
