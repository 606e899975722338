"""A stream of events as OpenSearch's User Behavior Insights 1.3 has them, one JSON object a line, from simulated visitors.

    python examples/ubi_visitors.py --searches 300 > events.ndjson

Each search asks the service what to show, and its events carry the impression's id as ``query_id``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from shop import ITEMS, PAGE, TRIAL, by_match, by_sales

from ranktrial.client import Client

QUERIES = ("red shoes", "warm winter", "running", "summer", "leather", "rain jacket")


def event(action: str, query_id: str, session: str, **attributes: Any) -> dict[str, Any]:
    """One event of UBI 1.3."""
    return {
        "application": "shop",
        "action_name": action,
        "query_id": query_id,
        "session_id": session,
        "client_id": f"browser-{session}",
        "timestamp": datetime.now(UTC).isoformat(),
        "message_type": "INFO",
        "message": action,
        "event_attributes": attributes,
    }


def visit(client: Client, session: str, luck: random.Random) -> Iterator[dict[str, Any]]:
    """The events of one search: results are looked at less the lower they stand, and bought items are liked more."""
    query = luck.choice(QUERIES)
    shown = client.rank(TRIAL, query, a=by_match(query), b=by_sales(query), unit=session, size=PAGE)
    if not shown.id:  # A's list, because the service did not answer: there is nothing to count
        return
    yield event("search", shown.id, session)
    for position, id in enumerate(shown.ranking, 1):
        about = {"object": {"object_id": id, "object_id_field": "id"}, "position": {"ordinal": position}}
        if luck.random() < 1 / position:
            yield event("item_hover", shown.id, session, **about)
            if luck.random() < 0.1 + 0.0008 * ITEMS[id]["sold"]:
                yield event("click", shown.id, session, **about)
                if luck.random() < 0.2:
                    yield event("add_to_cart", shown.id, session, **about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--searches", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    luck = random.Random(options.seed)
    url, key = os.environ.get("RANKTRIAL_URL", "http://127.0.0.1:8000"), os.environ.get("RANKTRIAL_KEY")
    with Client(url, key=key) as client:
        for number in range(options.searches):
            for line in visit(client, f"s{options.seed}-{number}", luck):
                print(json.dumps(line), flush=True)
    print(f"searches: {options.searches}, of which showed A on a fault: {client.fallbacks.total()}", file=sys.stderr)


if __name__ == "__main__":
    main()
