"""How does a report travel without its service? As one HTML file with the live page's own view inside.

The file asks the network for nothing and forbids itself all but its own script and style, each named by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from ranktrial.live import page
from ranktrial.live.schemas import Report

START = """
show(JSON.parse(byId("data").textContent));
byId("state").textContent = byId("data").dataset.time;
"""


def report_html(report: Report, time: datetime | None = None) -> str:
    """The report as one self-contained page; ``time`` is when it was made, now by default."""
    style, script = page.read("style.css"), page.read("view.js") + START
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    made = (time or datetime.now(UTC)).astimezone(UTC).strftime("as of %Y-%m-%d %H:%M UTC")
    # Within a script element the only thing that can go wrong is a tag in the text.
    data = json.dumps(report.to_dict(), ensure_ascii=False, allow_nan=False).replace("<", r"\u003c")
    html = page.read("index.html")
    for old, new in {
        "<title>": f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>',
        '<link rel="stylesheet" href="page/style.css">': f"<style>{style}</style>",
        '<script src="page/view.js"></script>\n<script src="page/app.js"></script>': (
            f"<noscript><pre>{escape(str(report))}</pre></noscript>\n"
            f'<script type="application/json" id="data" data-time="{made}">{data}</script>\n<script>{script}</script>'
        ),
    }.items():
        before, found, after = html.partition(old)
        assert found, f"{old} is not in index.html"
        html = before + new + after
    return html


def write_report(report: Report, file: str | Path) -> Path:
    path = Path(file)
    path.write_text(report_html(report), encoding="utf-8", newline="\n")
    return path


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
