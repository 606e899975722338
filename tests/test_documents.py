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
]


@pytest.mark.parametrize("page", PAGES)
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Method, "registry", dict(Method.registry))  # a page may define a method
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
