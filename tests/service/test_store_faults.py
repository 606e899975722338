"""A store that is replaced, removed, full or damaged under a running service: it says so, shows A, and acknowledges nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from live_server import A, click, is_problem, rank, send, serving, start
from ranktrial.cli import app
from ranktrial.service import app as service
from ranktrial.service import readiness
from ranktrial.service.middleware import load_shedding
from ranktrial.trial import Trial


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readiness is tried whenever it is asked for, not once a second."""
    monkeypatch.setattr(readiness, "PROBE_EVERY", 0.0)
    monkeypatch.setattr(load_shedding, "A_SECOND", 10**9)


WHY = "the store was replaced or removed"


def count(path: Path) -> int:
    """Impressions in a file, which must be sound."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return int(connection.execute("SELECT count(*) FROM impressions").fetchone()[0])
    finally:
        connection.close()


def copied(path: Path, to: Path) -> Path:
    source, target = sqlite3.connect(path), sqlite3.connect(to)
    source.backup(target)
    target.close()
    source.close()
    return to


def takes_nothing(client: httpx.Client, id: str, *, reason: str, says: str) -> None:
    for unit in ("x", "y"):
        shown = rank(client, unit)
        assert (shown["ranking"], shown["fallback"]) == (A, reason)
    is_problem(client.post("/v1/events", json=click(id, "a0")), 503, says=says)
    is_problem(client.get("/readyz"), 503, says=says)
    for change in ({"path": "exclude", "unit": "u"}, {"path": "erase", "unit": "u"}):
        is_problem(client.post(f"/v1/trials/t/{change.pop('path')}", json={**change, "reason": "why"}), 503, says=says)
    is_problem(client.put("/v1/trials/another", json={"k": 3}), 503)
    assert client.get("/healthz").status_code == 200


def move_away(path: Path) -> None:
    path.rename(path.with_name("away.db"))


def replace(path: Path) -> None:
    path.with_name("copy.db").replace(path)


def write_over(path: Path) -> None:
    """Copy as ``cp`` does: the same file on the disk, with another content."""
    subprocess.run(["cp", path.with_name("copy.db"), path], check=True)


def remove_log(path: Path) -> None:
    path.with_name("t.db-wal").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("do", "says"),
    [
        (replace, "t.db is another file now"),
        (Path.unlink, "t.db is gone"),
        (move_away, "t.db is gone"),
        (write_over, "it was written over while in use"),
        (remove_log, "t.db-wal is gone"),
    ],
)
def test_a_file_that_is_not_the_one_that_was_opened(
    tmp_path: Path, do: Callable[[Path], object], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.db"
    with serving(path) as client:
        start(client)
        shown = [rank(client, f"u{number}") for number in range(20)]
        copied(path, tmp_path / "copy.db")
        shown += [rank(client, f"u{number}", query=f"q{number}") for number in range(20, 150)]
        client.app.state.store._file.connect(60).execute("PRAGMA wal_checkpoint")  # type: ignore[attr-defined]
        shown += [rank(client, f"u{number}") for number in range(150, 160)]
        client.get("/readyz")  # the size of the file is known by now
        do(path)
        takes_nothing(client, shown[0]["id"], reason=WHY, says=says)
        assert client.get("/v1/trials/t/report").status_code == 503
        (saved,) = tmp_path.glob("t.db.saved-*")
        is_problem(client.get("/readyz"), 503, says=f"All that was acknowledged has been saved as {saved}")
    assert [record.levelname for record in caplog.records if says in record.getMessage()] == ["ERROR"]
    if do is not write_over:  # what is left of the file then is anything
        assert count(saved) == 160
    if do is replace:
        assert count(path) == 20  # the log of the file before does not spoil it
        with Trial.open(path, background=False) as trial:
            assert trial.report().impressions == 20
    if do is move_away:
        assert count(tmp_path / "away.db") == 160


def test_it_is_noticed_without_a_request(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", k=3) as trial:
        assert trial.rank("q", A, A[::-1], unit="u", wait=True).fallback is None
        (tmp_path / "t.db").unlink()
        while not list(tmp_path.glob("t.db.saved-*")):
            threading.Event().wait(0.01)
        while trial.rank("q", A, A[::-1], unit="v").fallback != WHY:
            threading.Event().wait(0.01)


def test_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(service, "CHECK_EVERY", 0.01)
    path = tmp_path / "t.db"
    with serving(path) as client:
        start(client)
        shown = [rank(client, f"u{number}", query=f"q{number}") for number in range(100)]
        client.app.state.store._file.connect(60).execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[attr-defined]
        with path.open("r+b") as file:
            file.seek(4096 * 3)
            file.write(os.urandom(path.stat().st_size - 4096 * 3))
        while client.get("/readyz").status_code == 200:
            pass
        takes_nothing(client, shown[0]["id"], reason="the store is damaged", says="t.db is damaged: ")
        is_problem(client.get("/readyz"), 503, says=f"ranktrial restore BACKUP {path}")
    assert sum("is damaged" in record.getMessage() for record in caplog.records) == 1
    told = CliRunner().invoke(app, ["report", str(path)])
    assert told.exit_code == 2, told.output
    assert "is damaged" in told.stderr
    assert "Traceback" not in told.stderr


FULL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from live_server import A, click, is_problem, rank, send, serving, start
from ranktrial.service import readiness
from ranktrial.service.middleware import load_shedding
readiness.PROBE_EVERY = 0.0
load_shedding.A_SECOND = 10**9
folder = Path(sys.argv[1])
(folder / "ballast").write_bytes(bytes(500_000))
long = ["x" * 900 + str(i) for i in range(30)]
with serving(folder / "t.db") as client:
    start(client)
    first = rank(client, "u")
    assert client.get("/readyz").status_code == 200
    stored = 1
    while (shown := rank(client, "u", query=str(stored), a=long, b=long[::-1]))["fallback"] is None:
        stored += 1
    assert (shown["ranking"], shown["fallback"]) == (long, "the disk is full"), shown["fallback"]
    while (answer := client.get("/readyz")).status_code == 200:  # what little fits into the log beside the file
        pass
    is_problem(answer, 503, says="the disk is full (0 bytes free). Make room")
    is_problem(client.post("/v1/events", json=click(first["id"], first["ranking"][0])), 503, says="the disk is full")
    (folder / "ballast").unlink()
    assert client.get("/readyz").status_code == 200
    assert send(client, click(first["id"], first["ranking"][0]))[0]["outcome"] == "counted"
    report = client.get("/v1/trials/t/report").json()
    assert (report["impressions"], report["clicks"]) == (stored, 1)
"""


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """A real one, of 3 MB."""
    mounted = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*mounted, f"mount -t tmpfs -o size=3m none {tmp_path}"], capture_output=True).returncode:
        pytest.skip("no disk of its own can be mounted here")
    script = f'mount -t tmpfs -o size=3m none {tmp_path} && exec "$@"'
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [*mounted, script, "sh", sys.executable, "-c", FULL, str(tmp_path), tests], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("not stored: ") == 1


def test_other_users_cannot_read_a_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.db"

    def modes() -> set[int]:
        return {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}

    with serving(path) as client:
        start(client)
        assert {one.name for one in tmp_path.iterdir()} == {"t.db", "t.db-wal", "t.db-shm"}
        assert modes() == {0o600}
    path.chmod(0o644)
    with serving(path) as client:
        rank(client, "u")
        assert modes() == {0o600}
    assert any("could be read by every user of this machine (mode 644)" in one for one in caplog.messages)
    path.chmod(0o640)  # a group that somebody wanted
    with serving(path) as client:
        rank(client, "v")
        assert modes() == {0o640}


@pytest.mark.slow
@pytest.mark.parametrize("moved", ["folder", "file"])
def test_a_store_that_comes_back_is_taken_up_again(
    tmp_path: Path, moved: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a folder is moved away and back by mistake: without a restart, and with all that was acknowledged."""
    folder = tmp_path / "stores"
    folder.mkdir()
    path = folder / "t.db"
    here, away = (folder, tmp_path / "away") if moved == "folder" else (path, folder / "away.db")
    with serving(path) as client:
        start(client)
        shown = [rank(client, f"u{number}") for number in range(30)]
        for times in range(2):
            here.rename(away)
            takes_nothing(client, shown[0]["id"], reason=WHY, says="t.db is gone")
            away.rename(here)
            while client.get("/readyz").status_code == 503:
                threading.Event().wait(0.01)
            again = rank(client, f"after {times}")
            assert again["fallback"] is None
            assert send(client, click(again["id"], again["ranking"][0]))[0]["outcome"] == "counted"
        report = client.get("/v1/trials/t/report").json()
        assert (report["impressions"], report["clicks"]) == (32, 2)
    assert count(path) == 32
    assert sum("takes rows again" in record.getMessage() for record in caplog.records) >= 2


def test_another_file_in_its_place_is_not_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with serving(path) as client:
        start(client)
        shown = rank(client, "u")
        copied(path, tmp_path / "copy.db")
        path.rename(tmp_path / "away.db")
        takes_nothing(client, shown["id"], reason=WHY, says="t.db is gone")
        (tmp_path / "copy.db").rename(path)
        for _ in range(3):  # looks of the store, which is idle
            client.app.state.store._look_after()  # type: ignore[attr-defined]
        is_problem(client.get("/readyz"), 503, says="t.db is gone")
