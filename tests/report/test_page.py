from __future__ import annotations

import re
import shutil
from pathlib import Path

import altair as alt
import pytest

from ranktrial.report.charts import Sheets, highlighting
from ranktrial.report.pages import Figure, Page, Section, Table
from ranktrial.report.theme import BLUE, COLOURS, VERMILLION


@pytest.fixture(scope="module")
def page() -> Page:
    sheets = Sheets()
    rows = [{"x": x, "y": x * k, "name": name} for name, k in (("one", 1), ("two", 2)) for x in (1, 2, 3)]
    picked, opacity = highlighting("name")
    scale = alt.Scale(domain=["one", "two"], range=[BLUE, VERMILLION])
    chart = (
        alt.Chart(sheets.add(rows))
        .mark_line()
        .encode(x="x:Q", y="y:Q", color=alt.Color("name:N", scale=scale), opacity=opacity)
        .add_params(picked)
    )
    table = Table(["what", "how many"], [["</script><b>", "1,234"], ["a & b", None]])
    sections = [
        Section("First & last", ["Text with <tags>.", Figure(sheets.spec(chart), "Caption.")]),
        Section("Data", [table]),
    ]
    return Page("A <title>", sections, "In short.")


@pytest.mark.slow
def test_text_cannot_become_markup(page: Page) -> None:
    html = page.to_html()
    assert "<title>A &lt;title&gt;</title>" in html
    assert "Text with &lt;tags&gt;." in html
    assert "<td>&lt;/script&gt;&lt;b&gt;</td><td class=number>1,234</td>" in html
    assert '<a href="#first-last">First &amp; last</a>' in html
    assert html.count("<script") == html.count("</script>") == 3
    assert "{{" not in html.split("<script")[0]


def test_the_page_asks_for_nothing(page: Page) -> None:
    own = re.sub(r"<script.*?</script>", "", page.to_html(), flags=re.S)
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*', own) == []
    assert "default-src 'none'" in own


def test_the_library_comes_once_and_only_with_charts(page: Page) -> None:
    two = Page("Two", [Section("s", [part for part in page.sections[0].parts if isinstance(part, Figure)] * 2)])
    assert len(two.to_html()) < len(page.to_html()) + 100_000
    assert len(Page("Words", [Section("s", ["Only words."])]).to_html()) < 20_000


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")
def test_in_a_browser(page: Page, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    file = page.write(tmp_path / "page.html")
    asked: list[str] = []
    said: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(color_scheme="light")
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(file.as_uri())
        drawn = tab.locator("html[data-drawn='1']")
        drawn.wait_for(timeout=60_000)
        lines = tab.locator("#chart-0 .mark-line path")
        assert {lines.nth(i).get_attribute("stroke") for i in range(2)} == {BLUE, VERMILLION}
        # A click on the legend leaves the other line faint.
        tab.locator("#chart-0 .role-legend-label text").first.click()
        tab.wait_for_function(
            "[...document.querySelectorAll('#chart-0 .mark-line path')].some(p => p.getAttribute('opacity') < 0.5)"
        )
        # Dark is the same chart in the other colours.
        tab.get_by_role("button", name="Dark").click()
        tab.wait_for_function(
            f"document.querySelector('#chart-0 .mark-line path').getAttribute('stroke') == '{COLOURS[BLUE]}'"
        )
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert said == []
