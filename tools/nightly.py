"""The nightly run: kills with other faults mixed in, generated requests and a soak; writes one page of figures.

python tools/nightly.py                                             an hour and a half, docs/research/nightly.md
python tools/nightly.py --kills 20 --requests 1000 --soak 60 --page /tmp/nightly.md    a minute or two

Half of the kills are of instances on one SQLite file, on a small disk of its own, the others of instances on one PostgreSQL.
In every fourth kill something else is wrong as well: the disk is full, another process holds the lock, an instance is frozen
(SIGSTOP), the database restarts. Everything runs on this machine, and is asked at 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import platform
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import instances as fleet
from instances import A, B, Event, Instances, Outcome
from live_server import command
from postgres_server import Server
from ranktrial.store.postgres.connection import Address, Connection

ROOT = Path(__file__).parents[1]
Fault = Callable[[float], contextlib.AbstractContextManager[None]]  # lasts for so many seconds
DISK = 512  # MB of the disk that is filled
FAULT_EVERY = 4  # kills
WITHIN = 3.0  # seconds that a fault lasts, at most
MOST_UNANSWERED, FEW = (
    1e-3,
    "(below 0.1 %)",
)  # of acknowledged searches: counted, though A's list was shown when a process died
REPORT_EVERY = 2.0  # seconds, as the page asks
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1_000, help="of instances, half of them on each store")
    parser.add_argument("--requests", type=int, default=100_000, help="generated ones")
    parser.add_argument("--soak", type=float, default=3_600, help="seconds of load")
    parser.add_argument("--pause", type=float, default=0.5, help="mean seconds between two kills")
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--visitors", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "research" / "nightly.md")
    parser.add_argument("--sqlite-in", type=Path, help=argparse.SUPPRESS)  # the part on a disk of its own
    options = parser.parse_args()
    if options.sqlite_in is not None:
        print(json.dumps(vars(on_sqlite(options, options.sqlite_in, fill=True))))
        return
    begun, rows = time.time(), list[tuple[str, str]]()
    rows += told("SQLite, one file", sqlite_on_a_small_disk(options))
    rows += told("PostgreSQL", on_postgres(options))
    rows += generated(options)
    rows += soaked(options)
    options.page.write_text(page(options, rows, time.time() - begun, by_hand(options.page)))
    print(options.page.read_text())
    if bad := broken(rows):
        raise SystemExit(f"not as it must be: {bad}")


def broken(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Rows that are not as their names say: (0), or (below 0.1 %) of so many."""
    found = []
    for name, value in rows:
        if name.endswith(" (0)") and value != "0":
            found.append((name, value))
        if name.endswith(f" {FEW}"):
            some, every = (int(number.replace(",", "")) for number in value.split(" of "))
            if some > MOST_UNANSWERED * every:
                found.append((name, value))
    return found


# --- kills ------------------------------------------------------------------------------------------------------------------


def events(
    options: argparse.Namespace, faults: dict[str, Callable[[float], contextlib.AbstractContextManager[None]]]
) -> list[Event]:
    """Half of the kills; in every fourth another fault as well, one after the other."""
    chance, kinds, found = random.Random(options.seed), itertools.cycle([*faults, "frozen"]), list[Event]()
    for number in range(options.kills // 2):
        which = chance.randrange(options.instances)
        if number % FAULT_EVERY:
            found.append(lambda alive, which=which: alive.kill(which))  # type: ignore[misc]
            continue
        kind, seconds = next(kinds), chance.uniform(0.1, WITHIN)
        if kind == "frozen":
            other = (which + 1) % options.instances
            found.append(partial(frozen_and_killed, which=which, other=other, seconds=seconds))
        else:
            found.append(partial(killed_while, which=which, fault=faults[kind], seconds=seconds))
    return found


def killed_while(alive: Instances, which: int, fault: Fault, seconds: float) -> None:
    """Kill an instance in the middle of a fault, and start another after it."""
    with fault(seconds):
        time.sleep(seconds / 2)
        alive.end(which)
        time.sleep(seconds / 2)
    alive.renew(which)


def frozen_and_killed(alive: Instances, which: int, other: int, seconds: float) -> None:
    """Freeze an instance, kill another, and let the first go on as if nothing had happened."""
    alive.freeze(other)
    time.sleep(seconds)
    alive.kill(which)
    alive.freeze(other, thaw=True)


def sqlite_on_a_small_disk(options: argparse.Namespace) -> Outcome:
    """The part on SQLite, where the system lets us mount a disk that can be filled; else without that fault."""
    with tempfile.TemporaryDirectory() as folder:
        alone = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--mount", "sh", "-c"]
        mount = f"mount -t tmpfs -o size={DISK}m none {folder}"
        if shutil.which("unshare") is None or subprocess.run([*alone, mount], capture_output=True).returncode:
            return on_sqlite(options, Path(folder), fill=False)
        again = [sys.executable, __file__, "--sqlite-in", folder]
        for name in ("kills", "pause", "instances", "visitors", "seed"):
            again += [f"--{name}", str(getattr(options, name))]
        done = subprocess.run(
            [*alone, f'{mount} && exec "$@"', "sh", *again], stdout=subprocess.PIPE, text=True, check=True
        )
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def on_sqlite(options: argparse.Namespace, folder: Path, *, fill: bool) -> Outcome:
    store = folder / "t.db"

    @contextlib.contextmanager
    def locked(seconds: float) -> Iterator[None]:
        with contextlib.closing(sqlite3.connect(store, isolation_level=None, timeout=60)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    @contextlib.contextmanager
    def full(seconds: float) -> Iterator[None]:
        ballast = folder / "ballast"
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1_000_000))
                file.flush()
        try:
            yield
        finally:
            ballast.unlink()

    faults = {"lock": locked, **({"disk": full} if fill else {})}
    return _kills(options, str(store), folder, faults)


def on_postgres(options: argparse.Namespace) -> Outcome:
    server = Server(durable=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            url = server.url(folder)

            @contextlib.contextmanager
            def locked(seconds: float) -> Iterator[None]:
                with contextlib.closing(Connection.to(Address.read(url))) as other:
                    other.execute("LOCK TABLE impression_keys IN ACCESS EXCLUSIVE MODE")
                    yield
                    other.rollback()

            modes = itertools.cycle(["fast", "immediate"])

            @contextlib.contextmanager
            def restarted(seconds: float) -> Iterator[None]:
                server.stop(next(modes))
                yield
                server.start()

            return _kills(options, url, Path(folder), {"lock": locked, "restart": restarted})
    finally:
        server.remove()


def _kills(options: argparse.Namespace, url: str, folder: Path, faults: dict[str, Any]) -> Outcome:
    todo = events(options, faults)
    people = fleet.under_load(
        url, todo, instances=options.instances, visitors=options.visitors, pause=options.pause,
        chance=random.Random(options.seed),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as aside:
        return fleet.compare(url, Path(aside), people, len(todo), len(todo) // FAULT_EVERY)


def told(where: str, done: Outcome) -> list[tuple[str, str]]:
    """Figures of the kills on one store."""
    return [
        (f"{where}: instances killed, under load", f"{done.kills:,}"),
        (f"{where}: of these with another fault", f"{-(-done.kills // FAULT_EVERY):,}"),
        (f"{where}: acknowledged impressions, clicks", f"{done.impressions:,}, {done.clicks:,}"),
        (f"{where}: requests sent again", f"{done.sent_again:,}"),
        (f"{where}: A's list shown because of a fault", f"{done.fallbacks:,}"),
        (f"{where}: acknowledged and lost (0)", f"{done.lost}"),
        (f"{where}: counted twice (0)", f"{done.twice}"),
        (f"{where}: counted though A's list was shown {FEW}", f"{done.unexpected} of {done.impressions:,}"),
        (f"{where}: report differs from that of the same rows in another order (0)", f"{int(not done.same_report)}"),
        (f"{where}: longest answer of rank", f"{max(done.answers):.1f} s"),
    ]


# --- generated requests -----------------------------------------------------------------------------------------------------


class Generator:
    """Requests that a program could send by mistake, or somebody on purpose; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.ids = ["", "AAAA", "x" * 40]

    def request(self) -> tuple[str, str, bytes, dict[str, str]]:
        """Method, target, body and headers."""
        chance = self._chance
        path = chance.choice(
            ["/v1/trials/t/rank"] * 4 + ["/v1/events"] * 4
            + ["/v1/trials", "/v1/trials/t", "/v1/trials/t/exclude", "/v1/trials/t/include", "/v1/trials/t/report.csv"]
            + ["/v1/beacon", "/", "/readyz", "/openapi.json", "/page/app.js", "/nothing"]
        )  # fmt: skip
        if chance.random() < 0.1:
            odd = ["%0A", "%00", "/", "//", "/..", "%2F", "?x=1", "%C2%85", "%F0%9F%91%9F", "x" * 2000, ";", "%"]
            path += chance.choice(odd)
        usual = "POST" if re.search("rank|events|beacon|clude", path) else "GET"
        method = usual if chance.random() < 0.85 else chance.choice(METHODS)
        body = self._body(path)
        kinds = ["application/json"] * 8 + [
            "text/plain",
            "application/x-www-form-urlencoded",
            "",
            "application/ld+json",
        ]
        headers = {"content-type": chance.choice(kinds), "host": "127.0.0.1"}
        if chance.random() < 0.1:
            headers["origin"] = chance.choice(["https://evil.example", "null", "http://127.0.0.1"])
        if chance.random() < 0.05:
            headers["authorization"] = chance.choice(["Bearer x", "Basic eDp5", "Bearer rt_00000000_" + "0" * 64])
        return method, path, body, headers

    def _body(self, path: str) -> bytes:
        chance = self._chance
        kind = chance.random()
        if kind < 0.1:
            return chance.randbytes(chance.randrange(300))
        if kind < 0.15:
            return b"[" * chance.randrange(3000)
        value: Any = {"query": "q", "a": A, "b": B, "unit": f"u{chance.randrange(1000)}"}
        if "rank" not in path:
            value = [
                {"id": chance.choice(self.ids), "document": chance.choice([*A, *B, "x"])}
                for _ in range(chance.randrange(5))
            ]
            if chance.random() < 0.3:
                value = {"unit": f"u{chance.randrange(9)}", "reason": "why"}
        raw = json.dumps(self._bent(value)).encode()
        return raw[: chance.randrange(len(raw) + 1)] if chance.random() < 0.1 else raw

    def _bent(self, value: Any) -> Any:
        """The value with some of its parts replaced by what nobody expects."""
        chance = self._chance
        if chance.random() < 0.05:
            return chance.choice([None, True, -1, 10**30, 1e308, "", "x" * 2000, [], {}, "\ud800", "\0", [[[]]], 0.5])
        if isinstance(value, dict):
            return {chance.choice([name, name, name, name, name[::-1]]): self._bent(one) for name, one in value.items()}
        return [self._bent(one) for one in value] if isinstance(value, list) else value


def generated(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Answers of one service to generated requests, one after the other."""
    make, statuses, longest = Generator(options.seed), Counter[int](), 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        command(f"{folder}/t.db", "--beacon-rate", "1000000") as (process, address),
    ):
        silence(process)
        port = int(address.rpartition(":")[2])
        _ask(port, "PUT", "/v1/trials/t", b'{"k": 3}', {"content-type": "application/json"})
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(options.requests):
            method, target, body, headers = make.request()
            begun = time.perf_counter()
            try:
                connection.request(method, target, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()  # it was told to, or refuses what is no HTTP
                statuses[0] += 1
                continue
            statuses[answer.status] += 1
            longest = max(longest, time.perf_counter() - begun)
            if target == "/v1/trials/t/rank" and answer.status == 200 and len(make.ids) < 1000:
                make.ids.append(json.loads(content)["id"])
        connection.close()
    faults = sum(count for status, count in statuses.items() if status >= 500)
    ends = ", ".join(f"{count:,} x {status or 'closed'}" for status, count in sorted(statuses.items()))
    return [
        ("generated requests", f"{options.requests:,}"),
        ("generated requests: answers", ends),
        ("generated requests: 5xx (0)", f"{faults}"),
        ("generated requests: longest answer", f"{1e3 * longest:.0f} ms"),
    ]


def _ask(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {content[:300]!r}")
        return content
    finally:
        connection.close()


def silence(process: subprocess.Popen[str]) -> None:
    """Read what a service logs, so that it never waits for us."""
    assert process.stderr is not None
    threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()


# --- soak -------------------------------------------------------------------------------------------------------------------


def soaked(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Load for so many seconds, with the page open: pauses, and memory at the beginning and at the end."""
    taken: list[float] = []
    stop, statuses, failed = threading.Event(), Counter[int](), list[BaseException]()
    with tempfile.TemporaryDirectory() as folder, command(f"{folder}/t.db") as (process, address):
        silence(process)
        port = int(address.rpartition(":")[2])
        _ask(port, "PUT", "/v1/trials/t", b'{"k": 3}', {"content-type": "application/json"})

        def visit(number: int) -> None:
            chance, connection = random.Random(number), http.client.HTTPConnection("127.0.0.1", port, timeout=120)

            def post(path: str, body: Any) -> Any:
                begun = time.perf_counter()
                connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
                taken.append(time.perf_counter() - begun)
                statuses[answer.status] += 1
                return json.loads(content) if answer.status == 200 else None

            try:
                for visit in itertools.count():
                    if stop.is_set():
                        return
                    query = f"query {chance.randrange(500)}"
                    shown = post("/v1/trials/t/rank", {"query": query, "a": A, "b": B, "unit": f"{number} {visit}"})
                    if shown is not None and chance.random() < 0.3:
                        post("/v1/events", [{"id": shown["id"], "document": chance.choice(shown["ranking"][:3])}])
                    time.sleep(0.02)
            except BaseException as problem:
                failed.append(problem)

        threads = [threading.Thread(target=visit, args=(number,)) for number in range(options.visitors)]
        for thread in threads:
            thread.start()
        until, reports, memory = time.monotonic() + options.soak, 0, list[tuple[float, float]]()
        try:
            while time.monotonic() < until and not failed:
                _ask(port, "GET", "/v1/trials/t/report", b"", {})
                reports += 1
                memory.append(memory_of(process.pid))
                time.sleep(REPORT_EVERY)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    if failed:
        raise failed[0]
    taken.sort()
    settled = memory[min(len(memory) - 1, max(len(memory) // 20, 3))]
    return [
        ("soak", f"{options.soak / 60:.0f} min"),
        ("soak: requests, reports", f"{len(taken):,}, {reports:,}"),
        ("soak: 5xx (0)", f"{sum(count for status, count in statuses.items() if status >= 500)}"),
        ("soak: answers, median, 99th percentile, longest pause",
         ", ".join(f"{1e3 * taken[int(share * (len(taken) - 1))]:.1f} ms" for share in (0.5, 0.99, 1.0))),
        ("soak: memory of the service, after a twentieth and at the end", f"{settled[0]:.0f} MB, {memory[-1][0]:.0f} MB"),
        ("soak: memory of its reports, after a twentieth and at the end", f"{settled[1]:.0f} MB, {memory[-1][1]:.0f} MB"),
    ]  # fmt: skip


def memory_of(pid: int) -> tuple[float, float]:
    """Memory without mapped files of a process, and of all that it has started, in MB."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = [child for thread in threads for child in thread.read_text().split()]
    return _memory(pid), sum(_memory(int(child)) for child in children)


def _memory(pid: int) -> float:
    with contextlib.suppress(OSError):
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


# --- the page ---------------------------------------------------------------------------------------------------------------


def by_hand(file: Path) -> str:
    """Text that somebody has written on the page: from its first heading below the figures on."""
    if not file.exists():
        return ""
    _, heading, rest = file.read_text().partition("\n## ")
    return heading + rest


def page(options: argparse.Namespace, rows: list[tuple[str, str]], seconds: float, remarks: str = "") -> str:
    """The figures as a page of the documents, with what was written on it by hand."""
    asked = f"--kills {options.kills} --requests {options.requests} --soak {options.soak:g}"
    head = [
        "# Nightly run",
        "",
        f"`python tools/nightly.py {asked}` (`make nightly`), {time.strftime('%Y-%m-%d', time.gmtime())}, Python "
        f"{platform.python_version()}, {os.cpu_count()} processors, {seconds / 60:.0f} minutes. What has (0) behind it "
        f"must be 0, what has {FEW} behind it below that share.",
        "",
        "Instances are killed (SIGKILL) under load. With every fourth kill something else is wrong as well, in turn, for up "
        "to three seconds: another process holds the store's lock; the disk is full (SQLite); the database restarts "
        "(PostgreSQL); an instance is frozen (SIGSTOP) and goes on afterwards.",
        "",
        "Requests that are answered with 429 or 503 while instances are killed, the disk is full or the database is away "
        "are sent again, as clients do; any other 5xx ends the run.",
        "",
        "| | |",
        "|---|---|",
    ]
    return "\n".join([*head, *(f"| {name} | {value} |" for name, value in rows)]) + "\n" + remarks


if __name__ == "__main__":
    main()
