"""Stands for pip where documents are tried: what they install must be this package, with extras that it has."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
    verb, *wanted = sys.argv[1:]
    assert verb == "install", f"pip {verb} is not known here"
    for one in wanted:
        found = re.fullmatch(r"(?:\.|ranktrial)(?:\[([\w,]+)\])?", one)
        assert found, f"{one!r} is not this package"
        extras = set(filter(None, (found[1] or "").split(",")))
        assert extras <= set(project["optional-dependencies"]), f"{one!r}: there is no such extra"
