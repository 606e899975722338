"""Webhooks: messages of a trial as signed JSON to an address, as https://www.standardwebhooks.com describes them.

A receiver checks ``webhook-signature`` with the secret that both know, and takes a message whose ``webhook-id`` it has seen
before for the same: a message is sent at least once. ``text`` is what chat tools show.
"""

from __future__ import annotations

import hmac
import ssl
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from http.client import HTTPException
from urllib.parse import urlsplit

from ranktrial.client.http import Endpoint

TIMEOUT = 10.0  # seconds that a receiver may take
PREFIX = "whsec_"  # of a secret that is written in base64


class NotDelivered(Exception):  # noqa: N818 (reads as what it says)
    """A receiver did not take a message; ``retry_after`` is how many seconds it wants to be left alone."""

    def __init__(self, problem: str, retry_after: float = 0.0) -> None:
        super().__init__(problem)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Webhook:
    """An address that gets the messages of trials.

    Attributes:
        url: ``https://...``, or ``http://...`` within one's own network; it may be a secret itself, as those of chat tools.
        secret: What messages are signed with: any text, or ``whsec_`` and base64. Without one they are not signed.

    >>> Webhook("https://chat.example/hooks/T0/B0", secret="much longer than this").name
    'chat.example'
    """

    url: str = field(repr=False)
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.fragment
            right = (
                right and self.url.isascii() and not any(c <= " " or c == "\x7f" for c in self.url) and parts.port != 0
            )
        except (ValueError, TypeError, AttributeError):
            right = False
        if not right:
            raise ValueError("the address of a webhook must be http://... or https://..., in ASCII and without #")
        try:
            self._key  # noqa: B018 (refuses what is no secret)
        except ValueError:
            raise ValueError(f"a secret of a webhook begins with {PREFIX} and is not base64 after that") from None

    @property
    def name(self) -> str:
        """Host that it leads to: what may be shown of its address."""
        return urlsplit(self.url).hostname or ""

    @cached_property
    def id(self) -> str:
        """Name in the store, where its address is not kept."""
        return blake2b(self.url.encode(), digest_size=8, person=b"ranktrial hook").hexdigest()

    @cached_property
    def _key(self) -> bytes:
        if self.secret.startswith(PREFIX):
            return b64decode(self.secret.removeprefix(PREFIX), validate=True)
        return self.secret.encode()

    @cached_property
    def _context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self.url.startswith("https:") else None

    def send(self, id: str, body: str, now: float, timeout: float = TIMEOUT) -> None:
        """Deliver a message; raises NotDelivered unless the receiver answers 2xx."""
        parts, second = urlsplit(self.url), str(int(now))
        headers = {"Content-Type": "application/json", "webhook-id": id, "webhook-timestamp": second}
        if self.secret:
            headers["webhook-signature"] = sign(self._key, id, second, body)
        endpoint = Endpoint(f"{parts.scheme}://{parts.netloc}", headers, self._context)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            answer = endpoint.post(path, body.encode(), timeout)
        except (OSError, HTTPException) as problem:
            raise NotDelivered(str(problem) or type(problem).__name__) from problem
        finally:
            endpoint.close()
        if not 200 <= answer.status < 300:
            raise NotDelivered(f"it answered {answer.status}", answer.retry_after)


def sign(key: bytes, id: str, second: str, body: str) -> str:
    """The signature of a message: HMAC-SHA256 of id, second and body.

    >>> sign(b"secret", "msg_1", "1700000000", "{}")
    'v1,A5oIrJxXPB/PkULSoVu0e4khvPiqpF9vljmhkSKg0FI='
    """
    return "v1," + b64encode(hmac.digest(key, f"{id}.{second}.{body}".encode(), "sha256")).decode()
