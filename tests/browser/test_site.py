"""The documentation site: built without a warning, complete, searched without a network, and asking nobody outside."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import ranktrial
from browser.tools import Watched
from documents import ROOT
from ranktrial.formats.layout import TABLES
from ranktrial.service import create_app

SEEN = [
    "index",
    "tutorial",
    "how-to/node",
    "reference/python",
    "reference/endpoints",
    "explanation/how-it-works",
    "reference/guardrails",
    "research/position-bias",
]
SCREENS = {
    "desktop": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--doctree-dir", str(folder / "doctrees")]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder / "html"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_nothing_is_loaded_from_outside(site: Path) -> None:
    loads = re.compile(r"""(?:\bsrc|<link[^>]*\bhref|@import|\burl)\s*[=(\s]\s*["']?(?:https?:)?//[^"')\s>]+""")
    found = {page.name: loads.findall(text_of(page)) for kind in ("html", "css") for page in site.rglob(f"*.{kind}")}
    assert len(found) > 40
    assert not any(found.values()), found
    assert loads.search('<link rel="stylesheet" href="https://fonts.example.com/x.css">')
    assert loads.search("@font-face { src: url('//cdn.example.com/x') }")


@pytest.mark.parametrize("screen", SCREENS)
def test_pages_ask_nobody_and_fit_the_screen(site: Path, browser: Browser, screen: str) -> None:
    watched = Watched.open(browser, **SCREENS[screen])
    for name in SEEN:
        watched.page.goto((site / f"{name}.html").as_uri())
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        unseen = watched.page.evaluate("[...document.images].filter(one => !one.naturalWidth).map(one => one.src)")
        assert unseen == []
    assert len(watched.requests) > len(SEEN)
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []
    assert watched.complaints == []


def test_search_needs_no_network(site: Path, browser: Browser) -> None:
    page = Watched.open(browser, offline=True).page
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").first.fill("check fails")
    page.keyboard.press("Enter")
    expect(page.locator("#search-results li a", has_text="A check fails: what now").first).to_be_visible()


@pytest.mark.slow
def test_everything_is_in_the_reference(site: Path) -> None:
    python = text_of(site / "reference/python.html")
    assert [name for name in ranktrial.__all__ if f'id="ranktrial.{name}"' not in python] == []
    endpoints = text_of(site / "reference/endpoints.html")
    described = create_app("not-opened.db").openapi()
    asked = [f"{method.upper()} {path}" for path, methods in described["paths"].items() for method in methods]
    assert [one for one in asked if f"<h2>{one}<" not in endpoints] == []
    assert [name for name in described["components"]["schemas"] if f"<h3>{name}<" not in endpoints] == ["Interval"]
    told = subprocess.run(
        [sys.executable, "-c", "from ranktrial.cli import main; main()", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    commands = re.findall(r"^│ ([a-z]+) ", told, re.M)
    assert len(commands) > 15
    listed = text_of(site / "reference/all-commands.html")
    assert [name for name in commands if f"<h2>ranktrial {name}<" not in listed] == []
    columns = text_of(site / "reference/columns.html")
    assert [name for table in TABLES.values() for name in table if f">{name}<" not in columns] == []
    assert "ranktrial_rows_waiting" in text_of(site / "reference/metrics.html")


def test_llms_txt_has_every_page(site: Path) -> None:
    links = re.findall(r"^- \[.+\]\((.+)\): \S", text_of(site / "llms.txt"), re.M)
    pages = {page.relative_to(site).as_posix() for page in (site / "_sources").rglob("*.md.txt")}
    assert sorted(links) == sorted(pages - {"_sources/index.md.txt"})
    assert [link for link in links if "<!-- generated:" in text_of(site / link)] == []
    assert "--query-units" in text_of(site / "_sources/reference/all-commands.md.txt")
