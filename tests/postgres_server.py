"""A real PostgreSQL server for tests and benchmarks: Debian's, in a folder of its own, reached by a Unix socket."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import blake2b
from pathlib import Path

PASSWORD = "hush-hush"  # asked for by nobody, and to be found in no message


def binaries() -> Path | None:
    """The folder of the newest server's programs, if there is one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: int(one.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


class Server:
    """A server that is started when this is made.

    Args:
        durable: Whether commits wait for the disk; tests that never cut the power need not.
    """

    def __init__(self, *, durable: bool = False) -> None:
        programs = binaries()
        if programs is None:
            raise FileNotFoundError("no PostgreSQL server is installed (Debian: apt install postgresql)")
        self._programs, self.folder = programs, Path(tempfile.mkdtemp(prefix="ranktrial-pg-"))
        # The server refuses to be run by root.
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        if self._user:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._run(
            "initdb", "-D", "data", "-U", "ranktrial", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"
        )
        settings = {
            "listen_addresses": "''",
            "unix_socket_directories": f"'{self.folder}'",
            "max_connections": "200",
            "jit": "off",
            "fsync": "on" if durable else "off",
        }
        with Path(self.folder, "data/postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        who = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if self._user else {}
        done = subprocess.run(
            [self._programs / program, *arguments], cwd=self.folder, capture_output=True, text=True, **who
        )  # type: ignore[call-overload]
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start it; returns when it answers."""
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is like a crash."""
        self._run("pg_ctl", "-D", "data", "-m", mode, "-w", "stop")

    def remove(self) -> None:
        """Stop it and remove its folder."""
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, name: str) -> str:
        """The address of a store of its own for each name."""
        return url(self.folder, name)


def url(folder: Path, name: str) -> str:
    """The address of a store of its own for each name, on the server in a folder: a schema of the one database."""
    schema = "t" + blake2b(name.encode(), digest_size=12).hexdigest()
    return f"postgresql://ranktrial:{PASSWORD}@/postgres?host={folder}&schema={schema}"


@cache
def shared_server() -> Server:
    """The server of this process, stopped when it ends."""
    made = Server()
    atexit.register(made.remove)
    return made
