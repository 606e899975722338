"""Every line of the threat model names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_line_names_tests_that_there_are() -> None:
    text = (ROOT / "docs" / "reference" / "threat-model.md").read_text()
    rows = [
        line for line in text.splitlines() if line.startswith("| ") and "|---" not in line and line != "| | held by |"
    ]
    assert len(rows) > 25
    for line in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
        assert named, line
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), (file, test)
