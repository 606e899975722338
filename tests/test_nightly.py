"""The nightly tool's rule: which figures end the run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    found = importlib.util.spec_from_file_location("nightly", ROOT / "tools" / "nightly.py")
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    sys.modules["nightly"] = made
    found.loader.exec_module(made)
    return made


def test_what_must_be_0_or_below_a_share_ends_the_run_where_it_is_not(tool: ModuleType) -> None:
    good = [
        ("lost (0)", "0"),
        ("seconds", "4.5 s"),
        (f"counted {tool.FEW}", "70 of 70,358"),
        (f"none {tool.FEW}", "0 of 0"),
    ]
    bad = [("twice (0)", "1"), (f"counted {tool.FEW}", "71 of 70,358"), (f"counted {tool.FEW}", "1,000 of 70,358")]
    assert tool.broken(good + bad) == bad


def test_the_page_that_is_kept_is_as_its_rows_say(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "research" / "nightly.md").read_text()
    rows = [
        tuple(line.strip("| ").split(" | ")) for line in page.splitlines() if line.startswith("| ") and " | " in line
    ]
    named = [row for row in rows if len(row) == 2 and row[0]]
    assert sum(row[0].endswith(tool.FEW) for row in named) == 2
    assert tool.broken(named) == []


def test_what_was_written_by_hand_stays_on_a_page_that_is_made_anew(tool: ModuleType, tmp_path: Path) -> None:
    file, options = tmp_path / "nightly.md", tool.argparse.Namespace(kills=2, requests=3, soak=4.0)
    assert tool.by_hand(file) == ""
    file.write_text(tool.page(options, [("lost (0)", "0")], 60.0) + "\n## Why\n\nBecause.\n\n## More\n")
    again = tool.page(options, [("lost (0)", "1")], 60.0, tool.by_hand(file))
    assert again.endswith("| lost (0) | 1 |\n\n## Why\n\nBecause.\n\n## More\n")
    assert "| lost (0) | 0 |" not in again
    kept = (ROOT / "docs" / "research" / "nightly.md").read_text()
    assert again.partition("Instances are killed")[2].partition("\n\n| | |")[0] in kept
