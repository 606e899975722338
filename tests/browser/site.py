"""A site with search results, at an origin of its own, and a network between browser and service that takes its time."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from playwright.sync_api import Page

from client.servers import read_request
from live_server import serving, start

SCRIPT = Path(__file__).resolve().parents[2] / "clients" / "js" / "ranktrial.js"
A, B = ["a0", "a1", "a2", "a3"], ["a3", "b1", "a1", "a0"]
LATENCY = 0.25  # seconds until a connection is made: longer than it takes to leave a page
# Scripts that come before a page's own: a browser that knows no keepalive, and a page that does not ask for it.
OLD_BROWSER = "delete Request.prototype.keepalive; window.fetch = () => { throw new Error('no fetch') }"
PLAIN_FETCH = "const real = fetch; window.fetch = (url, options) => real(url, { ...options, keepalive: false })"
HEAD = "<!doctype html><link rel=icon href=data:,>"
PAGE = """<ol id=results data-impression="{id}">{rows}</ol><p id=elsewhere>elsewhere</p>
<script type=module>
import * as ranktrial from "/ranktrial.js";
Object.assign(window, {{ ranktrial, client: ranktrial.track({url}) }});
</script>"""


class Site(ThreadingHTTPServer):
    """Pages ``/search?unit=u`` with results drawn by the trial ``t``, and ``/item/ID``.

    Attributes:
        service: Where it asks what to show.
        beacons: Where its pages send clicks to.
    """

    daemon_threads = True
    service: httpx.Client
    beacons: str

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def page(self, path: str) -> str | None:
        parts = urlsplit(path)
        if parts.path.startswith("/item/"):
            return f"{HEAD}<h1>{escape(parts.path)}</h1>"
        if parts.path != "/search":
            return None
        asked = {"query": "q", "a": A, "b": B, "unit": parse_qs(parts.query)["unit"][0], "size": 3}
        shown = self.service.post("/v1/trials/t/rank", json=asked).raise_for_status().json()
        rows = [f'<li data-document="{one}"><a href="/item/{one}">{one}</a>' for one in shown["ranking"]]
        return HEAD + PAGE.format(id=shown["id"], rows="".join(rows), url=json.dumps(self.beacons))


class _Handler(BaseHTTPRequestHandler):
    server: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        script = self.path == "/ranktrial.js"
        content = SCRIPT.read_text(encoding="utf-8") if script else self.server.page(self.path)
        raw = (content or "").encode()
        self.send_response(200 if content else 404)
        self.send_header("Content-Type", "text/javascript" if script else "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def running_site() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, daemon=True)
        thread.start()
        yield site
        site.shutdown()


@contextlib.contextmanager
def slow_network(port: int, seconds: float, folder: Path) -> Iterator[str]:
    """An https address that leads to a port of this machine; a connection takes so long to make, and serves one request.

    As when a page is left long after it was opened: whatever was connected is not any more.
    """
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    self_signed = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=127.0.0.1"]
    subprocess.run(["openssl", "req", *self_signed, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=carry, args=(listening.accept()[0],), daemon=True).start()

        def carry(raw: socket.socket) -> None:
            threading.Event().wait(seconds)
            with contextlib.suppress(OSError), context.wrap_socket(raw, server_side=True) as near:
                head, body = read_request(near)
                if not head:  # the browser changed its mind
                    return
                with socket.create_connection(("127.0.0.1", port)) as far:
                    far.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)
                    while part := far.recv(65536):
                        near.sendall(part)

        threading.Thread(target=accept, daemon=True).start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@dataclass
class World:
    """A site, and the service that its pages send clicks to through a slow network."""

    site: Site
    service: httpx.Client
    visits: int = 0

    def visit(self, page: Page) -> str:
        """Open results that nobody has seen, and wait until the page listens; the impression's id."""
        self.visits += 1
        page.goto(f"{self.site.origin}/search?unit=u{self.visits}")  # waits for its script
        return str(page.locator("#results").get_attribute("data-impression"))

    def click_and_leave(self, page: Page, times: int) -> None:
        """Open results, click on one and be led away by it, again and again."""
        for visit in range(times):
            self.visit(page)
            place = page.locator("#results a").nth(visit % 3).bounding_box()
            assert place is not None
            page.mouse.click(place["x"] + 2, place["y"] + 2)
            page.wait_for_url("**/item/*", wait_until="commit")

    def events(self) -> dict[str, int]:
        """Fate of events so far."""
        text = self.service.get("/metrics").text
        return {
            outcome: int(float(count))
            for outcome, count in re.findall(r'ranktrial_events_total\{outcome="([^"]+)"\} (\S+)', text)
        }

    def misplaced(self) -> float:
        """Clicks whose position was not where the result stood."""
        found = re.search(r"^ranktrial_misplaced_events_total (\S+)", self.service.get("/metrics").text, re.M)
        assert found is not None
        return float(found[1])

    def wait_for(self, page: Page, before: dict[str, int], **expected: int) -> None:
        """Wait until exactly these events have arrived since, and look whether others do."""
        self.wait_until(page, before, **expected)
        page.wait_for_timeout(3_000 * LATENCY)
        assert self.new(before) == _wanted(expected)

    def wait_until(self, page: Page, before: dict[str, int], **expected: int) -> None:
        """Wait until at least these events have arrived since, for ten seconds at most."""
        for _ in range(200):
            new = self.new(before)
            if all(new.get(name, 0) >= count for name, count in _wanted(expected).items()):
                return
            page.wait_for_timeout(50)
        raise AssertionError(f"{new} arrived, not {_wanted(expected)}")

    def new(self, before: dict[str, int]) -> dict[str, int]:
        now = self.events()
        return {name: count - before.get(name, 0) for name, count in now.items() if count > before.get(name, 0)}


def _wanted(expected: dict[str, int]) -> dict[str, int]:
    return {name.replace("_", " "): count for name, count in expected.items()}


@contextlib.contextmanager
def world_of_clicks(folder: Path, latency: float) -> Iterator[World]:
    """A site and a service with the trial ``t``, that far from each other."""
    with (
        running_site() as site,
        serving(folder / "t.db", origins=[site.origin]) as service,
        slow_network(service.base_url.port or 0, latency, folder) as address,
    ):
        start(service)
        site.service, site.beacons = service, address
        yield World(site, service)
