"""Dockerfile, compose file and systemd unit, as far as they can be checked without a daemon: that what they run exists."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from ranktrial.cli import app
from ranktrial.extras import MODULES

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, in order, each on one line."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def commands() -> list[list[str]]:
    """Commands that any of the files runs."""
    found = [json.loads(rest)[1:] for name, rest in instructions() if name == "RUN" and rest.startswith("[")]
    found += [json.loads(rest) for name, rest in instructions() if name == "CMD"]
    found += [one["command"] for one in compose()["services"].values() if one["image"] == "ranktrial"]
    unit = (DEPLOY / "ranktrial.service").read_text()
    found += [shlex.split(line)[1:] for line in re.findall(r"^Exec\w+=(.*)$", unit, re.MULTILINE)]
    return found


def test_what_is_run_exists() -> None:
    names = [arguments[0] for arguments in commands()]
    assert names == ["warm", "serve", "serve", "keys", "serve"]
    for arguments in commands():
        command: Any = typer.main.get_command(app)
        context = command.make_context("ranktrial", list(arguments))
        while hasattr(command, "get_command"):  # options and arguments are read, nothing is run
            left: list[str] = context._protected_args + context.args
            name, rest = left[0], left[1:]
            command = command.get_command(context, name)
            assert command is not None, name
            context = command.make_context(name, rest, parent=context)


def test_image() -> None:
    names = [name for name, _ in instructions()]
    known = "FROM WORKDIR COPY RUN ENV USER VOLUME EXPOSE HEALTHCHECK ENTRYPOINT CMD"
    assert set(names) <= set(known.split())
    text = dict(instructions())
    assert json.loads(text["ENTRYPOINT"]) == ["ranktrial"]
    assert text["USER"] != "root"
    for name, rest in instructions():
        if name == "COPY" and "--from" not in rest:
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    extras = re.search(r"'\.\[([\w,]+)\]'", (DEPLOY / "Dockerfile").read_text())
    assert extras is not None
    assert set(extras[1].split(",")) <= set(MODULES)
    # Compiled for the user who runs it, where that user may write, after the environment says for which processor.
    assert names.index("ENV") < names.index("USER") < len(names) - 1 - names[::-1].index("RUN")
    assert "NUMBA_CPU_NAME=generic" in text["ENV"]


def test_compose() -> None:
    services = compose()["services"]
    assert services["database"]["image"].startswith("postgres:")
    for service in (services["service"], services["keys"]):
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert service["depends_on"]["database"]["condition"] == "service_healthy"
    store = next(text for text in services["service"]["command"] if text.startswith("postgresql://"))
    assert store in services["keys"]["command"]
    assert "ranktrial@database/" in store
    for service in (services["service"], services["keys"]):  # others of the machine see what a command line says
        assert "POSTGRES_PASSWORD" not in json.dumps(service["command"])
        assert service["environment"]["PGPASSWORD"].startswith("${POSTGRES_PASSWORD")
    assert set(compose()["volumes"]) == {"database"}


def test_systemd_unit(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (
        (DEPLOY / "ranktrial.service").read_text().replace("/opt/ranktrial/bin/ranktrial", shutil.which("true") or "")
    )
    (tmp_path / "ranktrial.service").write_text(unit)
    done = subprocess.run(
        [tool, "verify", str(tmp_path / "ranktrial.service")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "ranktrial.service" in line]) == (0, [])


def locked(file: str) -> dict[str, list[str]]:
    """Releases of a lock file, by name: the version, and hashes."""
    text = "".join(line for line in (ROOT / file).read_text().splitlines(keepends=True) if not line.startswith("#"))
    found = [line.split() for line in text.replace("\\\n", " ").splitlines()]
    return {name: [version, *rest] for (name, version), rest in ((one[0].split("=="), one[1:]) for one in found)}


def test_locks_have_hashes_and_every_direct_dependency() -> None:
    pinned, of_image = locked("constraints.txt"), locked("deploy/constraints.txt")
    for version, *hashes in (*pinned.values(), *of_image.values()):
        assert re.fullmatch(r"[\w.+!]+", version)
        assert hashes
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
    assert of_image.items() <= pinned.items()
    assert {"fastapi", "psycopg-binary", "hatchling"} <= of_image.keys()
    assert len(pinned["numpy"]) > 20  # of all processors and versions of Python
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    names = {re.split(r"[\[>=<]", line)[0].lower() for line in asked} - {"ranktrial"}
    assert names <= pinned.keys(), "run `make lock`"
