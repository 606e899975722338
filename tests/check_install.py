"""Stands for pip where documents are tried: what they install must be this package, with extras that it has.

Prints the modules that are not installed after it; ``as_installed/sitecustomize.py`` hides them from what follows.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

from ranktrial.extras import MODULES

PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def modules(extra: str) -> set[str]:
    """Requirements that an extra installs, with those of the extras it stands for."""
    inner = [name for line in EXTRAS[extra] for name in line.partition("ranktrial[")[2].rstrip("]").split(",") if name]
    found = set(MODULES.get(extra, ())).union(*map(modules, inner))
    return found | {"narwhals"} if "altair" in found else found  # charts bring it with them


if __name__ == "__main__":
    verb, *wanted = sys.argv[1:]
    hidden = set(os.environ["NOT_INSTALLED"].split()) if "NOT_INSTALLED" in os.environ else modules("all")
    assert verb == "install", f"pip {verb} is not known here"
    for one in wanted:
        found = re.fullmatch(r"(?:\.|ranktrial)(?:\[([\w,]+)\])?", one)
        assert found, f"{one!r} is not this package"
        extras = set(filter(None, (found[1] or "").split(",")))
        assert extras <= EXTRAS.keys(), f"{one!r}: there is no such extra"
        hidden.difference_update(*map(modules, extras))
    print(*sorted(hidden))
