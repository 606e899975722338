"""The Python in the documents runs as printed, block after block of a page, and prints what stands below it.

A block marked ``text`` right after one of Python is what that block prints, or a part of it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from ranktrial.methods import Method, parse_method
from ranktrial.study.plan import read_plan

ROOT = Path(__file__).resolve().parents[1]
EVERY_PAGE = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted(ROOT.glob("docs/*.md")),
]
OF_PAGE = pytest.mark.parametrize("page", EVERY_PAGE, ids=[page.name for page in EVERY_PAGE])
PAGES = [page.relative_to(ROOT).as_posix() for page in EVERY_PAGE if "```python\n" in page.read_text(encoding="utf-8")]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<printed>.*?)```)?", re.S)
# Data sets that pages read and readers have to fetch themselves, as they are named there.
DATA_SETS = [
    *(f"MSLR-WEB30K/Fold1/{part}.txt" for part in ("train", "vali", "test")),
    *(f"ltrc_yahoo/set1.{part}.txt" for part in ("train", "valid", "test")),
]


@pytest.mark.parametrize("page", PAGES)
def test_snippets_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Method, "registry", dict(Method.registry))  # a page may define a method
    for file in DATA_SETS:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("2 qid:10 1:0.5 3:12.25\n0 qid:10 1:0.1 3:3\n1 qid:11 1:0.7 3:2\n0 qid:11 3:9\n")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        exec(compile(block["code"], page, "exec"), names)
        assert (block["printed"] or "").strip() in capsys.readouterr().out


def test_every_text_block_is_checked() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text.count("```text\n") == sum(bool(block["printed"]) for block in BLOCK.finditer(text)), page


@OF_PAGE
def test_methods_are_written_as_they_are(page: Path) -> None:
    """``LogOpt(floor=0.9)`` in a sentence, a table or a plan is a method with that option."""
    text = page.read_text(encoding="utf-8")
    names = "|".join(Method.registry)
    for written in re.findall(rf"`((?:{names})\((?:[^()`]|\([^()`]*\))*\))`", text):
        parse_method(written)
    for plan in re.findall(r"```toml\n(.*?)```", text, re.S):
        for written in tomllib.loads(plan).get("methods", ()):
            parse_method(written)


def test_the_plan_of_the_study_can_be_run() -> None:
    assert len(read_plan(str(ROOT / "docs/study.toml")).methods) == 16


@OF_PAGE
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        target = page.parent / link if link else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    for file in re.findall(r"`((?:\w+/)+\w+\.(?:py|js|md)|(?:\w+/){2,})`", text):
        assert (ROOT / file).exists() or (ROOT / "src/ranktrial" / file).exists(), file


def test_the_tree_is_the_tree() -> None:
    """CONTRIBUTING.md has a line for everything at the top of the package."""
    block = re.search(r"```\nsrc/ranktrial/\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.S)
    assert block is not None
    told = set(re.findall(r"^  ([\w.]+)", block[1], re.M))
    there = {entry.name for entry in (ROOT / "src/ranktrial").iterdir()} - {"__pycache__", "py.typed"}
    assert told == there
