"""Keyed hashes: the draw of a (trial, version, unit, query), always the same, and the signed token that is an impression's id.

A token names the version of the configuration, the time and the draw, and is signed with the trial's secret: a click can be
checked without looking anything up, and cannot be forged.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

KEY_BYTES = 10
MAC_BYTES = 6
FALLBACK = bytes(KEY_BYTES)  # the key of every impression that showed A because of a fault: nothing was drawn
OUTSIDE = bytes(KEY_BYTES - 1) + b"\1"  # of every search of a unit that takes no part in the trial
LATER_VIEW = 2**32 - 1  # instead of a second: of an impression that is shown once more
_BODY = Struct(f">II{KEY_BYTES}s")
_DRAW = Struct(">Q")
_UNIT_NAME = re.compile("#[0-9a-f]{16}")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


class Token(NamedTuple):
    """Contents of an impression's id: version of the configuration, second of the impression (or LATER_VIEW), key."""

    version: int
    second: int
    key: bytes

    def sign(self, secret: bytes) -> str:
        """The token as text that goes into a URL."""
        body = _BODY.pack(self.version, self.second, self.key)
        return urlsafe_b64encode(body + _mac(body, secret)).decode()


def read_token(text: str, secret: bytes) -> Token | None:
    """The token, or None if this trial never issued it."""
    raw = _decoded(text)
    body, mac = raw[: _BODY.size], raw[_BODY.size :]
    if len(raw) != _BODY.size + MAC_BYTES or not hmac.compare_digest(mac, _mac(body, secret)):
        return None
    return Token(*_BODY.unpack(body))


def version_of(text: str) -> int | None:
    """The version that an id claims to belong to, unchecked: to find the secret that it must be checked with."""
    raw = _decoded(text[:8])
    return int.from_bytes(raw[:4], "big") if len(raw) == 6 else None


def _decoded(text: str) -> bytes:
    """The bytes of a text in base64; none if it is not base64, or not text."""
    try:
        return a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except (ValueError, AttributeError):
        return b""


def _mac(body: bytes, secret: bytes) -> bytes:
    return blake2b(body, digest_size=MAC_BYTES, key=secret, person=b"ranktrial id").digest()


def draw(secret: bytes, version: int, unit: str, query: str) -> float:
    """A number from 0 to 1 (excluded), uniform over keys."""
    parts = _joined((str(version), unit, query))
    digest = blake2b(parts, digest_size=8, key=secret, person=b"ranktrial draw").digest()
    return float((_DRAW.unpack(digest)[0] >> 11) * 2.0**-53)


def place_of(secret: bytes, unit: str) -> float:
    """A unit's place from 0 to 1 (excluded), uniform over units and independent of draws: it takes part in a trial that is for
    a share of units above that, so whoever takes part does so in every larger share too.
    """
    digest = blake2b(unit.encode(), digest_size=8, key=secret, person=b"ranktrial share").digest()
    return float((_DRAW.unpack(digest)[0] >> 11) * 2.0**-53)


def impression_key(secret: bytes, version: int, unit: str, query: str, a: Sequence[str], b: Sequence[str]) -> bytes:
    """The key of an impression: the same for a retry, another where the lists are others."""
    lists = blake2b(_joined((str(len(a)), *a, *b)), digest_size=16).digest()
    parts = _joined((str(version), unit, query)) + lists
    return blake2b(parts, digest_size=KEY_BYTES, key=secret, person=b"ranktrial key").digest()


def unit_number(secret: bytes, unit: str) -> int:
    """A unit's number, which tells units apart and does not tell who they are."""
    return int.from_bytes(blake2b(unit.encode(), digest_size=8, key=secret).digest(), "big", signed=True)


def unit_name(number: int) -> str:
    """A unit as reports name it: ``#`` and its number in 16 hexadecimal digits."""
    return f"#{number % 2**64:016x}"


def named_unit(secret: bytes, name: str) -> int:
    """The number of the unit that people mean: by the name it has in ``rank``, or in reports."""
    if not _UNIT_NAME.fullmatch(name):
        return unit_number(secret, name)
    return int.from_bytes(bytes.fromhex(name[1:]), "big", signed=True)


def _joined(texts: Iterable[str]) -> bytes:
    """Texts in one, such that no two sequences give the same."""
    encoded = [text.encode() for text in texts]
    return b"".join((",".join(map(str, map(len, encoded))).encode(), b":", *encoded))
