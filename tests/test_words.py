"""Docstrings open with what the thing is or does, never with a question."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ranktrial

ROOT = Path(ranktrial.__file__).parent


def modules() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(ROOT.rglob("*.py")):
        yield file.relative_to(ROOT).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def asks(docstring: str) -> bool:
    """Whether the first sentence is a question."""
    return re.split(r"(?<=[.?!:])\s", docstring)[0].endswith("?")


def test_every_module_says_what_it_is() -> None:
    assert [name for name, tree in modules() if not ast.get_docstring(tree)] == []


def test_no_docstring_opens_with_a_question() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    asking = [
        f"{name}: {getattr(node, 'name', 'module')}"
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, documented) and asks(ast.get_docstring(node) or "")
    ]
    assert asking == []


def test_questions_are_told_from_statements() -> None:
    assert asks("What may be shown? An explicit distribution over rankings.")
    assert not asks("Rankings that may be shown. Is that clear?")
    assert not asks("")
