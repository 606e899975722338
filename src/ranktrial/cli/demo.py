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
from urllib.request import ProxyHandler, build_opener

import numpy as np
import typer

from ranktrial import extras
from ranktrial.arrays import FloatArray
from ranktrial.cli.console import progress_bar, say
from ranktrial.cli.options import JsonOption, SeedOption
from ranktrial.cli.report import read_report
from ranktrial.client import Client
from ranktrial.paper.data import yahoo_like
from ranktrial.rankings import Pair
from ranktrial.report.schema import Report
from ranktrial.seeds import children, generator
from ranktrial.trial import Trial
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
def service(store: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The service as a process of its own on a free port, ready for requests at the address given; it ends with the block."""
    with closing(socket.socket()) as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    log, address = store.with_suffix(".log"), f"http://{HOST}:{port}/"
    command = [sys.executable, "-c", "from ranktrial.cli import main; main()", "serve", str(store)]
    with log.open("wb") as text:
        process = subprocess.Popen([*command, "--host", HOST, "--port", str(port)], stdout=text, stderr=text)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else nothing would end the process
    try:
        with progress_bar("starting the service, which compiles the first time"):
            _wait_until_ready(process, address, log)
        yield process, address
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        signal.signal(signal.SIGTERM, before)


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end = time.monotonic() + COMPILING
    while time.monotonic() < end:
        if process.poll() is not None:
            raise OSError(f"the service did not start: {log.read_text(errors='replace').strip()[-500:]}")
        with suppress(OSError, HTTPException), DIRECTLY.open(f"{address}readyz", timeout=PATIENCE):
            return
        time.sleep(0.2)
    raise OSError(f"the service was not ready after {COMPILING:g} s, see {log}")


def visit(site: SimulatedSite, client: Client, visitors: range, seed: int) -> int:
    """Send visitors to the service, each of whom searches once, looks and clicks; the number of the last, from 1."""
    for visitor in visitors:
        random = generator(np.random.SeedSequence([seed, visitor]))
        query = int(random.integers(len(site.a)))
        lists, unit = (site.a[query], site.b[query]), f"visitor-{visitor}"
        shown = client.rank(NAME, f"query {query}", *lists, unit=unit, size=len(site.theta))
        for document in site.clicks(shown.ranking, random):
            client.click(shown.id, document)
    if not client.flush(PATIENCE) or client.fallbacks or client.lost:
        raise OSError(f"the service did not answer: {client.waiting} clicks wait, {dict(client.fallbacks)}")
    return visitors.stop


# --- the command ----------------------------------------------------------------------------------------------------------


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
    options: dict[str, Any] = {
        "method": "LogOpt()",
        "k": len(site.theta),
        "seed": seed,
        "names": ("less noise", "more noise"),
    }
    Trial.create(store, NAME, background=False, compile=False, **options).close()
    with service(store) as (process, address):
        tell(f"{len(site.a)} queries, two rankers; in truth B - A is {-site.delta:+.4f} clicks per search.")
        tell(f"Live page: {address}\n")
        report = _visited(site, address, store, impressions, seed, tell)
        report.to_html(html)
        if as_json:
            print(json.dumps({**_result(site, report), "html": str(html), "address": address}, indent=2))
        better, inside = "A" if site.delta > 0 else "B", -site.delta in report.interval
        where = f"{'inside' if inside else 'outside'} the interval {report.interval}"
        told = where if np.isfinite(report.interval.low) else "there is no interval yet"
        tell(f"\nIn truth B - A is {-site.delta:+.4f}, {better} is better: {told}.\nThe report: {html}")
        if keep:
            tell(f"The live page stays at {address} until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                process.wait()


def _visited(
    site: SimulatedSite, address: str, store: Path, impressions: int, seed: int, tell: Callable[[str], None]
) -> Report:
    """Send all visitors, some at a time, and tell the verdict now and then; the report at the end."""
    blocks = [range(start, min(start + VISITORS, impressions)) for start in range(0, impressions, VISITORS)]
    looks, told = [impressions // 2**halves for halves in (4, 3, 2, 1)], ""

    def look() -> Report:
        """Visitors go on while the first report is compiled: those that come next all say the same, and it is said once."""
        nonlocal told
        report = read_report(store, NAME)
        text = f"after {report.impressions:>7,} searches: {report.verdict}"
        if text != told:
            tell(text)
        told = text
        return report

    with (
        progress_bar(f"{impressions:,} visitors search and click") as progress,
        ThreadPoolExecutor(CONNECTIONS) as pool,
        Client(address, timeout=PATIENCE) as client,
    ):
        for done in pool.map(lambda block: visit(site, client, block, seed), blocks):
            progress(done, impressions)
            if looks and looks[0] <= done < impressions:
                look()
                looks = [one for one in looks if one > done]
    return look()


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
