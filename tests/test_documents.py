"""Documents: links, methods and file names in them are right; blocks that do not run say why, ``pages/`` runs the others."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import ranktrial
from documents import ROOT, Block, Reader
from page_blocks import BLOCKS, EVERY_PAGE, GROUPS
from ranktrial.analysis import DeltaEstimator
from ranktrial.analysis.decision import ALLOWANCE
from ranktrial.formats.readers import NEEDED
from ranktrial.formats.readers.common import OTHER_NAMES
from ranktrial.log import Log
from ranktrial.methods import known_methods, parse_method
from ranktrial.paper.study.plan import read_plan
from ranktrial.report.schema import Report
from ranktrial.trial import Trial

MARKER = "<!-- generated: "  # what the site makes from the code, whose headings it checks itself
OF_PAGE = pytest.mark.parametrize("page", EVERY_PAGE, ids=[page.relative_to(ROOT).as_posix() for page in EVERY_PAGE])
LINKED = [*EVERY_PAGE, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
RESEARCH = ROOT / "docs/research"
WIDEST = 6  # columns of a table that a search engineer reads
NOT_RUN = [block for blocks in BLOCKS.values() for block in blocks if block.reason is not None]


def test_every_group_of_pages_runs() -> None:
    assert sorted(file.stem for file in (ROOT / "tests/pages").glob("test_*.py")) == sorted(
        f"test_{name}" for name in GROUPS
    )


@pytest.mark.parametrize("block", NOT_RUN, ids=[block.where for block in NOT_RUN])
def test_a_block_that_does_not_run_says_why(block: Block) -> None:
    """Skipped, so that the summary of a run lists them with their reasons."""
    assert block.reason
    pytest.skip(f"{block.where}: {block.reason}")


WRONG = {
    "sh": "false\ntrue\n",
    "console": "$ echo one\ntwo\n",
    "python": "assert False\n",
    "text": "never printed\n",
    "json": "{'a': 1}\n",
    "": "what language is this\n",
}


@pytest.mark.parametrize("language", WRONG)
def test_a_wrong_block_is_noticed(language: str, tmp_path: Path) -> None:
    with Reader(tmp_path, "", {}, {}) as reader:
        reader.run(Block("page.md", 1, "console", "$ echo one 2 three; echo four\none ... three\n...\n", None))
        with pytest.raises((AssertionError, ValueError)):
            reader.run(Block("page.md", 1, language, WRONG[language], None))


def test_what_a_page_does_not_install_is_not_there(tmp_path: Path) -> None:
    def ask(code: str) -> None:
        reader.run(Block("page.md", 1, "sh", code, None))

    with Reader(tmp_path, "", {}, {}) as reader:
        ask("python -c 'import sqlglot'")  # a page that installs nothing has everything
        ask("pip install 'ranktrial[serve]'; python -c 'import h11, uvicorn'")
        with pytest.raises(AssertionError, match="import of sqlglot halted"):
            ask("python -c 'import sqlglot'")
        ask("pip install 'ranktrial[cluster]'; python -c 'import sqlglot, uvicorn'")


def test_what_is_saved_is_run() -> None:
    for page, blocks in BLOCKS.items():
        for number, block in enumerate(blocks):
            if block.file is not None:
                later = "".join(one.code for one in blocks[number + 1 :] if one.language in ("sh", "bash", "console"))
                assert block.file in later, f"{block.where}: no later block of {page} runs {block.file}"


@OF_PAGE
def test_methods_are_written_as_they_are(page: Path) -> None:
    """``LogOpt(floor=0.9)`` in a sentence, a table or a plan is a method with that option."""
    text = page.read_text(encoding="utf-8")
    names = "|".join(known_methods())
    for written in re.findall(rf"`((?:{names})\((?:[^()`]|\([^()`]*\))*\))`", text):
        parse_method(written)
    for plan in re.findall(r"```toml\n(.*?)```", text, re.S):
        for written in tomllib.loads(plan).get("methods", ()):
            parse_method(written)


def test_documents_tell_the_default_allowance() -> None:
    texts = [page.read_text(encoding="utf-8") for page in (*EVERY_PAGE, ROOT / "CHANGELOG.md")]
    told = [share for text in texts for share in re.findall(r"([\d.]+) % of exposure disagreement", text)]
    assert len(told) >= 3
    assert {float(share) / 100 for share in told} == {ALLOWANCE}


def test_every_guardrail_is_listed_and_has_a_remedy(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", k=2, background=False) as trial:
        checks = [guardrail.name for guardrail in trial.report().guardrails]
    assert len(checks) > 15
    for page in ("how-to/guardrail-fails.md", "reference/guardrails.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        told = {name.strip() for row in re.findall(r"^\| ([a-z][^|]*) \|", text, re.M) for name in row.split(",")}
        assert [name for name in checks if name not in told] == [], f"in no row of docs/{page}"


def test_every_format_of_logs_is_listed_with_its_columns() -> None:
    text = (ROOT / "docs/reference/log-formats.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*)$", text.split("## Exported logs")[0], re.M))
    for name, needed in NEEDED.items():
        assert name in rows, f"{name}: has no row in docs/reference/log-formats.md"
        known = [[f"`{spelt}`" for spelt in OTHER_NAMES.get(column, (column,))] for column in needed]
        assert [spelt[0] for spelt in known if not any(one in rows[name] for one in spelt)] == [], name


def test_every_estimator_is_listed() -> None:
    text = (ROOT / "docs/explanation/estimators.md").read_text(encoding="utf-8")
    own = [name for name, kind in DeltaEstimator.registry.items() if kind.__module__.startswith("ranktrial.")]
    assert [name for name in own if f"| `{name}()` |" not in text] == [], "in no row of docs/explanation/estimators.md"


def test_the_plans_of_the_study_can_be_run() -> None:
    assert len(read_plan(str(ROOT / "docs/research/study.toml")).methods) == 17
    _, right, wrong = read_plan(str(ROOT / "docs/research/dip.toml")).methods
    assert wrong == f"{right.removesuffix(')')}, authors_rows=True)"


@OF_PAGE
def test_tables_for_users_are_narrow(page: Path) -> None:
    """Six columns at most; tables of measurements stand in docs/research/."""
    if RESEARCH not in page.parents:
        rules = re.findall(r"^\|(?: *:?-+:? *\|)+$", page.read_text(encoding="utf-8"), re.M)
        assert [rule for rule in rules if rule.count("|") - 1 > WIDEST] == []


@pytest.mark.parametrize("page", LINKED, ids=[page.relative_to(ROOT).as_posix() for page in LINKED])
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        target = page.parent / link if link else page
        assert target.exists(), link
        if anchor and MARKER not in target.read_text(encoding="utf-8"):
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    for file in re.findall(r"`((?:\w+/)+\w+\.(?:py|js|md)|(?:\w+/){2,})`", text):
        assert (ROOT / file).exists() or (ROOT / "src/ranktrial" / file).exists(), file


def test_the_tree_is_the_tree() -> None:
    """CONTRIBUTING.md has a line for everything at the top of the package."""
    block = re.search(
        r"```text\nsrc/ranktrial/\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.S
    )
    assert block is not None
    told = set(re.findall(r"^  ([\w.]+)", block[1], re.M))
    there = {entry.name for entry in (ROOT / "src/ranktrial").iterdir()} - {"__pycache__", "py.typed"}
    assert told == there


PACKAGES = {file.parent.name for file in (ROOT / "src/ranktrial").glob("*/__init__.py")} - {
    "client"
}  # JavaScript's too
DOTTED = re.compile(rf"`(?:ranktrial\.)?((?:{'|'.join(PACKAGES)})\.[A-Za-z_][\w.]*)")
OBJECTS = {"trial": Trial, "report": Report, "log": Log}  # in pages these are variables too
FILES = {"log.json", "report.html", "trial.ipynb"}


def there_is(name: str) -> bool:
    """True if a name of the package exists, or an attribute of an object that pages call so."""
    first, *rest = name.split(".")
    if kind := OBJECTS.get(first):
        annotated = {name for base in kind.__mro__ for name in inspect.get_annotations(base)}
        if hasattr(kind, rest[0]) or rest[0] in annotated:
            return True
    found: object = ranktrial
    for part in (first, *rest):
        if not hasattr(found, part) and isinstance(found, ModuleType):
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{found.__name__}.{part}")
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@OF_PAGE
def test_names_of_the_package_exist(page: Path) -> None:
    names = {found.rstrip(".") for found in DOTTED.findall(page.read_text(encoding="utf-8"))} - FILES
    assert [name for name in sorted(names) if not there_is(name)] == []
