"""The page's files as they are served: no inline script or style, nothing from elsewhere, sent again only when changed."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from fastapi import FastAPI

from ranktrial.report.live_page import read
from ranktrial.service.page import KINDS, POLICY, mount_files

FILES = {"/": "text/html", **{f"/page/{name}": kind for name, kind in KINDS.items()}}


def get(path: str, **headers: str) -> httpx.Response:
    app = FastAPI()
    mount_files(app)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://page") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize(("path", "kind"), FILES.items())
def test_a_file_and_its_headers(path: str, kind: str) -> None:
    answer = get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = get(path, **{"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_obeys_its_own_policy() -> None:
    html = read("index.html")
    assert not re.search(r"<script(?![^>]*\ssrc=\"page/)|<style|\sstyle=|\son\w+=", html)
    assert "unsafe" not in POLICY
    scripts = read("view.js") + read("app.js")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", scripts)
    addresses = re.findall(r"https?://[^\s\"']+", html + scripts + read("style.css"))
    assert addresses == ["http://www.w3.org/2000/svg"]  # a name, never asked


def test_every_element_that_the_scripts_fill_is_there() -> None:
    wanted = set(re.findall(r"byId\(\"([\w-]+)\"\)", read("view.js") + read("app.js")))
    made = set(re.findall(r"\bid: \"([\w-]+)\"", read("view.js") + read("app.js")))
    assert wanted <= made | set(re.findall(r"\sid=\"([\w-]+)\"", read("index.html")))
