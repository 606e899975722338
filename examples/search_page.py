"""A search page in Python. Clicks go through the shop's own server: no script in the page.

    python examples/run.py python

All that belongs to the trial is marked.
"""

from __future__ import annotations

import os
import secrets
from html import escape
from typing import Annotated
from urllib.parse import quote

from fastapi import Cookie, FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from shop import ITEMS, PAGE, TRIAL, by_match, by_sales

from ranktrial.client import Client  # the trial

app = FastAPI()
client = Client(
    os.environ.get("RANKTRIAL_URL", "http://127.0.0.1:8000"), key=os.environ.get("RANKTRIAL_KEY")
)  # the trial

FORM = "<!doctype html><title>Shop</title><form><input name=q value='{}' autofocus> <button>Search</button></form>"


@app.get("/", response_class=HTMLResponse)
def page(q: str = "", session: Annotated[str, Cookie()] = "") -> HTMLResponse:
    session = session or secrets.token_hex(8)
    rows = []
    if q.strip():
        shown = client.rank(TRIAL, q, a=by_match(q), b=by_sales(q), unit=session, size=PAGE)  # the trial
        for position, id in enumerate(shown.ranking, 1):
            address = f"/item/{id}?shown={quote(shown.id)}&position={position}"
            rows.append(f"<li><a href='{address}'>{escape(ITEMS[id]['title'])}</a> {ITEMS[id]['price']:.2f}")
    answer = HTMLResponse(FORM.format(escape(q)) + f"<ol>{''.join(rows)}</ol>")
    answer.set_cookie("session", session, max_age=86_400, httponly=True, samesite="lax")
    return answer


@app.get("/item/{id}", response_class=HTMLResponse)
def item(id: str, shown: str = "", position: int | None = None) -> str:
    if id not in ITEMS:
        raise HTTPException(404)
    client.click(shown, id, position=position)  # the trial
    title, price = escape(ITEMS[id]["title"]), ITEMS[id]["price"]
    return f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{price:.2f}<p><a href='/'>Search</a>"
