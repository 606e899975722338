"""The command `ranktrial demo`: a whole trial through the real service, on simulated users whose true preference is known."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np
import typer

from ranktrial import extras
from ranktrial.arrays import FloatArray
from ranktrial.cli.console import plain_errors, progress_bar, say
from ranktrial.cli.options import JsonOption, SeedOption
from ranktrial.cli.report import read_report
from ranktrial.client import Client
from ranktrial.paper.data import yahoo_like
from ranktrial.rankings import Pair
from ranktrial.report.schema import Report
from ranktrial.seeds import children, generator
from ranktrial.users import position_based, rank_decay

NAME = "demo"
HOST = "127.0.0.1"
VISITORS = 25  # whose clicks are sent together
CONNECTIONS = 4
PATIENCE = 120.0  # seconds that an answer may take
DIRECTLY = build_opener(ProxyHandler({}))  # whatever proxy the environment names
COMPILING = 900.0  # seconds that a start may take: half a minute the first time, on a machine that does nothing else


# --- the site -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SimulatedSite:
    """A search site: what two rankers return for each query, and visitors who click by the position-based model.

    Attributes:
        a: Ranker A's list of ids for each query.
        b: Ranker B's.
        zeta: Probability that a document is clicked once it is looked at.
        theta: Probability that each rank is looked at.
        delta: The true difference in clicks per impression.
    """

    a: list[list[str]]
    b: list[list[str]]
    zeta: dict[str, float]
    theta: FloatArray
    delta: float

    @classmethod
    def make(cls, *, queries: int = 100, k: int = 10, seed: int = 1) -> SimulatedSite:
        """A site whose rankers rank by relevance and noise, B with more of it."""
        data, noise, ties = children(seed, 3)
        dataset = yahoo_like(queries, seed=data)
        zeta = dataset.zeta()
        theta = rank_decay(k)
        random = generator(noise)
        scores = [zeta + random.normal(0, spread, len(zeta)) for spread in (0.1, 0.2)]
        pair = Pair.from_scores(scores[0], scores[1], dataset.offsets, k, seed=ties)
        a, b = ([[f"doc-{d}" for d in ranker[q]] for q in range(queries)] for ranker in (pair.a, pair.b))
        ids = {f"doc-{d}": float(chance) for d, chance in enumerate(zeta)}
        return cls(a, b, ids, theta, pair.delta(position_based(zeta, theta)))

    def clicks(self, ranking: list[str], random: np.random.Generator) -> list[str]:
        luck = random.random(len(self.theta))
        return [d for d, theta, chance in zip(ranking, self.theta, luck) if chance < theta * self.zeta[d]]


# --- the service and its visitors -------------------------------------------------------------------------------------------


@contextmanager
def service(store: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The service as a process of its own on a free port, ready for requests; it ends with the block."""
    with closing(socket.socket()) as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    log = store.with_suffix(".log")
    command = [sys.executable, "-c", "from ranktrial.cli import main; main()", "serve", str(store)]
    with log.open("wb") as text:
        process = subprocess.Popen([*command, "--host", HOST, "--port", str(port)], stdout=text, stderr=text)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else nothing would end the process
    try:
        with progress_bar("starting the service, which compiles the first time"):
            _wait_until_ready(process, port, log)
        yield process, port
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        signal.signal(signal.SIGTERM, before)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + COMPILING
    while time.monotonic() < end:
        if process.poll() is not None:
            raise OSError(f"the service did not start: {log.read_text(errors='replace').strip()[-500:]}")
        try:
            ask(port, "GET", "readyz")
            return
        except (OSError, HTTPException):
            time.sleep(0.2)
    raise OSError(f"the service was not ready after {COMPILING:g} s, see {log}")


def ask(port: int, method: str, path: str, body: object = None) -> Any:
    """The service's answer; anything but a success is an OSError."""
    content = None if body is None else json.dumps(body).encode()
    request = Request(f"{_address(port)}{path}", content, {"Content-Type": "application/json"}, method=method)
    try:
        with DIRECTLY.open(request, timeout=PATIENCE) as answer:
            return json.load(answer)
    except HTTPError as problem:
        detail = problem.read(500).decode(errors="replace")
        raise OSError(f"{method} {path} was answered {problem.code}: {detail}") from None


def visit(site: SimulatedSite, client: Client, visitors: range, seed: int) -> None:
    """Send visitors to the service: each searches once, looks and clicks."""
    for visitor in visitors:
        random = generator(np.random.SeedSequence([seed, visitor]))
        query = int(random.integers(len(site.a)))
        lists, unit = (site.a[query], site.b[query]), f"visitor-{visitor}"
        shown = client.rank(NAME, f"query {query}", *lists, unit=unit, size=len(site.theta))
        for document in site.clicks(shown.ranking, random):
            client.click(shown.id, document)
    if not client.flush(PATIENCE) or client.fallbacks or client.lost:
        raise OSError(f"the service did not answer: {client.waiting} clicks wait, {dict(client.fallbacks)}")


def run(site: SimulatedSite, port: int, impressions: int, seed: int, tell: Callable[[int, Any], None]) -> None:
    """Send all visitors, some at a time; ``tell`` gets the number so far and, now and then, the report."""
    blocks = [range(start, min(start + VISITORS, impressions)) for start in range(0, impressions, VISITORS)]
    looks = [impressions // 2**halves for halves in range(1, 5)]
    with ThreadPoolExecutor(CONNECTIONS) as pool, Client(_address(port), timeout=PATIENCE) as client:
        for block, _ in zip(blocks, pool.map(lambda block: visit(site, client, block, seed), blocks)):
            due = any(block.start < look <= block.stop < impressions for look in looks)
            tell(block.stop, ask(port, "GET", f"v1/trials/{NAME}/report") if due else None)


# --- the command ----------------------------------------------------------------------------------------------------------


@plain_errors()
def demo_command(
    impressions: Annotated[int, typer.Option(min=100, help="Simulated searches.")] = 6_000,
    seed: SeedOption = 1,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for store and report; a temporary one by default.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Leave the service and its page running until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a whole trial: the HTTP service, simulated visitors who search and click, the live page, the report.

    Ranker A is better than ranker B by an amount that is known exactly: see whether the trial finds it.
    """
    if refusal := extras.missing("serve", "ranktrial demo"):
        raise refusal
    place = Path(tempfile.mkdtemp(prefix="ranktrial-demo-")) if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    store, html = place / "demo.db", place / "report.html"
    if store.exists():
        raise ValueError(f"--out: {store} exists already, choose another folder")
    tell = (lambda _: None) if as_json else say
    site = SimulatedSite.make(seed=seed)
    with service(store) as (process, port):
        report = _trial(site, port, store, impressions, seed, tell)
        report.to_html(html)
        if as_json:
            print(json.dumps({**_result(site, report), "html": str(html), "address": _address(port)}, indent=2))
        tell(f"\n{_against_truth(site, report)}\nThe report: {html}")
        if keep:
            tell(f"The live page stays at {_address(port)} until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                process.wait()


def _trial(
    site: SimulatedSite, port: int, store: Path, impressions: int, seed: int, say: Callable[[str], None]
) -> Report:
    """Run the trial, from the first request to the report."""
    config = {"method": "LogOpt()", "k": len(site.theta), "seed": seed, "names": ["less noise", "more noise"]}
    ask(port, "PUT", f"v1/trials/{NAME}", config)
    say(f"{len(site.a)} queries, two rankers; in truth B - A is {-site.delta:+.4f} clicks per search.")
    say(f"Live page: {_address(port)}\n")
    told = ""

    def say_once(searches: int, verdict: str) -> None:
        """Reports may come after all visitors, while the first is compiled: then they all say the same."""
        nonlocal told
        text = f"after {searches:>7,} searches: {verdict}"
        if text != told:
            say(text)
        told = text

    with progress_bar(f"{impressions:,} visitors search and click") as progress:

        def tell(done: int, report: Any) -> None:
            progress(done, impressions)
            if report is not None:
                say_once(report["impressions"], report["verdict"])

        run(site, port, impressions, seed, tell)
    report = read_report(store, NAME)
    say_once(report.impressions, report.verdict)
    return report


def _address(port: int) -> str:
    return f"http://{HOST}:{port}/"


def _result(site: SimulatedSite, report: Report) -> dict[str, Any]:
    decision = report.decision.to_dict()
    return {
        "truth": -site.delta,
        "inside": -site.delta in report.interval,
        "verdict": report.verdict,
        "impressions": report.impressions,
        "clicks": report.clicks,
        **{name: decision[name] for name in ("winner", "difference", "interval")},
    }


def _against_truth(site: SimulatedSite, report: Report) -> str:
    better = "A" if site.delta > 0 else "B"
    where = "inside" if -site.delta in report.interval else "outside"
    told = f"{where} the interval {report.interval}" if np.isfinite(report.interval.low) else "there is no interval yet"
    return f"In truth B - A is {-site.delta:+.4f}, {better} is better: {told}."
