"""A small shop: 40 items, and two rankers, by how well an item matches the words and by how often it was sold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TRIAL, PAGE = "shop-search", 5
ITEMS: dict[str, dict[str, Any]] = {
    item["id"]: item for item in json.loads(Path(__file__).with_name("catalogue.json").read_text())
}


def matches(query: str) -> dict[str, int]:
    """Items that share words with the query; a word of the title counts twice."""
    words = set(query.lower().split())
    found = {}
    for id, item in ITEMS.items():
        score = len(words & set(item["tags"])) + 2 * len(words & set(item["title"].lower().split()))
        if score:
            found[id] = score
    return found


def by_match(query: str) -> list[str]:
    found = matches(query)
    return sorted(found, key=lambda id: -found[id])


def by_sales(query: str) -> list[str]:
    return sorted(matches(query), key=lambda id: -ITEMS[id]["sold"])
