"""The live page's files, and a report as one HTML file that holds the page's own view of it.

``view.js`` draws a report; ``app.js`` asks a service for it again and again. A report as a file uses the first alone, asks the
network for nothing and forbids itself all but its own script and style, each named by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

START = """
const { time, seconds } = byId("data").dataset;
show(JSON.parse(byId("data").textContent), Number(seconds));
byId("state").textContent = time;
"""


def read(name: str) -> str:
    """A file of the page."""
    return (resources.files(__name__) / name).read_text(encoding="utf-8")


def report_html(report: Mapping[str, Any], text: str, time: datetime | None = None) -> str:
    """A report as one self-contained page.

    Args:
        report: What the service answers, as plain values.
        text: The same for browsers without scripts.
        time: When it was made, now by default.
    """
    style, script = read("style.css"), read("view.js") + START
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    now = (time or datetime.now(UTC)).astimezone(UTC)
    made = f'data-time="as of {now:%Y-%m-%d %H:%M} UTC" data-seconds="{now.timestamp():.0f}"'
    # Within a script element the only thing that can go wrong is a tag in the text.
    data = json.dumps(report, ensure_ascii=False, allow_nan=False).replace("<", r"\u003c")
    html = read("index.html")
    for old, new in {
        "<title>": f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>',
        '<link rel="stylesheet" href="page/style.css">': f"<style>{style}</style>",
        '<script src="page/view.js"></script>\n<script src="page/app.js"></script>': (
            f"<noscript><pre>{escape(text)}</pre></noscript>\n"
            f'<script type="application/json" id="data" {made}>{data}</script>\n<script>{script}</script>'
        ),
    }.items():
        before, found, after = html.partition(old)
        assert found, f"{old} is not in index.html"
        html = before + new + after
    return html


def write_report(report: Mapping[str, Any], text: str, file: str | Path) -> Path:
    """Write ``report_html`` to a file."""
    path = Path(file)
    path.write_text(report_html(report, text), encoding="utf-8", newline="\n")
    return path


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
