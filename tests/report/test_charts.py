from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import altair as alt
import pytest

from ranktrial.report.charts import Records, Sheets, decades, save_chart
from ranktrial.report.theme import COLOURS, DASHES, SHAPES, STYLES

ROWS: Records = [{"x": 1, "y": 0.5, "note": None}, {"x": 2, "y": 0.25, "note": "a,b"}]


def test_a_chart_becomes_files_with_its_data(tmp_path: Path) -> None:
    sheets = Sheets()
    chart = alt.Chart(sheets.add(ROWS)).mark_point().encode(x="x:Q", y=alt.Y("y:Q", title="half & half"))
    written = save_chart(sheets.spec(chart), tmp_path / "new" / "figure", rows=ROWS)
    assert [file.name for file in written] == ["figure.svg", "figure.png", "figure.pdf", "figure.csv"]
    svg, png, pdf, csv = (file.read_bytes() for file in written)
    assert b"half &amp; half" in svg
    assert svg.count(b'aria-roledescription="point"') == len(ROWS)
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert csv.decode() == 'x,y,note\n1,0.5,\n2,0.25,"a,b"\n'


def test_a_png_has_twice_the_size_of_its_svg(tmp_path: Path) -> None:
    sheets = Sheets()
    chart = alt.Chart(sheets.add(ROWS)).mark_point().encode(x="x:Q").properties(width=100, height=50)
    svg, png = (file.read_bytes() for file in save_chart(sheets.spec(chart), tmp_path / "f", formats=["svg", "png"]))
    width = int(svg.split(b'width="')[1].split(b'"')[0])
    assert int.from_bytes(png[16:20]) == 2 * width


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format is 'gif', must be one of 'svg', 'png', 'pdf'"):
        save_chart({}, tmp_path / "new" / "figure", formats=["svg", "gif"])
    assert not (tmp_path / "new").exists()


def test_powers_of_ten_are_written_as_such(tmp_path: Path) -> None:
    sheets = Sheets()
    rows = [{"n": 100, "e": 0.02}, {"n": 3_000_000, "e": 0.4}]
    scale = alt.Scale(type="log")
    x = alt.X("n:Q", scale=scale, axis=decades(100, 3e6))
    chart = alt.Chart(sheets.add(rows)).mark_line().encode(x=x, y=alt.Y("e:Q", scale=scale, axis=decades(0.01, 1)))
    (file,) = save_chart(sheets.spec(chart), tmp_path / "f", formats=["svg"])
    svg = file.read_text()
    for text in ("10²", "10³", "10⁴", "10⁵", "10⁶", "10⁻²", "10⁻¹", "10⁰"):
        assert f">{text}<" in svg
    assert ">10⁷<" not in svg


def test_spare_styles_differ_and_use_the_palette() -> None:
    assert len({(style.colour, style.dash) for style in STYLES}) == len(STYLES) == 8 * len(DASHES)
    assert all(style.colour in COLOURS and style.shape in SHAPES for style in STYLES)
    # Neighbours can be told apart in grey.
    assert all(a.shape != b.shape for a, b in pairwise(STYLES))
