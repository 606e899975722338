"""Code blocks of the documents, and a folder in which those of a page run one after the other as a reader would type them.

What a block is for follows from its language:

    python      runs in this process; a ``text`` block right after it must be among what it printed
    sh, bash    runs in one bash for the whole page, every command must succeed
    console     lines that begin with ``$ `` run, what stands below them must be what they print (``...``: anything)
    json, toml  must be in order
    js, java    must compile
    html        is markup: nothing runs

A block of any language whose first line is a comment with a file's name is saved there, and some later block runs it.

A block that cannot run has ``<!-- not run: why -->`` above it.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]*) -->\n)?^```(?P<language>[\w{}-]*)\n(?P<code>.*?)^```$", re.S | re.M
)
SAVED = re.compile(r"(?:#|//|<!--) ([\w/-]+\.\w+)(?: -->)?\n")
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=localhost:)\d+|(?<=--port )\d+|(?<=listen\()\d+")
CHECKED = {"js": ("part.mjs", "command node --check {}"), "java": ("Part.java", "javac -proc:none -d classes {}")}
PROMPT = "$ "
DONE = "-- done --"
PATIENCE = 600  # seconds after which a block hangs

# What a reader's shell does by itself, or does once: servers stay in the background until they listen. What a
# page installs is there already; after that, what it does not install is not there.
SHELL = r"""
set -o pipefail
note() { failed="${failed:-$(tr '\n' ' ' <<< "$1")}"; }
trap 'note "$BASH_COMMAND"' ERR
open_ports() { for port in $PORTS; do (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && echo $port; done | wc -l; }
begin() {
    local before=$(open_ports)
    command "$@" > server.log 2>&1 &
    server=$!
    until [ "$(open_ports)" -gt "$before" ]; do
        kill -0 $server 2>/dev/null || { cat server.log; return 1; }
        sleep 0.1
    done
}
ranktrial() {
    case "$1 $*" in
        *--help*) command ranktrial "$@" ;;
        serve*) [ -z "$service_process" ] || { kill $service_process; wait $service_process; }
                [[ "$*" == *--port* ]] || set -- "$@" --port $SERVICE_PORT
                begin ranktrial "$@" && service_process=$server ;;
        *) command ranktrial "$@" ;;
    esac
}
uvicorn() { begin uvicorn "$@"; }
node() { if grep -q '\.listen(' "$1"; then begin node "$@"; else command node "$@"; fi; }
java() { if grep -q 'HttpServer' "$1"; then begin java "$@"; else command java "$@"; fi; }
pip() { NOT_INSTALLED=$(python "$CHECK_INSTALL" "$@") && export NOT_INSTALLED; }
make() { command make --dry-run --directory "$ROOT" "$@" > /dev/null; }
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: Its file, from the root.
        line: Where it begins.
        language: As the fence says.
        code: What is inside.
        reason: Why it cannot run, if it says so.
    """

    page: str
    line: int
    language: str
    code: str
    reason: str | None

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that it is saved as, if it is."""
        found = SAVED.match(self.code)
        return found[1] if found else None


def blocks_of(page: Path) -> list[Block]:
    """All code blocks of a page; tables of contents and the like are none."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page.relative_to(ROOT).as_posix(),
            text.count("\n", 0, found.start()) + 1,
            *found.group("language", "code", "reason"),
        )
        for found in FENCE.finditer(text)
        if not found["language"].startswith("{")
    ]


class Reader:
    """Somebody who goes through a page in a folder, with a shell of their own and free ports for those of the page.

    Args:
        folder: Where; what the page takes for granted is there.
        text: The page, for the ports in it.
        replaced: Words of the page, such as an address, and what stands for them here.
        more: Variables of the shell's environment.
    """

    def __init__(self, folder: Path, text: str, replaced: Mapping[str, str], more: Mapping[str, str]) -> None:
        self.folder, self._replaced = folder, replaced
        self._ports = {port: str(free_port()) for port in dict.fromkeys(["8000", *PORT.findall(text)])}
        self._names: dict[str, object] = {"__name__": "__main__"}
        self._printed = ""
        given = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PORTS": " ".join(self._ports.values()),
            "SERVICE_PORT": self._ports["8000"],
            "CHECK_INSTALL": str(Path(__file__).with_name("check_install.py")),
            "ROOT": str(ROOT),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).with_name("as_installed")), *filter(None, [given])]),
            "COLUMNS": "100",
            "RANKTRIAL_URL": f"http://127.0.0.1:{self._ports['8000']}",
            **more,
        }
        self._shell = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._type(SHELL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)  # the shell and the servers that it has begun
        self._shell.communicate()

    def here(self, text: str) -> str:
        """Text of the page with the ports and addresses that there are."""
        for word, other in self._replaced.items():
            text = text.replace(word, other)
        return PORT.sub(lambda found: self._ports[found[0]], text)

    def run(self, block: Block) -> str:
        """Do what a block says; what its commands print.

        Raises:
            AssertionError: It does not do what the page says, or nothing is known to do with it.
        """
        code = self.here(block.code)
        if block.file is not None:
            (self.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / block.file).write_text(code, encoding="utf-8")
        elif block.language == "python":
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile("\n" * block.line + code, block.page, "exec"), self._names)
            self._printed = printed.getvalue()
        elif block.language == "text":
            assert code.strip() in self._printed, f"{block.where}: not printed by the block above it: {self._printed}"
            self._printed = ""
        elif block.language in ("sh", "bash"):
            said, failed = self._type(code)
            assert not failed, f"{block.where}: {failed}\n{said}"
            return said
        elif block.language == "console":
            self._talk(block, code)
        elif block.language == "json":
            json.loads(code)
        elif block.language == "toml":
            tomllib.loads(code)
        elif block.language in CHECKED:
            return self._check(block, code)
        elif block.language != "html":
            raise AssertionError(f"{block.where}: nothing runs a block of {block.language or 'no'} language")
        return ""

    def _check(self, block: Block, code: str) -> str:
        name, command = CHECKED[block.language]
        (self.folder / name).write_text(code, encoding="utf-8")
        said, failed = self._type(command.format(name))
        assert not failed, f"{block.where}: {said}"
        return said

    def _talk(self, block: Block, code: str) -> None:
        for exchange in re.split(rf"^{re.escape(PROMPT)}", code, flags=re.M)[1:]:
            command, _, told = exchange.partition("\n")
            printed, failed = self._type(command)
            parts = [re.escape(" ".join(part.split())) for part in told.split("...")]
            as_told = re.fullmatch(" ?.* ?".join(parts), " ".join(printed.split()))
            assert as_told, f"{block.where}: {command} printed\n{printed}"
            assert not failed or "error:" in told, f"{block.where}: {failed}"

    def _type(self, code: str) -> tuple[str, str]:
        """Output, and the last command that failed."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        # Read as one piece, so that a command that reads its input does not take the lines that follow.
        self._shell.stdin.write(f'failed=; eval {shlex.quote(code)} < /dev/null\necho; echo "{DONE}$failed"\n')
        self._shell.stdin.flush()
        lines: list[str] = []
        hangs = threading.Timer(PATIENCE, os.killpg, (self._shell.pid, signal.SIGKILL))
        hangs.start()
        try:
            for line in self._shell.stdout:
                if line.startswith(DONE):
                    return "".join(lines).removesuffix("\n"), line.removeprefix(DONE).strip()
                lines.append(line)
        finally:
            hangs.cancel()
        raise AssertionError(f"the shell ended, or hung, after {''.join(lines)}")


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
