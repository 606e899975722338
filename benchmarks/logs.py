"""Time and memory of estimates from logs, in memory and in engines that add up where the log is.

python -m benchmarks logs                                       2 x 10^6 impressions, in memory and in DuckDB
python -m benchmarks.logs --connect postgresql://...            the same in PostgreSQL too (it makes two tables there)
python -m benchmarks.logs --rows 100000000 --engines duckdb --memory 1250MB --keep DIR

Every engine has a process of its own, which says how much memory it had at most. Times are from a log on disk to an estimate
with its interval, position bias given or fitted to the log: of the wall clock, and of processors, which tell more on a machine
that does other things. PostgreSQL's are those of this process and of the server's that works for it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ranktrial.analysis import estimate
from ranktrial.formats import LogFolder, SQLLog, estimate_sums, load_postgres, read_log
from ranktrial.formats.database import connect
from ranktrial.formats.layout import FORMAT, open_duckdb, quoted
from ranktrial.methods import LogOpt
from ranktrial.rankings import Pair
from ranktrial.users import rank_decay

ROWS, QUERIES, K, BLOCK = 2_000_000, 1_000, 10, 1_000_000
ENGINES = ("memory", "duckdb", "chdb")
THETA = rank_decay(K, 0.7)


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="ranktrial-bench-") as folder:
        return list(measured(Path(folder), ROWS, ("memory", "duckdb")))


def measured(
    folder: Path,
    rows: int,
    engines: Sequence[str],
    *,
    memory: str = "2GB",
    address: str | None = None,
    threads: int = 1,
) -> Iterator[dict[str, object]]:
    """Time and memory of each engine on one log of so many impressions, as they come."""
    place = LogFolder(folder / f"log-{rows}")
    if not place.exists:
        make_log(place, rows)
    for engine in engines:
        for theta in ("given", "fitted"):
            options = [engine, str(place.path), theta, memory, str(threads), address or ""]
            told = subprocess.run(
                [sys.executable, "-m", "benchmarks.logs", "--one", *options], check=True, capture_output=True
            )
            yield {"engine": engine, "theta": theta, "impressions": rows, **json.loads(told.stdout.splitlines()[-1])}


def make_log(place: LogFolder, rows: int, *, seed: int = 1) -> None:
    """A trial's log as ``ranktrial export`` writes it: ``LogOpt`` on 1,000 queries of 20 documents, 10^6 rows a file."""
    rng = np.random.default_rng(seed)
    zeta = rng.choice([0.05, 0.2, 0.6], (QUERIES, 20), p=[0.6, 0.3, 0.1])
    lists = [[np.argsort(-(z + rng.normal(0, noise, 20))).tolist() for z in zeta] for noise in (0.2, 0.4)]
    names = [[[f"d{q}-{d}" for d in ranked] for q, ranked in enumerate(some)] for some in lists]
    pair = Pair.from_lists(names[0], names[1], K).knowing(theta=THETA)
    mixture = LogOpt(holdback=0.5).policy(pair)
    relevance = np.array([zeta[int(name[1:].split("-")[0]), int(name.split("-")[1])] for name in pair.ids])
    place.path.mkdir(parents=True)
    db = open_duckdb()
    db.execute("SET preserve_insertion_order = false")
    _write_designs(db, place, pair, mixture)
    shown = [[pair.ids[d] for d in ranking] for ranking in mixture.rankings.tolist()]
    db.register(
        "texts", {"display": np.arange(len(shown)), "told": np.array([json.dumps(ids) for ids in shown], object)}
    )
    db.execute("CREATE TABLE displays AS SELECT display, CAST(CAST(told AS JSON) AS VARCHAR[]) AS shown FROM texts")
    chance = THETA * relevance[mixture.rankings]
    ends = mixture.weights.copy()
    for q in range(QUERIES):
        some = slice(mixture.offsets[q], mixture.offsets[q + 1])
        ends[some] = q + np.cumsum(ends[some]) / ends[some].sum()
    last = mixture.offsets[1:]
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        query = rng.integers(QUERIES, size=size)
        display = np.minimum(np.searchsorted(ends, query + rng.random(size), side="right"), last[query] - 1)
        clicks = rng.random((size, K)) < chance[display]
        from_end = last[query] - display
        columns = {
            "n": np.arange(start, start + size),
            "unit": rng.integers(-(2**63), 2**63 - 1, size=size),
            "query": query,
            "display": display,
            "place": display - mixture.offsets[query],
            "arm": np.where(from_end > 2, 0, from_end),
            **{f"c{r}": clicks[:, r].astype(np.int32) for r in range(K)},
        }
        db.register("block", columns)
        day = place.path / "impressions" / f"day=2026-01-{1 + start * 28 // rows:02}"
        day.mkdir(parents=True, exist_ok=True)
        hits = ", ".join(f"c{r}" for r in range(K))
        db.execute(
            "COPY (SELECT 1 AS version, 1767225600000000 + n * 24192 AS time, printf('%020d', n) AS impression, unit, "
            "'q' || query AS query, 'design ' || query AS design, CAST(place AS INTEGER) AS place, "
            "CASE arm WHEN 2 THEN 'a' WHEN 1 THEN 'b' END AS arm, shown, "
            f"[{hits}] AS clicked, CAST(NULL AS VARCHAR) AS segment, CAST(NULL AS VARCHAR) AS covariates "
            "FROM block JOIN displays USING (display)) "
            f"TO {quoted(day / f'{start:012}.parquet')} (FORMAT parquet, COMPRESSION zstd)"
        )
        db.unregister("block")
    (place.path / "log.json").write_text(
        json.dumps({"format": FORMAT, "runs": 1, "versions": {"1": {"k": K, "method": "LogOpt()"}}})
    )


def _write_designs(db: duckdb.DuckDBPyConnection, place: LogFolder, pair: Pair, mixture: Any) -> None:
    rows = []
    for q in range(pair.n_queries):
        first, end = int(pair.offsets[q]), int(pair.offsets[q + 1])
        some = slice(mixture.offsets[q], mixture.offsets[q + 1])
        tops = [[pair.ids[d] for d in table[q].tolist()] for table in (pair.top_a, pair.top_b)]
        documents = list(pair.ids[first:end])
        ranks = [[top.index(d) + 1 if d in top else 0 for d in documents] for top in tops]
        rankings = (mixture.rankings[some] - first + 1).ravel().tolist()
        rows.append([f"design {q}", f"q{q}", *tops, documents, *ranks, rankings, mixture.weights[some].tolist()])
    names = ("design", "query", "a", "b", "documents", "rank_a", "rank_b", "rankings", "probabilities")
    kinds = ("VARCHAR",) * 2 + ("VARCHAR[]",) * 3 + ("INTEGER[]",) * 3 + ("DOUBLE[]",)
    columns = {
        name: np.array([value if isinstance(value, str) else json.dumps(value) for value in column], object)
        for name, column in zip(names, zip(*rows))
    }
    db.register("given", columns)
    told = ", ".join(
        f"{name}" if kind == "VARCHAR" else f"CAST(CAST({name} AS JSON) AS {kind}) AS {name}"
        for name, kind in zip(names, kinds)
    )
    (place.path / "designs").mkdir()
    target = quoted(place.path / "designs" / "all.parquet")
    db.execute(f"COPY (SELECT 1 AS version, {told}, true AS plain FROM given) TO {target} (FORMAT parquet)")
    db.unregister("given")


def one(engine: str, path: str, theta: str, memory: str, threads: str, address: str) -> dict[str, object]:
    """Seconds and megabytes of one engine, in this process."""
    place, known = LogFolder(path), THETA if theta == "given" else None
    before, server = _peak(), None
    if engine == "memory":
        start, spent = time.perf_counter(), time.process_time()
        log = read_log(place.path)
        found: Any = estimate(log, theta="estimated" if known is None else known, estimator="constant")
    else:
        there = _open(engine, place, memory, threads, address)
        if engine == "postgres":
            server = there.connection.info.backend_pid
        start, spent = time.perf_counter(), time.process_time() + _spent(server)
        found = estimate_sums(there, theta=known)
    told: dict[str, object] = {
        "seconds": round(time.perf_counter() - start, 1),
        "of processors": round(time.process_time() + _spent(server) - spent, 1),
        "MB at most": round(_peak()) + (round(_peak(server)) if server else 0),
        "MB of imports": round(before),
    }
    low, high = found.confidence_interval()
    answers = {"delta": found.delta, "low": low, "high": high, f"theta {K}": found.theta[-1]}
    return told | {name: round(float(value), 12) for name, value in answers.items()}


def _spent(process: int | None) -> float:
    """Seconds of processors that another process has used."""
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak(process: int | str = "self") -> float:
    """The most memory that a process has had, in 10^6 bytes. (What ``getrusage`` says is inherited from the parent.)"""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def _open(engine: str, place: LogFolder, memory: str, threads: str, address: str) -> SQLLog:
    if engine == "duckdb":
        connection = open_duckdb()
        connection.execute(f"SET memory_limit = {quoted(memory)}; SET temp_directory = {quoted(place.path / 'spill')}")
        connection.execute(f"SET threads = {int(threads)}; SET preserve_insertion_order = false")
        return SQLLog(connection, place.scan("impressions"), place.scan("designs"))
    if engine == "chdb":
        tables = [f"file('{place.files(table)}', Parquet)" for table in ("impressions", "designs")]
        return SQLLog(connect("chdb://"), *tables)
    connection = connect(address)
    if not connection.execute("SELECT to_regclass('impressions')").fetchone()[0]:
        load_postgres(connection, place)  # not part of what is timed
    connection.execute(f"SET max_parallel_workers_per_gather = {int(threads) - 1}")
    return SQLLog(connection)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logs")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--memory", default="1250MB", help="DuckDB's own limit")
    parser.add_argument("--threads", type=int, default=1, help="of DuckDB and of PostgreSQL")
    parser.add_argument("--connect", help="PostgreSQL to load the log into, and to measure")
    parser.add_argument("--keep", type=Path, help="folder for the log, kept and used again")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    engines = [*filter(None, options.engines.split(",")), *(["postgres"] if options.connect else [])]
    with tempfile.TemporaryDirectory(prefix="ranktrial-bench-") as folder:
        place = options.keep or Path(folder)
        start = time.perf_counter()
        place.mkdir(parents=True, exist_ok=True)
        for row in measured(
            place, options.rows, engines, memory=options.memory, address=options.connect, threads=options.threads
        ):
            print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        size = sum(file.stat().st_size for file in (place / f"log-{options.rows}").rglob("*.parquet")) / 1e6
        print(f"{size:,.0f} MB of Parquet; {time.perf_counter() - start:,.0f} s in all, on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
