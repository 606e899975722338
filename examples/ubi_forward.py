"""Forward a stream of UBI events, one JSON object a line, to the service as they are.

    tail -F ubi_events.ndjson | python examples/ubi_forward.py

Takes what anything writes that copies the index ``ubi_events``: plain documents, hits of a search (``_source``), or the lines
of a bulk request, whose actions are skipped. Ends with its input, when all is stored; the same stream again changes nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ranktrial.client import Client

BULK = {"index", "create", "update", "delete"}


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The events in lines of JSON."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            document = document.get("_source", document)
        except (ValueError, AttributeError) as problem:
            print(f"line {number} is no JSON object: {problem}", file=sys.stderr)
            continue
        if not BULK & document.keys():
            yield document


def main() -> None:
    url, key = os.environ.get("RANKTRIAL_URL", "http://127.0.0.1:8000"), os.environ.get("RANKTRIAL_KEY")
    with Client(url, key=key, drain=60) as client:
        for event in events(sys.stdin):
            client.send(event)
    print(json.dumps({"lost": client.lost, **client.outcomes}))


if __name__ == "__main__":
    main()
