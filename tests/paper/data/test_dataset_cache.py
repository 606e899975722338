"""The cache gives what the file gives: at once, after a change, after damage, and to two processes at the same time."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ranktrial.paper.data import Dataset, cache_folder, letor, read_letor

TEXT = "2 qid:7 1:0.5 3:4\n0 qid:7 1:1.5 2:1 3:2\n1 qid:9 2:-2\n0 qid:9\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were parsed, in order."""
    seen: list[Path] = []
    build = letor._build

    def counted(source: Path, *rest: object) -> None:
        seen.append(source)
        build(source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(letor, "_build", counted)
    return seen


def same(a: Dataset, b: Dataset) -> bool:
    fields = ("offsets", "labels", "features", "query_ids", "feature_ids")
    return a.name == b.name and all(np.array_equal(getattr(a, f), getattr(b, f)) for f in fields)


def entries() -> list[Path]:
    return sorted((cache_folder() / "letor").iterdir())


def test_second_load_is_the_first_without_parsing(file: Path, builds: list[Path]) -> None:
    first, second, uncached = read_letor(file), read_letor(file), read_letor(file, cache=False)
    assert same(first, second)
    assert same(first, uncached)
    assert isinstance(second.features, np.memmap)
    assert not isinstance(uncached.features, np.memmap)
    assert len(builds) == 2  # the first and the uncached one
    assert len(entries()) == 1


def test_options_have_their_own_entries(file: Path) -> None:
    assert read_letor(file).n_features == 3
    assert read_letor(file, feature_ids=[2]).n_features == 1
    assert read_letor(file, normalise=False).features.max() == 4
    assert read_letor(file).features.max() == 1
    assert len(entries()) == 3


def test_a_changed_file_is_read_again_and_replaces_its_entry(file: Path, builds: list[Path]) -> None:
    before = read_letor(file)
    file.write_text(TEXT + "3 qid:11 1:1\n")
    after = read_letor(file)
    assert (before.n_queries, after.n_queries) == (2, 3)
    os.utime(file, ns=(1, 1))
    assert same(read_letor(file), after)
    assert len(builds) == 3
    assert len(entries()) == 1
    # The first data set is still readable although its entry is gone.
    assert before.features.sum() == read_letor(file, cache=False).take([0, 1]).features.sum()


@pytest.mark.parametrize("name", ["features.npy", "offsets.npy", "labels.npy", "query_ids.npy", "feature_ids.npy"])
@pytest.mark.parametrize("damage", ["cut", "removed", "garbage"])
def test_a_damaged_entry_is_built_again(file: Path, builds: list[Path], name: str, damage: str) -> None:
    whole = read_letor(file, cache=False)
    read_letor(file)
    victim = entries()[0] / name
    if damage == "cut":
        victim.write_bytes(victim.read_bytes()[:-1])
    elif damage == "removed":
        victim.unlink()
    else:
        victim.write_bytes(b"\xff" * victim.stat().st_size)
    again = read_letor(file)
    assert same(again, whole)
    assert same(read_letor(file), whole)
    assert len(builds) == 3  # uncached, first and rebuilt


def test_a_failed_build_leaves_nothing(file: Path) -> None:
    file.write_text("1 qid:1 1:x\n")
    with pytest.raises(letor.LetorError):
        read_letor(file)
    assert entries() == []


@pytest.mark.slow
def test_two_processes_at_once(tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_text("".join(f"1 qid:{i // 9} 1:{i} 2:{i * 7 % 11}\n" for i in range(2000)))
    expected = read_letor(file, cache=False)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert all(same(dataset, expected) for dataset in pool.map(read_letor, [file] * 6))
    assert len(entries()) == 1


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANKTRIAL_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("RANKTRIAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "ranktrial"
