"""A small shop with a search page that compares two rankers: by how well an item matches, or by how often it was sold.

    ranktrial serve shop.db                          # the trial and its live page, on port 8000
    uvicorn --app-dir examples search_page:app --port 8080

Search on http://127.0.0.1:8080/ and watch http://127.0.0.1:8000/. All that belongs to the trial is between the two lines.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from fastapi import Cookie, FastAPI, HTTPException
from fastapi.responses import HTMLResponse

ITEMS: dict[str, dict[str, Any]] = {
    item["id"]: item for item in json.loads(Path(__file__).with_name("catalogue.json").read_text())
}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    start()
    yield


app = FastAPI(lifespan=lifespan)


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


# --- the trial --------------------------------------------------------------------------------------------------------------
SERVICE = os.environ.get("RANKTRIAL_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("RANKTRIAL_KEY", "")  # if the service asks for one
TRIAL, PAGE, TIMEOUT = "shop-search", 5, 1.0


def call(method: str, path: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {KEY}"} if KEY else {})
    request = Request(SERVICE + path, json.dumps(body).encode(), headers, method=method)
    with urlopen(request, timeout=TIMEOUT) as answer:
        return json.load(answer)


def search(query: str, visitor: str) -> tuple[list[str], str]:
    """What to show, and the impression's id to be sent back with clicks. Without the service: A's list."""
    a, b = by_match(query), by_sales(query)
    try:
        body = {"query": query, "a": a, "b": b, "unit": visitor, "size": PAGE}
        shown = call("POST", f"/v1/trials/{TRIAL}/rank", body)
        return shown["ranking"], shown["id"]
    except OSError:
        return a[:PAGE], ""


def clicked(impression: str, item: str) -> None:
    try:
        call("POST", "/v1/events", [{"id": impression, "document": item}])
    except OSError:
        print("a click was not counted: no answer from", SERVICE)


def start() -> None:
    """The same configuration again changes nothing."""
    try:
        call("PUT", f"/v1/trials/{TRIAL}", {"method": "LogOpt()", "k": PAGE})
    except OSError as problem:
        print(f"no trial: {problem}. Start the service first, then this page again.")


# ------------------------------------------------------------------------------------------------------------------------------

FORM = "<!doctype html><title>Shop</title><form><input name=q value='{}' autofocus> <button>Search</button></form>"


@app.get("/", response_class=HTMLResponse)
def page(q: str = "", visitor: Annotated[str, Cookie()] = "") -> HTMLResponse:
    visitor = visitor or secrets.token_hex(8)
    results, impression = search(q, visitor) if q.strip() else ([], "")
    rows = [
        f"<li><a href='/item/{id}?shown={quote(impression)}'>{escape(ITEMS[id]['title'])}</a> {ITEMS[id]['price']:.2f}"
        for id in results
    ]
    answer = HTMLResponse(FORM.format(escape(q)) + f"<ol>{''.join(rows)}</ol>")
    answer.set_cookie("visitor", visitor, max_age=86_400, httponly=True, samesite="lax")
    return answer


@app.get("/item/{id}", response_class=HTMLResponse)
def item(id: str, shown: str = "") -> str:
    if id not in ITEMS:
        raise HTTPException(404)
    if shown:
        clicked(shown, id)
    title, price = escape(ITEMS[id]["title"]), ITEMS[id]["price"]
    return f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{price:.2f}<p><a href='/'>Search</a>"
