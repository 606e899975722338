"""The client that a search page calls."""

from __future__ import annotations

import json
import logging
import math
import ssl
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any, Self, SupportsIndex
from urllib.parse import quote

from ranktrial.client.http import Endpoint
from ranktrial.client.outbox import Outbox
from ranktrial.ids import BadId, text_id, text_ids

Id = str | SupportsIndex
MOST_ATTRIBUTES, LONGEST = 10, 100  # of a search, and characters of a value: more than any trial has
QUIET = 60.0  # seconds between two lines in the log that say the same
log = logging.getLogger("ranktrial.client")


@dataclass(frozen=True, slots=True)
class Shown:
    """Ranking to show for one search.

    Attributes:
        id: Id of the impression, to be sent back with clicks; empty if nothing was drawn.
        ranking: Ids of the results, from the top.
        fallback: None for a drawn ranking; otherwise the reason why this is the list of one ranker: the chosen one's
            if the trial was stopped, A's in any other case.
    """

    id: str
    ranking: list[str]
    fallback: str | None = None


class Client:
    """A client of the service at one address; for all threads, and for the life of a process.

    ``rank``, ``click``, ``event``, ``seen`` and ``send`` never raise. What goes wrong is in ``fallbacks`` (by reason),
    ``outcomes`` (what became of events) and ``lost`` (events that could not be sent), and in the log ``ranktrial.client``.

    Args:
        url: Where the service is, such as ``http://127.0.0.1:8000``.
        key: API key with the scopes ``serve`` and ``ingest``, if the service asks for one.
        timeout: Seconds after which ``rank`` gives A's list. The service itself gives it after 0.25 s, and leaves that
            impression out of the estimate, so stay above. Looking up a name takes as long as the system lets it.
        every: Seconds that an event may wait for others to be sent with.
        capacity: Events that may wait while the service cannot be reached.
        drain: Seconds that are left for events when the process ends.
        context: For https; what the system trusts by default.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 0.5,
        every: float = 1.0,
        capacity: int = 10_000,
        drain: float = 5.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        for name, value in (("timeout", timeout), ("every", every), ("capacity", capacity), ("drain", drain)):
            if not 0 <= value < float("inf") or (name in ("timeout", "capacity") and not value):
                raise ValueError(f"{name} is {value!r}, must be a positive number")
        headers = {"Content-Type": "application/json", "User-Agent": "ranktrial"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self.url, self.timeout = url, timeout
        self.fallbacks = Counter[str]()
        self._endpoint = Endpoint(url, headers, context)
        self._outbox = Outbox(self._endpoint, capacity, every, drain)
        self._said_at = -QUIET

    def rank(
        self,
        trial: str,
        query: str,
        a: Iterable[Id],
        b: Iterable[Id],
        *,
        unit: Id | None = None,
        offset: int = 0,
        size: int | None = None,
        segment: Mapping[str, str] | None = None,
        covariates: Mapping[str, float] | None = None,
    ) -> Shown:
        """Ask for the ranking to show for a query; A's list, with the reason in ``fallback``, if no answer comes in time.

        Args:
            trial: The trial's name.
            query: The search text.
            a: Ids of ranker A's results, from the top.
            b: Ids of ranker B's.
            unit: Id of the visitor: a session's id, or user and day. The same unit, query and lists get the same ranking.
            offset: Results on the pages before.
            size: Results on the page; all by default.
            segment: Value of each attribute that the trial was declared to have, such as ``{"device": "phone"}``. A wrong one
                is "other" for the trial, which counts it.
            covariates: Numbers known of the visitor before the trial, by the names declared with it. A wrong one is missing for
                the trial, which counts it.
        """
        first: list[str] = []
        try:
            given = list(a)
            first = [id if isinstance(id, str) else str(id) for id in given]  # whatever they are: they are shown
            first = text_ids("A", given)
            asked = {
                "query": query,
                "a": first,
                "b": text_ids("B", b),
                # Without a unit one is made up, so that a second try is the same impression.
                "unit": uuid.uuid4().hex if unit is None else text_id("unit", unit),
                "offset": offset,
                "size": size,
                **({} if segment is None else {"segment": _sendable(segment, _short)}),
                **({} if covariates is None else {"covariates": _sendable(covariates, _finite)}),
            }
            path = f"/v1/trials/{quote(trial, safe='')}/rank"
            answer = self._endpoint.post(path, json.dumps(asked).encode(), self.timeout)
            if answer.status == 200:
                body = json.loads(answer.content)
                return Shown(str(body["id"]), [str(id) for id in body["ranking"]], body["fallback"])
            reason, why = f"answered {answer.status}", answer.content[:500].decode(errors="replace")
        except TimeoutError:
            reason, why = "time-out", f"no answer within {self.timeout:g} s"
        except OSError as problem:
            reason, why = "no answer", repr(problem)
        except BadId as problem:
            reason, why = "bad input", str(problem)
        except Exception as problem:
            reason, why = "fault", repr(problem)
        self.fallbacks[reason] += 1
        if time.monotonic() - self._said_at >= QUIET:
            self._said_at = time.monotonic()
            log.warning("A's list is shown (%d times so far): %s, %s", self.fallbacks.total(), reason, why)
        return Shown("", _page(first, offset, size), f"{reason}: {why}" if reason == "bad input" else reason)

    def click(self, id: str, document: Id, *, position: int | None = None) -> None:
        """Tell of a click on a result; where there is no impression's id (A's list was shown) nothing is sent.

        Args:
            id: The impression's.
            document: What was clicked.
            position: Where the visitor saw it, from 1: compared with what was drawn, and used for nothing else.
        """
        if id:
            placed = {} if position is None else {"position": position}
            self.send({"id": id, "document": _said(document), "time": time.time(), **placed})

    def event(
        self,
        id: str,
        document: Id,
        action: str,
        value: float | Decimal | str | None = None,
        *,
        event_id: str | None = None,
    ) -> None:
        """Tell of what was done to a result, such as "cart" or "order"; sent again until it is stored, as clicks are.

        Args:
            id: The impression's.
            document: What was put into the cart, or ordered.
            action: One that a metric of the trial counts.
            value: Amount, kept exactly; negative for what is paid back.
            event_id: The same again counts once. Without one the action counts once on this result, and a refund needs one.
        """
        if id:
            more = {"value": _amount(value), "event_id": event_id}
            given = {name: one for name, one in more.items() if one is not None}
            self.send({"id": id, "document": _said(document), "action": action, "time": time.time(), **given})

    def seen(self, id: str, documents: Iterable[Id]) -> None:
        """Tell what the page really displayed, from the top, so that the trial can say whether it is what was drawn."""
        if id:
            self.send({"id": id, "seen": [_said(document) for document in documents]})

    def send(self, event: Mapping[str, Any]) -> None:
        """Send an event as it is: one of ours, or of OpenSearch's User Behavior Insights."""
        self._outbox.add(dict(event))

    @property
    def outcomes(self) -> Counter[str]:
        """Number of sent events by outcome, such as counted or not ours."""
        return Counter(self._outbox.outcomes)

    @property
    def lost(self) -> int:
        """Events that could not be sent: refused as they are, or too many waited."""
        return self._outbox.lost

    @property
    def waiting(self) -> int:
        """Events that are not stored yet."""
        return len(self._outbox)

    def flush(self, timeout: float = 10.0) -> bool:
        """Send what waits now; whether all of it is stored within so many seconds."""
        return self._outbox.flush(timeout)

    def close(self) -> None:
        """Send what waits, for at most ``drain`` seconds, and close connections; happens by itself when the process ends."""
        self._outbox.close()
        self._endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"  # never the key


def _said(id: object) -> Any:
    """An id for an event: what cannot be one goes as it is, to be named in the log or by the service."""
    try:
        return text_id("id", id)
    except BadId:
        return id


def _amount(value: object) -> Any:
    """A value as JSON has it: text where that is exact, and what cannot be a value for the service to name."""
    plain = value is None or type(value) in (bool, int, float, str)
    return value if plain and value == value else str(value)


def _sendable(given: object, value_of: Callable[[Any], float | str]) -> object:
    """Values of attributes, or covariates, as they can be sent; "?" for what cannot be one."""
    try:
        assert isinstance(given, Mapping)
        values = islice(given.items(), MOST_ATTRIBUTES)
        return {_short(name): None if value is None else value_of(value) for name, value in values}
    except Exception:
        return "?"


def _finite(value: Any) -> float | str:
    number = math.nan if isinstance(value, str | bytes) else float(value)
    return number if math.isfinite(number) else "?"


def _short(text: object) -> str:
    return text[:LONGEST].encode(errors="replace").decode() if isinstance(text, str) else "?"


def _page(ranking: list[str], offset: object, size: object) -> list[str]:
    """A's list as the service would give it, each id once."""
    begin = offset if isinstance(offset, int) and offset > 0 else 0
    end = begin + max(size, 0) if isinstance(size, int) else None
    return list(dict.fromkeys(ranking))[begin:end]
