"""Pictures of the page in the states of a trial: `python tools/states.py FOLDER`, wide and narrow, light and dark.

Nothing is run: the reports are those of the tests of the page (tests/browser/states.py). Look at each before a release.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser.states import GUARDS, NOW, State, segments, states  # noqa: E402
from ranktrial.report.live_page import report_html  # noqa: E402

WIDTHS = {"wide": 1200, "narrow": 390}
SCHEMES = "light", "dark"


def shown() -> Iterator[tuple[str, State]]:
    """States that people see most, and what a report may have beside."""
    known = {state.name: state for state in states()}
    decided = known["decided for B"]
    yield "empty", known["no searches"]
    yield "early", known["too early"]
    yield "ahead", known["withheld: too soon"]
    yield "decided", decided
    yield "failed", known["not trusted"]
    yield "stopped", replace(decided, shows="A")
    guarded: dict[str, Any] = {
        "guards": GUARDS,
        "course": "10% of the visitors take part, and 50% after 2 days of that.",
    }
    yield "guards", replace(known["undecided, a smallest difference"], more=guarded)
    yield "metrics", known["withheld: guard"]
    for number in (2, 8, 20):
        yield f"segments-{number}", replace(decided, more={"segments": segments(number, decided.decision)})


def main(folder: Path) -> None:
    """Take a picture of the whole page in every state, width and scheme."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in SCHEMES:
            for width, pixels in WIDTHS.items():
                screen = chromium.new_page(viewport={"width": pixels, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
                for name, state in shown():
                    report = state.report
                    file = folder / "report.html"
                    made = report_html(report.to_dict(), str(report), datetime.fromtimestamp(NOW, UTC))
                    file.write_text(made, encoding="utf-8")
                    screen.goto(file.as_uri())
                    screen.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
        chromium.close()
    (folder / "report.html").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
