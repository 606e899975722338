"""The commands of the live service: serve, and the keys it asks for."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from ranktrial import extras
from ranktrial.cli.console import Commands, err, say, tell
from ranktrial.cli.options import STORE, JsonOption, QueryUnitsOption, StoreArgument
from ranktrial.report.making import QUERY_UNITS
from ranktrial.service.api_keys import SCOPES, KeyFile, Keys, keys_of
from ranktrial.store import name_of, open_store, when_available
from ranktrial.store.base import StoreUnavailable
from ranktrial.trial.webhooks import Webhook

T = TypeVar("T")
SECONDS_A_DAY = 86_400.0
SILENCE = 30.0  # seconds that a connection may take to send the headers of a request
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

KeyArgument = Annotated[str, typer.Argument(help="Id of the key, from `keys list`.")]
KeysOption = Annotated[
    Path | None,
    typer.Option("--keys", help="File of API keys. Default: STORE.keys, if it exists; in PostgreSQL, the store."),
]

keys_app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Manage the API keys of the service.",
)


def serve_command(
    store: Annotated[str, typer.Argument(help=f"The store of the trials, {STORE}; made if it does not exist.")],
    host: Annotated[
        str, typer.Option(help="Address to listen at. Others than the loopback need API keys.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one and logs it.")
    ] = 8000,
    keys: KeysOption = None,
    click_action: Annotated[
        list[str] | None, typer.Option(help="action_name of UBI events that are clicks; may be repeated.")
    ] = None,
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--origin", help="Site whose pages may send clicks to /v1/beacon, as https://shop.example; may be repeated."
        ),
    ] = None,
    beacon_actions: Annotated[
        list[str] | None,
        typer.Option(
            "--beacon-action", help="Action, as cart, that these pages may send besides clicks; may be repeated."
        ),
    ] = None,
    proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy", help="Address or network of a trusted proxy, whose X-Forwarded-For is used; may be repeated."
        ),
    ] = None,
    beacon_rate: Annotated[
        float, typer.Option(min=0.1, max=1e6, help="Requests a second that one address may send to /v1/beacon.")
    ] = 20.0,
    webhook: Annotated[
        list[str] | None,
        typer.Option(
            envvar="RANKTRIAL_WEBHOOK",
            help="Address that gets messages about the trials, as https://chat.example/hook; may be repeated.",
            show_envvar=True,
        ),
    ] = None,
    webhook_secret: Annotated[
        Path | None,
        typer.Option(
            help="File of the secret that messages are signed with. Default: what RANKTRIAL_WEBHOOK_SECRET says."
        ),
    ] = None,
    log_requests: Annotated[bool, typer.Option(help="Log every request, not only faults.")] = False,
    query_units: QueryUnitsOption = QUERY_UNITS,
    drain: Annotated[int, typer.Option(min=0, help="Seconds that open requests get when the service ends.")] = 10,
) -> None:
    """Serve the trials of a store over HTTP, with a live page at /.

    Logs are lines on standard error, text on a terminal and JSON elsewhere. Ends cleanly on SIGTERM or Ctrl-C: accepted
    events are written first.
    """
    if refusal := extras.missing("serve", "ranktrial serve"):
        raise refusal
    from ranktrial.metrics import checked_action
    from ranktrial.service.client_address import checked_networks
    from ranktrial.service.middleware.cors import checked_origin

    known = when_started(store, lambda: find_keys(store, keys))
    check_host(host, known, store)
    for origin in origins or ():
        checked_origin(origin)
    for action in beacon_actions or ():
        checked_action(action)
    checked_networks(proxies or ())
    hooks = read_webhooks(webhook or (), webhook_secret)
    when_started(store, lambda: open_store(store).close())  # made if it does not exist
    run_server(
        store, listen(host, port), known, click_action, log_requests=log_requests, drain=drain, beacon_rate=beacon_rate,
        origins=origins or (), beacon_actions=beacon_actions or (), proxies=proxies or (), query_units=query_units,
        webhooks=hooks,
    )  # fmt: skip


def keys_in(store: str | Path, keys: Path | None) -> Keys:
    """The keys in the file that is named, or those of the store."""
    return keys_of(store) if keys is None else KeyFile(keys)


def find_keys(store: str | Path, keys: Path | None) -> Keys | None:
    """The keys in the file that is named, or those of the store if it has any."""
    found = keys_in(store, keys)
    if not found.exist():
        if keys is not None:
            raise ValueError(f"{keys} does not exist: make it with `ranktrial keys add {name_of(store)} --keys {keys}`")
        return None
    found.all()  # a file that cannot be read is an error now, not a refusal of every request later
    return found


def check_host(host: str, keys: Keys | None, store: str | Path) -> None:
    """Refuse to listen where other machines can reach a service without keys."""
    if keys is None and not is_loopback(host):
        raise ValueError(
            f"--host {host} can be reached from other machines and there are no API keys: make one with "
            f"`ranktrial keys add {name_of(store)} --scope serve`, or leave --host at 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """True if an address is a loopback address, which only this machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_webhooks(urls: Sequence[str], secret: Path | None) -> list[Webhook]:
    """Receivers of messages; signed with the secret in a file, or in the environment."""
    try:
        key = os.environ.get("RANKTRIAL_WEBHOOK_SECRET", "") if secret is None else secret.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(f"--webhook-secret {secret} cannot be read: {problem}") from problem
    if secret is not None and not key.strip():
        raise ValueError(f"--webhook-secret {secret} is empty")
    return [Webhook(url, key.strip()) for url in urls]


def when_started(store: str, ask: Callable[[], T]) -> T:
    """The answer to a question that needs the store; waits for a database that is only just starting, and logs that it does."""
    from ranktrial.service.app import STARTING, log_waiting

    def waiting(problem: StoreUnavailable) -> None:
        log_to_stderr()
        log_waiting(problem)

    return when_available(store, STARTING, ask, waiting)


def log_to_stderr() -> None:
    """Log lines to standard error: text on a terminal, JSON elsewhere."""
    from ranktrial.service.log_lines import JsonFormatter, TextFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if sys.stderr.isatty() else JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # Connections inherit it. asyncio would set it only on sockets that name their protocol, which this one does not;
        # without it every answer waits 40 ms for the other side.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as problem:
        raise ValueError(f"cannot listen at {host} port {port}: {problem.strerror or problem}") from problem


def run_server(
    store: str | Path,
    listening: socket.socket,
    keys: Keys | None,
    click_actions: list[str] | None,
    *,
    drain: int,
    beacon_rate: float = 20.0,
    log_requests: bool = False,
    **options: Any,
) -> None:
    """Serve until a signal ends it; ``options`` are those of ``create_app``."""
    import uvicorn  # the extra "serve"

    from ranktrial.service import Limits, create_app
    from ranktrial.service.events import CLICK_ACTIONS
    from ranktrial.service.silence import close_silent

    log_to_stderr()
    address, port = listening.getsockname()[:2]
    page = f"http://{f'[{address}]' if ':' in address else address}:{port}/"
    app = create_app(
        store,
        keys=keys,
        limits=Limits(beacon_rate=beacon_rate),
        click_actions=frozenset(click_actions) if click_actions else CLICK_ACTIONS,
        hosts=(*LOOPBACK_NAMES, address) if keys is None else None,
        log_all=log_requests,
        **options,
    )
    log = logging.getLogger("ranktrial.service")
    log.info("starting", extra={"store": name_of(store)})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn ends cleanly, then raises the signal again: to no effect
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=drain,
    )  # fmt: skip
    sys.setswitchinterval(0.002)  # a request need not wait 5 ms for its turn while a thread works
    gc.freeze()  # what is loaded by now stays: collections need not look at it again,
    gc.set_threshold(50_000, 20, 50)  # and need not come often: requests leave little that refers to itself

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            self.closing = asyncio.create_task(close_silent(self.server_state.connections, SILENCE))
            log.info("listening", extra={"address": address, "port": port, "page": page})

    Server(config).run(sockets=[listening])
    gc.unfreeze()
    log.info("stopped")


@keys_app.command()
def add(
    store: StoreArgument,
    scope: Annotated[list[str], typer.Option(help=f"Scope of the key: {', '.join(SCOPES)}; may be repeated.")],
    name: Annotated[str, typer.Option(help="Name of the owner.")] = "",
    trial: Annotated[
        list[str] | None, typer.Option(help="Trial that the key is restricted to; may be repeated. Default: all.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Days until it expires. Default: never.")] = None,
    keys: KeysOption = None,
) -> None:
    """Make a key and print it. It is shown this once; the file keeps a hash."""
    file = keys_in(store, keys)
    lifetime = None if days is None else days * SECONDS_A_DAY
    _print_key(file, file.add(name, scope, trials=trial or (), lifetime=lifetime))


@keys_app.command()
def rotate(
    store: StoreArgument,
    id: KeyArgument,
    keep: Annotated[float, typer.Option(help="Days for which the old key still works.")] = 1.0,
    keys: KeysOption = None,
) -> None:
    """Replace a key: make one with the same scopes, print it, and let the old one expire."""
    file = keys_in(store, keys)
    _print_key(file, file.rotate(id, keep * SECONDS_A_DAY))


def _print_key(keys: Keys, key: str) -> None:
    print(key)
    say(
        f"in {keys.place}; a service that runs with these knows it within a second, one that was started before there "
        "were keys must be started again",
        of=err, style="dim", wrap=True,
    )  # fmt: skip


@keys_app.command("list")
def list_keys(store: StoreArgument, keys: KeysOption = None, as_json: JsonOption = False) -> None:
    """List the keys with their scopes."""
    found = keys_in(store, keys).all()
    rows = [{name: value for name, value in asdict(key).items() if name != "digest"} for key in found]
    table = Table("id", "name", "scopes", "trials", "made", "expires")
    for key in found:
        expires = "expired" if key.expired else key.expires or "never"
        table.add_row(key.id, key.name, ", ".join(key.scopes), ", ".join(key.trials) or "all", key.created, expires)
    tell(as_json, rows, table)


@keys_app.command()
def revoke(store: StoreArgument, id: KeyArgument, keys: KeysOption = None) -> None:
    """Revoke a key; a running service refuses it within a second."""
    gone = keys_in(store, keys).revoke(id)
    say(f"revoked {gone.id} {gone.name}", wrap=True)
