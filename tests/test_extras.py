"""A plain install: what it can do, and how it asks for the rest."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ranktrial.cli import COMMANDS
from ranktrial.extras import MODULES, missing

ROOT = Path(__file__).parents[1]
NAMES = {  # where they differ
    "vl_convert": "vl-convert-python",
    "prometheus_client": "prometheus-client",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
}
EVERYTHING = sorted({name for names in MODULES.values() for name in names})
PLAIN = f"""
import sys
for name in {EVERYTHING}:
    sys.modules[name] = None  # as if it were not installed
"""
TRIAL = """
from ranktrial import Trial, Pair, plan
with Trial.create("t.db", k=2) as trial:
    shown = trial.rank("red shoes", a=["1", "2"], b=["2", "3"], unit="user-17")
    trial.click(shown.id, shown.ranking[0])
    trial.update()
    print(trial.report().to_html("report.html").exists())
"""
RUN = """
from ranktrial.cli import main
sys.argv = ["ranktrial", *sys.argv[1:]]
main()
"""


def run(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Output of a program."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def plain(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Output of a program where only a plain install is there."""
    return run(PLAIN + code, folder, *arguments)


def test_the_table_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(extra: str) -> set[str]:
        found = set()
        for line in extras[extra]:
            inner = line.partition("ranktrial[")[2].rstrip("]")
            found |= set().union(*map(names, inner.split(","))) if inner else {line.partition(">")[0].partition("[")[0]}
        return found

    assert set(extras) == {*MODULES, "all", "dev", "docs"}
    for extra, modules in MODULES.items():
        assert {NAMES.get(module, module) for module in modules} <= names(extra), extra
    asked_for = {NAMES.get(module, module) for module in EVERYTHING}
    assert names("all") == asked_for
    assert not asked_for & {line.partition(">")[0] for line in project["dependencies"]}


def test_a_trial_needs_no_extra(tmp_path: Path) -> None:
    done = plain(TRIAL, tmp_path)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["demo"], "ranktrial demo needs fastapi, uvicorn, prometheus_client: pip install 'ranktrial[serve]'"),
        (["serve", "t.db"], "the service needs fastapi, uvicorn, prometheus_client: pip install 'ranktrial[serve]'"),
        (["report", "postgresql://localhost/t"], "PostgreSQL needs psycopg: pip install 'ranktrial[postgres]'"),
        (["export", "t.db", "out", "--help"], "ranktrial.formats needs duckdb, sqlglot: pip install 'ranktrial[logs]'"),
        (["study", "run"], "vl_convert, duckdb, sqlglot, scipy: pip install 'ranktrial[study]'"),
        (["plan", "--data", "yahoo-like", "--chart", "plan.svg"], "a chart needs altair, vl_convert: pip install"),
    ],
)
def test_a_command_says_which_extra_it_wants(tmp_path: Path, arguments: list[str], refusal: str) -> None:
    done = plain(RUN, tmp_path, *arguments)
    assert refusal in " ".join(done.stderr.split())
    assert (done.stdout, done.returncode, list(tmp_path.iterdir())) == ("", 2, [])


def test_help_names_every_command_and_what_is_missing(tmp_path: Path) -> None:
    done = plain(RUN, tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert all(f" {name} " in done.stdout for name in ("serve", "plan", "keys", "study", "export"))
    assert "ranktrial[logs]" in done.stdout


def test_help_describes_every_command_with_and_without_extras(tmp_path: Path) -> None:
    def described(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
        """Descriptions by command, without the remark on what is to be installed."""
        found: dict[str, str] = {}
        for line in done.stdout.partition("Commands")[2].splitlines():
            _, _, cells = line.partition("\u2502")
            name, text = cells[:12].strip(), cells[12:].strip("\u2502 ")
            last = name or next(reversed(found), "")
            if text:
                found[last] = f"{found.get(last, '')} {text}".strip()
        return {name: text.partition(" (pip install")[0] for name, text in found.items()}

    without, whole = described(plain(RUN, tmp_path, "--help")), described(run("import sys" + RUN, tmp_path, "--help"))
    assert without == whole
    assert set(whole) == set(COMMANDS)


def test_a_part_of_an_extra_may_be_enough() -> None:
    assert missing("study", "a network", needed=("sys",)) is None
    assert "a network needs no_such: pip install 'ranktrial[study]'" in str(missing("study", "a network", ("no_such",)))
