"""Start an example with everything it needs: the service, a trial in it, and the page or the stream.

    python examples/run.py python      a search page in Python; clicks go through its server
    python examples/run.py node        a search page in Node; the browser sends clicks itself
    python examples/run.py ubi         a stream of UBI events from simulated visitors, then the report

The trial is kept in shop.db (``--store``). Ctrl-C ends all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from shop import PAGE, TRIAL

HERE = Path(__file__).parent
RANKTRIAL = [sys.executable, "-c", "from ranktrial.cli import main; main()"]  # whatever the PATH is


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that ends when this does."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def service(store: str, port: int, origins: Sequence[str]) -> Iterator[str]:
    """The service on a store, with a trial in it; its address."""
    print("starting the service; the very first time it compiles for half a minute", file=sys.stderr)
    allowed = [part for origin in origins for part in ("--origin", origin)]
    with running([*RANKTRIAL, "serve", store, "--port", str(port), *allowed], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if '"listening"' in line:
                break
            print(line, end="", file=sys.stderr)
        else:
            raise SystemExit("the service did not start")
        threading.Thread(target=sys.stderr.writelines, args=(process.stderr,), daemon=True).start()  # what else it says
        url = f"http://127.0.0.1:{json.loads(line)['port']}"
        config = json.dumps({"method": "LogOpt()", "k": PAGE, "metrics": ["Carts()"]}).encode()
        made = Request(f"{url}/v1/trials/{TRIAL}", config, {"Content-Type": "application/json"}, method="PUT")
        urlopen(made, timeout=60).close()  # the same configuration again changes nothing
        yield url


def page(command: Sequence[str], url: str, port: int) -> None:
    """Run a search page until it is ended."""
    with running(command, env={**os.environ, "RANKTRIAL_URL": url, "PORT": str(port)}) as process:
        print(f"search on http://127.0.0.1:{port}/ and watch {url}/", flush=True)
        raise SystemExit(process.wait())


def stream(url: str, searches: int) -> None:
    """Visitors' events through a pipe to the service, and what the trial says."""
    environment = {**os.environ, "RANKTRIAL_URL": url}
    visitors = [sys.executable, str(HERE / "ubi_visitors.py"), "--searches", str(searches)]
    with running(visitors, stdout=subprocess.PIPE, env=environment) as source:
        subprocess.run([sys.executable, str(HERE / "ubi_forward.py")], stdin=source.stdout, env=environment, check=True)
    with urlopen(f"{url}/v1/trials/{TRIAL}/report", timeout=60) as answer:
        report = json.load(answer)
    print(f"{report['impressions']} impressions, {report['clicks']} clicks. {report['verdict']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("example", choices=("python", "node", "ubi"))
    parser.add_argument("--store", default="shop.db", help="where the trial is kept")
    parser.add_argument("--service-port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--port", type=int, default=8080, help="of the search page; 0 takes a free one")
    parser.add_argument("--searches", type=int, default=300, help="of the stream")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # as Ctrl-C: what was started is ended too
    port = options.port or free_port()
    pages = {
        "python": [sys.executable, "-m", "uvicorn", "--app-dir", str(HERE), "search_page:app", "--port", str(port)],
        "node": [shutil.which("node") or "node", str(HERE / "search_page.mjs")],
    }
    with contextlib.suppress(KeyboardInterrupt):
        origins = [f"http://{host}:{port}" for host in ("127.0.0.1", "localhost")]
        with service(options.store, options.service_port, origins) as url:
            if options.example == "ubi":
                stream(url, options.searches)
            else:
                page(pages[options.example], url, port)


if __name__ == "__main__":
    main()
