"""Write the lock files: the versions that are installed here, with the hashes of all files of each release.

All of them, so that they hold for other processors and versions of Python too; pip takes a file with another hash from nowhere.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from importlib.metadata import distribution
from pathlib import Path
from urllib.request import urlopen

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

ROOT = Path(__file__).parents[1]
INDEX = os.environ.get("PIP_INDEX_URL", "").rstrip("/")  # a simple index that pip takes packages from
FILES = {  # what each is for
    "constraints.txt": ("ranktrial[dev]",),
    "deploy/constraints.txt": ("ranktrial[serve,postgres]", "hatchling"),
}


def closure(*roots: str) -> dict[str, Version]:
    """Installed packages that requirements need, by name; without this project itself."""
    waiting, asked, found = [Requirement(root) for root in roots], set[tuple[str, str]](), dict[str, Version]()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        here = distribution(name)
        if name != "ranktrial":
            found[name] = Version(here.version)
        for extra in (one.extras or set()) | {""}:
            if (name, extra) in asked:
                continue
            asked.add((name, extra))
            for text in here.requires or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return dict(sorted(found.items()))


class Links(HTMLParser):
    """The files of an index's page: their names and hashes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        address = dict(attributes).get("href") or ""
        if tag == "a" and (match := re.search(r"([^/]+)#sha256=([0-9a-f]{64})$", address)):
            self.found.append((match[1], match[2]))


def hashes(name: str, version: Version) -> list[str]:
    """SHA-256 of all files of a release, sorted."""
    page = Links()
    with urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page.feed(answer.read().decode())
    found = sorted({digest for file, digest in page.found if _version(file) == version})
    if not found:
        raise SystemExit(f"{INDEX} has no file of {name} {version}")
    return found


def _version(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def main() -> None:
    if not INDEX:
        raise SystemExit("PIP_INDEX_URL must name the simple index whose hashes are to be written")
    for file, roots in FILES.items():
        pinned = closure(*roots)
        with ThreadPoolExecutor(8) as pool:
            all_hashes = list(pool.map(hashes, pinned, pinned.values()))
        lines = [
            f"# Versions that are tested together, for {' and '.join(roots)}, made by `make lock`:",
            f"# pip install --require-hashes --requirement {file}, then the project with --no-deps --no-build-isolation",
        ]
        for (name, version), digests in zip(pinned.items(), all_hashes):
            lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in digests)]))
        (ROOT / file).write_text("\n".join(lines) + "\n")
        print(f"{file}: {len(pinned)} releases, {sum(map(len, all_hashes))} files", file=sys.stderr)


if __name__ == "__main__":
    main()
