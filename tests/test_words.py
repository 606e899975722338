"""Docstrings, pages and help texts open with a verb or a noun of the field, not with a question or a clause without noun."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import ranktrial
from ranktrial.cli import app

ROOT = Path(ranktrial.__file__).parent
CHECKOUT = Path(__file__).parents[1]
PAGES = [
    CHECKOUT / "README.md",
    *(
        page
        for page in sorted((CHECKOUT / "docs").rglob("*.md"))
        if "_build" not in page.parts and page.name != "glossary.md"
    ),
]
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
# First words of a docstring whose subject is missing. Predicates say "True if ..."; other constructors "Build ... from ...".
CLAUSE = re.compile(
    r"(What|Who|Whom|Whose|Whoever|Why|When|Where|Which|How|Whether|If|While|After|Before|Since|Until|Than|As|By|For|From|In|Of"
    r"|On|To|With|Without|So|And|But|That|This|These|Those|It|They|There|Its|Their|Something|Anything|Everything|All that"
    r"|The same|Same as|One that)\b(?!-)",
    re.IGNORECASE,
)


# The same for what stands below a name, or in running text, which may open with "With ..." or "Where ...", but needs a noun.
LOST = re.compile(
    r"(What|Whom|Whose|Whoever|Which|Whether|Of|And|That|Those|By|By how|How|The same of|Same as|All that|One that)\b(?!-)",
    re.IGNORECASE,
)
# Names of a check and of counters, which programs may read.
NAMES = {"heaviest unit", "damaged impressions", "clicks without impression", "clicks on void impressions"}


def modules(folder: Path = ROOT) -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(folder.rglob("*.py")):
        yield file.relative_to(folder).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def docstrings(folder: Path = ROOT) -> Iterator[tuple[str, str]]:
    for name, tree in modules(folder):
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
                yield f"{name}: {getattr(node, 'name', 'module')}", docstring


def classes() -> Iterator[str]:
    for _, tree in modules():
        yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def asks(docstring: str) -> bool:
    """True if the first sentence is a question."""
    return re.split(r"(?<=[.?!:])\s", docstring)[0].endswith("?")


def test_every_module_says_what_it_is() -> None:
    assert [name for name, tree in modules() if not ast.get_docstring(tree)] == []


def test_every_class_has_a_name_of_its_own() -> None:
    """Except the answer to a search, which the client, without the rest of the library, has to define once more."""
    assert {name for name, times in Counter(classes()).items() if times > 1} == {"Shown"}


FOLDERS = pytest.mark.parametrize(
    "folder",
    [ROOT, *(CHECKOUT / name for name in ("tests", "tools", "benchmarks", "examples"))],
    ids=lambda path: path.name,
)


@FOLDERS
def test_no_docstring_opens_with_a_question(folder: Path) -> None:
    assert [where for where, docstring in docstrings(folder) if asks(docstring)] == []


@FOLDERS
def test_no_docstring_opens_with_a_clause_that_has_lost_its_noun(folder: Path) -> None:
    """Names of tests are sentences, on which the docstrings below them go on."""
    wrong = [
        f"{where}: {docstring.splitlines()[0]}"
        for where, docstring in docstrings(folder)
        if (LOST if ": test_" in where else CLAUSE).match(docstring)
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(CHECKOUT).as_posix() for page in PAGES])
def test_pages_open_with_a_noun_or_a_verb(page: Path) -> None:
    """Headings may be questions, of which the index of a page is made; what they stand above may not."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    blocks = [block.strip() for block in re.split(r"\n\s*\n|^#+ .*$", text, flags=re.MULTILINE)]
    first = next((block.lstrip("*") for block in blocks if re.match(r"[A-Za-z*]", block)), "")
    assert not LOST.match(first)
    assert not asks(first)


def options() -> Iterator[tuple[str, str]]:
    """Help texts of all commands, and of their options and arguments."""
    todo = [("ranktrial", typer.main.get_command(app))]
    while todo:
        name, command = todo.pop()
        todo += [(f"{name} {one}", known) for one, known in getattr(command, "commands", {}).items()]
        yield name, command.help or ""
        yield from ((f"{name} {one.name}", getattr(one, "help", None) or "") for one in command.params)


def test_help_texts_open_with_a_noun_or_a_verb() -> None:
    assert [f"{where}: {text}" for where, text in options() if LOST.match(text) or asks(text)] == []


def texts(tree: ast.Module) -> Iterator[str]:
    """Literals that are no docstrings, and the fixed parts of f-strings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def test_checks_speak_of_searches_and_visitors() -> None:
    found = {
        text
        for name, tree in modules()
        if name.startswith("analysis/guardrails/")
        for text in texts(tree)
        if re.search(r"\b(unit|impression)s?\b", text)
    }
    assert found == NAMES


def test_questions_are_told_from_statements() -> None:
    assert asks("What may be shown? An explicit distribution over rankings.")
    assert not asks("Rankings that may be shown. Is that clear?")
    assert not asks("")


def test_clauses_are_told_from_nouns() -> None:
    assert CLAUSE.match("What logs know of each other that were read one after the other.")
    assert CLAUSE.match("The same of Student's t.")
    assert CLAUSE.match("Whether a document was clicked.")
    assert CLAUSE.match("From counts per (document, rank).")
    assert not CLAUSE.match("State shared by successive snapshots of one log.")
    assert not CLAUSE.match("Whole sentences about a decision.")
    assert not CLAUSE.match("True if a document was clicked.")
    assert not CLAUSE.match("In-memory log.")
