"""The Python in README.md and docs/ runs as printed, block after block of a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ranktrial.methods import Method

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    "docs/methods.md",
    "docs/add-a-method.md",
    "docs/estimators.md",
    "docs/logopt.md",
    "docs/intervals.md",
    "docs/planning.md",
    "docs/position-bias.md",
    "docs/data.md",
]
# Data sets that pages read and readers have to fetch themselves, as they are named there.
DATA_SETS = [
    *(f"MSLR-WEB30K/Fold1/{part}.txt" for part in ("train", "vali", "test")),
    *(f"ltrc_yahoo/set1.{part}.txt" for part in ("train", "valid", "test")),
]


@pytest.mark.parametrize("page", PAGES)
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Method, "registry", dict(Method.registry))  # a page may define a method
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    for file in DATA_SETS:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("2 qid:10 1:0.5 3:12.25\n0 qid:10 1:0.1 3:3\n1 qid:11 1:0.7 3:2\n0 qid:11 3:9\n")
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
