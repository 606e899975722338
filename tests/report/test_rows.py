"""Reports with metrics, segments and guards as text, as a table of comma-separated values, and in a notebook."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from xml.etree import ElementTree as Tree

import numpy as np
import pytest

from browser.states import GUARDS, metric_rows, segments, states
from ranktrial.report.files import report_csv
from ranktrial.report.schema import Report

STATE = next(state for state in states() if state.name == "withheld: guard")


@pytest.fixture(scope="module")
def report() -> Report:
    more = {
        "metrics": metric_rows(),
        "segments": segments(8, STATE.decision),
        "guards": GUARDS,
        "futile": "B is not better.",
    }
    return replace(STATE, more={**more, "course": "10% of the visitors take part."}).report


def test_every_number_of_metrics_segments_and_guards_is_a_row(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(report_csv(report))))
    by_part = {
        part: [row for row in rows if row["part"] == part] for part in dict.fromkeys(row["part"] for row in rows)
    }
    result = {row["name"]: row for row in by_part["result"]}
    assert float(result["orders per search, B - A"]["value"]) == pytest.approx(0.13)
    assert result["course"]["text"] == "10% of the visitors take part."
    assert result["not better by what matters"]["text"] == "B is not better."
    assert float(result["share of the visitors who take part"]["value"]) == 1.0
    assert [(row["name"], row["status"], row["text"]) for row in by_part["guard"]] == [
        (one.name, one.status, one.text) for one in GUARDS
    ]
    assert [row["status"] for row in by_part["metric"]] == [
        "decides", "harm", "no harm shown", "may be chance", "told from chance", "too early",
    ]  # fmt: skip
    assert [float(row["value"]) for row in by_part["metric, share"][:2]] == [0.12, -0.05]
    assert [row["value"] for row in by_part["metric, searches that wait"]] == ["400", "0", "0", "400", "0", "4000"]
    assert report.segments is not None
    for part, known in {
        "segment": "difference", "segment, for ranking": "shrunken", "segment, share of searches": "share",
        "segment, least false discovery rate": "rate",
    }.items():  # fmt: skip
        for row, one in zip(by_part[part], report.segments.answers, strict=True):
            value = getattr(one, known)
            assert row["value"] == "" if np.isnan(value) else float(row["value"]) == pytest.approx(value)


def test_the_text_has_a_table_of_metrics_and_one_of_segments(report: Report) -> None:
    text = str(report)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "orders primary +12.0% +0.0060 (+0.0035 to +0.0085) 3,600 (400 wait) decides" in lines
    assert "clicks guard -5.0% -0.0025 (-0.0035 to -0.0015) 3,600 harm" in lines
    assert "  revenue of four weeks: No search has had 28 days yet: the first counts on 2026-12-12." in text
    assert "By segment (*: told from chance; on average at most 5% of these are false)" in text
    assert len([line for line in text.splitlines() if line.startswith("  device: ")]) == 6
    assert "B (with popularity) gets about 1.2% fewer clicks than A (current); 5.0% is allowed." in text
    assert not re.search(r"nan\b|inf\b", text)


def test_a_notebook_has_both_tables_open(report: Report) -> None:
    found = Tree.fromstring(report._repr_html_())
    opened = ["".join(one.itertext()) for one in found.iter("details") if one.attrib]
    assert opened[0].startswith("By metric")
    assert "told from chance" in opened[0]
    assert opened[1].startswith("By segment")
    assert "orders per search, B (with popularity) - A (current)" in "".join(found.itertext())
