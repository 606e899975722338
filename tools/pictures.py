"""Pictures of the tutorial, taken by going through it: `make pictures` writes docs/images/tutorial/ and prints the report.

Needs Chromium; what is in the pictures is what the commands of the page made, here and now.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from documents import Reader, blocks_of  # noqa: E402

IMAGES = ROOT / "docs/images/tutorial"
SIZE = {"width": 1000, "height": 840}


def main() -> None:
    """Run the blocks of the tutorial, and look at what they have made."""
    page = ROOT / "docs/tutorial.md"
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        os.chdir(folder)
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        screen = chromium.new_page(viewport=SIZE)  # type: ignore[arg-type]
        screen.set_default_timeout(300_000)  # milliseconds, on a machine that may be busy
        with Reader(folder, page.read_text(encoding="utf-8"), {}, {}) as reader:
            for block in blocks_of(page):
                if block.reason is None:
                    print(reader.run(block))
                if "visitors.py" in block.code and block.file is None:
                    screen.goto(reader.here("http://127.0.0.1:8000/"))
                    screen.wait_for_selector("#band path.band")
                    screen.screenshot(path=IMAGES / "page.png")
        shutil.copy(folder / "plan.svg", IMAGES)
        screen.goto((folder / "report.html").as_uri())
        screen.locator("#guardrails").evaluate("list => scrollTo(0, list.getBoundingClientRect().top - 100)")
        screen.screenshot(path=IMAGES / "report.png")
        chromium.close()


if __name__ == "__main__":
    main()
