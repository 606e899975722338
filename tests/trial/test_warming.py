"""Compiled loops: found in the cache or made ahead, and what is shown while they are not there."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from live_server import ASKED, is_problem, serving, start
from ranktrial._kernels import watching_compilations
from ranktrial.cli import app
from ranktrial.log.known import Known
from ranktrial.methods import AB, Beliefs, LogOpt
from ranktrial.rankings import Pair
from ranktrial.service import compiling
from ranktrial.trial import Trial, drawing, warming
from ranktrial.trial.drawing import make_design, warm_up
from ranktrial.users import position_based

LOG = "ranktrial.service"
METHODS = [
    LogOpt(),
    LogOpt(estimate="ips", holdback=0),
    LogOpt(relevance="constant", loss=None, keep=0, floor=0.5),
    LogOpt(keep=0, bias="known"),
    AB(),
]


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the state in which nothing is compiled."""
    monkeypatch.setattr(drawing, "warm", type(drawing.warm)())


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_no_request_has_to_compile(method: LogOpt | AB) -> None:
    warm_up()
    loops: list[str] = []
    theta = np.array([1.0, 0.5, 0.2])
    random = np.random.default_rng(3)
    pair = Pair.from_scores(random.random(8), random.random(8), np.array([0, 8]), 3).knowing(theta=theta)
    user = position_based(random.random(8), theta)
    learnt = method.planned_beliefs(pair, user) if isinstance(method, LogOpt) else Beliefs(theta)
    with watching_compilations(loops.append):
        for beliefs in (Beliefs(theta), learnt):
            for a, b in (("xyz", "yxw"), ("xyz", "xyz"), ("x", ""), ("abcdefgh", "hgfedcba")):
                make_design("q", list(a), list(b), method, beliefs, known=Known())
    assert loops == []


def test_a_trial_that_does_not_compile_shows_a(tmp_path: Path, cold: None) -> None:
    with Trial.create(tmp_path / "t.db", k=2, background=False, compile=False) as trial:
        early = trial.rank("q", ["x", "y"], ["y", "x"], unit="u")
        assert (early.ranking, early.fallback) == (["x", "y"], "not compiled yet")
        warm_up()
        assert trial.rank("q", ["x", "y"], ["y", "x"], unit="u").fallback is None
        trial.store.flush(60)
        assert len(trial.log()) == 1
    with Trial.open(tmp_path / "t.db", background=False) as trial:
        assert trial.rank("q", ["x", "y"], ["y", "x"], unit="v").fallback is None


def test_a_cold_service_answers_meanwhile(tmp_path: Path, cold: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With A's lists, and says that it is not ready; then it draws."""
    monkeypatch.setattr(warming, "load", lambda: False)
    with monkeypatch.context() as patch:
        patch.setattr("live_server.warm_up", lambda: None)
        patch.setattr("ranktrial.service.app.compile_beside", lambda: _never())
        with serving(tmp_path / "t.db") as client:
            assert client.get("/healthz").status_code == 200
            is_problem(client.get("/readyz"), 503, says="being compiled")
            start(client)
            shown = client.post("/v1/trials/t/rank", json=ASKED).json()
            assert (shown["ranking"], shown["fallback"]) == (ASKED["a"], "not compiled yet")
            assert 'reason="not compiled yet"' in client.get("/metrics").text
            drawing.warm.set()
            assert client.get("/readyz").status_code == 200
            assert client.post("/v1/trials/t/rank", json=ASKED).json()["fallback"] is None


async def _never() -> None:
    """A compilation that does not end."""


@pytest.mark.slow
def test_compilation_beside_the_service(cold: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    asyncio.run(compiling.compile_beside())
    assert drawing.warm.is_set()
    told = [(record.message, getattr(record, "part", None)) for record in caplog.records if record.name == LOG]
    assert told == [("compiling", None), ("compiled", "drawing"), ("compiled", "reports")]


def test_compilation_ends_with_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "COMMAND", (sys.executable, "-c", "import time; time.sleep(600)"))
    children: list[asyncio.subprocess.Process] = []
    really = asyncio.create_subprocess_exec

    async def begin(*command: str) -> asyncio.subprocess.Process:
        children.append(await really(*command))
        return children[-1]

    async def cancel() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", begin)
        task = asyncio.create_task(compiling.compile_beside())
        while not children:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert [child.returncode for child in children] == [-signal.SIGKILL]


@pytest.mark.slow
def test_warm_compiles_all_of_a_trial_and_of_a_service(tmp_path: Path) -> None:
    """From an empty cache: then neither a service nor a trial of other lists, clicks and methods has to compile."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert run("from ranktrial.trial.warming import load; print(load())") == "False\n"
    warm = "from ranktrial.cli import main; import sys; sys.argv = ['ranktrial', 'warm', '--json']; main()"
    first, second = json.loads(run(warm)), json.loads(run(warm))
    assert first["compiled"] > 20
    assert (second["compiled"], second["cache"]) == (0, str(tmp_path / "cache"))
    assert run("from ranktrial.trial.warming import load; print(load())") == "True\n"
    assert run(TRIALS) == "[]\n"


TRIALS = """
import numpy as np
from ranktrial import Trial
from ranktrial._kernels import watching_compilations

loops, random = [], np.random.default_rng(5)
with watching_compilations(loops.append):
    for number, method in enumerate(["LogOpt()", "AB()", "LogOpt(estimate='ips', floor=0.5, loss=None)"]):
        with Trial.create(f"{number}.db", method=method, k=5, seed=number, background=False) as trial:
            for visitor in range(600):
                query = int(random.integers(6))
                a = [f"{query}-{document}" for document in range(9)]
                shown = trial.rank(f"q{query}", a, a[2:] + a[:1], unit=f"u{visitor}")
                for rank, document in enumerate(shown.ranking[:5]):
                    if random.random() < 0.5 / (1 + rank):
                        trial.click(shown.id, document, wait=False)
                if visitor == 300:
                    trial.update()
            trial.update()
            trial.report().to_html(f"{number}.html")
print(loops)
"""


def test_command_says_where_compiled_code_is(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["warm"])
    assert done.exit_code == 0, done.stderr
    assert "kept in" in done.stdout or "nothing to compile" in done.stdout
