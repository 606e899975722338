"""Size of an installation, and time from the start of the service to its first answers; of an earlier commit and of this tree.

Each is installed into an environment of its own, so this needs pip's index. Cold is with an empty cache of compiled code, warm
is the best of three starts. Seconds are of the clock, in brackets of the processor: only the latter mean anything on a busy
machine. ``START_BEFORE`` names the commit to compare with.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BEFORE = os.environ.get("START_BEFORE", "024a5f1")
STARTS = 3
SHOWN = 8  # packages whose size is told
TICKS = os.sysconf("SC_CLK_TCK")
NOT_OURS = ("pip", "setuptools")  # that come with every environment
MEASURE = """
import json, os, sys
from importlib.metadata import distributions

def size(file):
    path = file.locate()
    return os.lstat(path).st_blocks * 512 if os.path.exists(path) else 0

print(json.dumps({d.name: sum(map(size, d.files or ())) / 1e6 for d in distributions(path=[sys.argv[1]])}))
"""
LISTS: dict[str, Any] = {"a": [f"sku-{i}" for i in range(20)], "b": [f"sku-{i}" for i in reversed(range(20))]}


def install(wanted: str, folder: Path) -> Path:
    """An environment with this requirement of pip in it, beside what is there already; its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *pinned(folder), wanted], check=True)
    return python


def pinned(folder: Path) -> list[str]:
    """Options of pip for the versions of ``constraints.txt``, without the hashes, which a wheel just built has none of."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    versions = folder / "versions.txt"
    versions.write_text(
        "".join(f"{line.split()[0]}\n" for line in lines if "==" in line.split(" ")[0]), encoding="utf-8"
    )
    return ["--constraint", str(versions)]


def sizes(python: Path) -> dict[str, float]:
    """Megabytes on the disk of each package of an environment, the largest first."""
    packages = next(python.parents[1].glob("lib/python*/site-packages"))
    told = subprocess.run([str(python), "-c", MEASURE, str(packages)], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(told.stdout)
    return dict(sorted(((n, s) for n, s in found.items() if n not in NOT_OURS), key=lambda pair: -pair[1]))


class Served:
    """A service that was just started, and what it answers.

    Args:
        python: Of its environment.
        cache: Folder of compiled code.
        folder: For its store and its log.
    """

    def __init__(self, python: Path, cache: Path, folder: Path) -> None:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        environment.pop("PYTHONPATH", None)
        self.log = folder / "log"
        self.begun = time.perf_counter()
        command = [str(python.with_name("ranktrial")), "serve", str(folder / "t.db"), "--port", "0"]
        with self.log.open("ab") as written:  # by the service alone: a shared handle would share its position too
            self.process = subprocess.Popen(command, stderr=written, env=environment)
        self.port = 0

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=300)
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        if answer.status >= 300:
            raise OSError(f"{path} was answered {answer.status}: {raw[:300]!r}")
        return json.loads(raw)

    def wait(self) -> None:
        """Wait until it listens, as its log says."""
        while not self.port:
            whole = self.log.read_text(encoding="utf-8").rpartition("\n")[0]
            lines = [json.loads(line) for line in whole.splitlines()]
            self.port = next((line["port"] for line in lines if line["event"] == "listening"), 0)
            if self.process.poll() is not None:
                raise OSError(f"the service did not start: {lines}")
            time.sleep(0.01)

    def rank(self, visitor: int) -> Any:
        body = {**LISTS, "query": f"query {visitor % 10}", "unit": f"visitor-{visitor}"}
        return self.ask("POST", "/v1/trials/t/rank", body)

    def since(self) -> tuple[float, float]:
        """Seconds since it was started: of the clock, and of the processor with processes that have ended."""
        times = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:15]
        return time.perf_counter() - self.begun, sum(map(int, times)) / TICKS


@contextlib.contextmanager
def served(python: Path, cache: Path) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="ranktrial-start-") as folder:
        service = Served(python, cache, Path(folder))
        try:
            yield service
        finally:
            service.process.terminate()
            service.process.wait()


def first_answers(python: Path, cache: Path) -> dict[str, tuple[float, float]]:
    """Times of a service's first answer, first answer that is a draw, and first report; clock and processor."""
    found = {}
    with served(python, cache) as service:
        service.wait()
        with contextlib.suppress(HTTPException):
            service.ask("GET", "/healthz")
        found["/healthz"] = service.since()
        service.ask("PUT", "/v1/trials/t", {"method": "LogOpt()", "k": 10, "seed": 1})
        shown = service.rank(0)
        found["first answer of rank"] = service.since()
        while shown["fallback"] is not None:
            time.sleep(0.25)  # to ask more often would take the processor from what is compiled
            shown = service.rank(0)
        found["first drawn answer"] = service.since()
        for visitor in range(100):
            shown = service.rank(visitor)
            service.ask("POST", "/v1/events", [{"id": shown["id"], "document": shown["ranking"][visitor % 3]}])
        service.ask("GET", "/v1/trials/t/report")
        found["first report, after 100 visitors"] = service.since()
    return found


def measure(wanted: str, folder: Path) -> dict[str, str]:
    """All there is to tell of one requirement of pip, with and without the extra ``serve``."""
    plain = sizes(install(wanted, folder / "environment"))
    python = install(wanted + "[serve]", folder / "environment")
    with_serve = sizes(python)
    told = {
        "size, plain, MB": f"{sum(plain.values()):.0f}",
        "size, serve, MB": f"{sum(with_serve.values()):.0f}",
        "largest, MB": ", ".join(f"{name} {size:.0f}" for name, size in list(with_serve.items())[:SHOWN]),
    }
    cache = folder / "cache"
    for kind, starts in (("cold", 1), ("warm", STARTS)):
        all_of_them = [first_answers(python, cache) for _ in range(starts)]
        for what in all_of_them[0]:
            clock, processor = (min(one[what][i] for one in all_of_them) for i in range(2))
            told[f"{kind}: {what}, s"] = f"{clock:.1f} ({processor:.1f})"
    return told


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="ranktrial-start-") as text:
        folder = Path(text)
        trees = {"after": ROOT}
        (folder / "tree").mkdir()
        archive = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode == 0:
            subprocess.run(["tar", "-x"], cwd=folder / "tree", input=archive.stdout, check=True)
            trees = {"before": folder / "tree", **trees}
        told = {name: measure(str(tree), folder / name) for name, tree in trees.items()}
    return [{"": what, **{name: told[name].get(what, "") for name in trees}} for what in told["after"]]
