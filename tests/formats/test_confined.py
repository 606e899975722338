"""Readers and writers of logs reach no other files than they are asked for, and others cannot read what they write."""

from __future__ import annotations

import stat
from pathlib import Path

import duckdb
import pytest

from ranktrial.formats import export, read_log
from ranktrial.formats.database import connect
from ranktrial.formats.layout import open_duckdb
from ranktrial.trial import Trial

LOG = "query,a,b,shown,clicked\nshoes,x|y,y|x,x|y,y\n"


@pytest.mark.parametrize("name", ["log*.csv", "log?.csv", "log[1-9].csv", "{log1,log2}.csv"])
def test_a_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LOG)
    (tmp_path / "log1.csv").write_text(LOG * 50)
    folder = tmp_path / "w*[a]"
    folder.mkdir()
    (folder / name).write_text(LOG)
    (tmp_path / "wx[a]").mkdir()
    for file in (tmp_path / name, folder / name):
        assert len(read_log(file)) == 1


def test_a_folder_whose_name_is_a_pattern_is_exported_to_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "out*[1]"
    with Trial.create(tmp_path / "t.db", k=2, background=False, timeout=60) as trial:
        for number in range(3):
            shown = trial.rank("q", ["x", "y"], ["y", "z"], unit=f"u{number}", wait=True)
            export(trial.store, "trial", folder)
            trial.click(shown.id, shown.ranking[0])
        export(trial.store, "trial", folder)
        assert (len(read_log(folder)), read_log(folder).clicks.sum()) == (3, 3)


def test_only_the_owner_can_read_an_export(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", k=2, background=False, timeout=60) as trial:
        trial.rank("q", ["x", "y"], ["y", "z"], unit="u", wait=True)
        export(trial.store, "trial", tmp_path / "out")
    files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert {file.suffix for file in files} >= {".parquet", ".json"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_nothing_is_installed_or_loaded_by_itself() -> None:
    for connection in (open_duckdb(), open_duckdb(only=[])):
        told = connection.execute(
            "SELECT name, value FROM duckdb_settings() WHERE name LIKE 'auto%_known_extensions'"
        ).fetchall()
        assert dict(told) == {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def test_a_database_of_others_reaches_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with duckdb.connect(str(tmp_path / "given.duckdb")) as theirs:
        theirs.execute(f"CREATE VIEW impressions AS SELECT * FROM read_csv('{secret}')")
    opened = connect(str(tmp_path / "given.duckdb"))
    for statement in ("SELECT * FROM impressions", f"COPY (SELECT 1) TO '{tmp_path}/x.csv'", "LOAD httpfs"):
        with pytest.raises(duckdb.PermissionException):
            opened.execute(statement)


def test_a_connection_is_confined_to_what_it_was_given(tmp_path: Path) -> None:
    for name in ("in.csv", "out.csv"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    confined = open_duckdb(only=[tmp_path / "in.csv"])
    assert confined.execute(f"SELECT * FROM read_csv('{tmp_path}/in.csv')").fetchall() == [(1, 2)]
    with pytest.raises(duckdb.PermissionException):
        confined.execute(f"SELECT * FROM read_csv('{tmp_path}/out.csv')")
