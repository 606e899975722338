from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from ranktrial.store.base import Store
from ranktrial.store.postgres.store import PostgresStore
from ranktrial.store.sqlite import SQLiteStore
from store.kinds import KINDS, Kind

# The first call of a kernel compiles it, so single examples have no deadline; derandomised, a run repeats exactly.
settings.register_profile("ranktrial", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("quick", settings.get_profile("ranktrial"), max_examples=20)
settings.load_profile("ranktrial")

# Fixtures that take seconds: a test that needs one is slow, whatever it does itself.
SLOW_FIXTURES = {"browser", "reference"}
# Files that take 10 s and more, most of their tests a second each.
SLOW_FILES = {
    "test_answers.py", "test_any_order.py", "test_click_model.py", "test_compare.py", "test_data_commands.py",
    "test_documents.py", "test_e_processes.py", "test_every_method.py", "test_export_estimate.py", "test_gradients.py",
    "test_ladder.py", "test_limits.py",
    "test_logopt_network.py", "test_one_meaning.py", "test_power.py", "test_run.py", "test_schema.py", "test_statistics.py",
    "test_systems.py", "test_testing.py", "test_examples.py", "test_javascript.py",
}  # fmt: skip

# Two processes that compile the same kernel for different types at the same moment can store one under the name of the other
# (Numba's index of its cache is read, changed and written without a lock), so every worker of pytest-xdist has its own cache.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    home = os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).resolve().parents[1] / ".numba_cache"
    os.environ["NUMBA_CACHE_DIR"] = str(Path(home, worker))

# Tests write faster than a busy disk takes rows: only those of an overloaded store limit its queue.
for writer in (SQLiteStore, PostgresStore):
    writer.__init__.__kwdefaults__["queue_size"] = 10**6  # type: ignore[index]


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.name in SLOW_FILES or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker("slow")
    # pytest 9.2 forgets the operation in the ids of Schemathesis's tests.
    if item.parent is not None and not item.nodeid.endswith(item.name):
        item._id = item.id.parse(f"{item.parent.nodeid}::{item.name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    twice = [id for id, times in Counter(item.nodeid for item in items).items() if times > 1]
    if twice:
        raise pytest.UsageError(f"{twice[0]}: several tests have this id, and pytest-xdist would run one of them")


@pytest.fixture(autouse=True)
def own_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands count their own memory, not that of all tests that ran in this process before."""
    if request.path.parent.name in ("cli", "formats") and request.path.name != "test_memory.py":
        from ranktrial.formats import memory

        monkeypatch.setattr(memory, "resident", lambda: memory.PYTHON)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Handlers of a service's log end with the test that began it: what they write to is closed then."""
    yield
    for handler in [one for one in logging.root.handlers if type(one) is logging.StreamHandler]:
        logging.root.removeHandler(handler)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a cache of data sets of its own, never the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RANKTRIAL_CACHE", str(folder))
    return folder


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A place for stores, of each kind there is."""
    return KINDS[request.param](tmp_path)


@pytest.fixture
def store(kind: Kind) -> Iterator[Store]:
    with contextlib.closing(kind.open()) as made:
        yield made
